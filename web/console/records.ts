import { openAction } from './actions.ts';
import { type AuditEntry, type Me, type OrderRow, call } from './api.ts';
import type { Formats } from './cards.ts';
import { h, setRows, setText, table } from './dom.ts';
import type { Words } from './words.ts';

/** Money in the currency's own digits. */
function money(tag: string, amountMinor: number, currency: string): string {
  const format = new Intl.NumberFormat(tag, { style: 'currency', currency });
  return format.format(amountMinor / 10 ** (format.resolvedOptions().maximumFractionDigits ?? 2));
}

/** Search over orders, and one order's history with what can be done to it. */
export function ordersView(
  words: Words,
  formats: Formats,
  me: Me,
  say: (text: string) => void,
): HTMLElement {
  const text = h('input', {
    type: 'search',
    'aria-label': words.orderSearch,
    placeholder: words.orderSearch,
  });
  const state = h(
    'select',
    { 'aria-label': words.anyState },
    h('option', { value: '' }, words.anyState),
    ...Object.entries(words.states).map(([value, name]) => h('option', { value }, name)),
  );
  const overdue = h('input', { type: 'checkbox' });
  const status = h('p', { class: 'fine', role: 'status' });
  const { element: list, body } = table(words.orders, words.orderHeads);
  const more = h(
    'button',
    { type: 'button', hidden: true, click: () => void search(next) },
    words.more,
  );
  const detail = h('section', { class: 'card wide', hidden: true, tabindex: -1 });
  let next: string | null = null;

  const search = async (after: string | null): Promise<void> => {
    const query = new URLSearchParams();
    if (text.value.trim() !== '') query.set('text', text.value.trim());
    if (state.value !== '') query.set('state', state.value);
    if (overdue.checked) query.set('overdue', 'true');
    if (after !== null) query.set('after', after);
    try {
      const page = await call<{ orders: OrderRow[]; next: string | null }>(
        'GET',
        `/orders?${query}`,
      );
      if (after === null) body.replaceChildren();
      for (const order of page.orders) body.append(orderRow(order));
      next = page.next;
      more.hidden = next === null;
      setText(status, body.rows.length === 0 ? words.none : '');
    } catch (error) {
      setText(status, error instanceof Error ? error.message : String(error));
    }
  };

  const orderRow = (order: OrderRow): HTMLTableRowElement =>
    h(
      'tr',
      {},
      h(
        'th',
        { scope: 'row' },
        h(
          'button',
          { type: 'button', class: 'link', click: () => void open(order.order_id) },
          order.order_id,
        ),
      ),
      h('td', {}, words.states[order.state] ?? order.state),
      h('td', {}, order.sku_id),
      h('td', {}, order.quantity),
      h('td', {}, money(words.tag, order.amount_minor, order.currency)),
      h('td', {}, formats.time(order.created_at)),
      h('td', {}, formats.time(order.pay_before)),
    );

  const open = async (orderId: string): Promise<void> => {
    const found = await call<{
      order: OrderRow;
      payments: { payment_id: string; provider: string; state: string }[];
      history: AuditEntry[];
    }>('GET', `/orders/${orderId}`);
    const acts = (
      found.order.state === 'PENDING_PAYMENT'
        ? ['cancel_order']
        : found.order.state === 'PAID'
          ? ['refund_order']
          : []
    ).filter((kind) => me.offered.includes(kind));
    const { element: rows, body: historyBody } = table(words.history, words.auditHeads);
    setRows(
      historyBody,
      found.history.map((row) => auditCells(formats, row)),
    );
    detail.hidden = false;
    detail.replaceChildren(
      h('h2', {}, orderId, ' · ', words.states[found.order.state] ?? found.order.state),
      h(
        'p',
        { class: 'fine' },
        `${words.payments}: ${found.payments.map((one) => `${one.provider} ${one.state}`).join(', ') || '–'}`,
      ),
      h(
        'div',
        { class: 'buttons' },
        ...acts.map((kind) =>
          h(
            'button',
            {
              type: 'button',
              class: 'danger',
              click: () => openAction(words, kind, { orderId }, say, () => void open(orderId)),
            },
            words.actions[kind] ?? kind,
          ),
        ),
      ),
      rows,
    );
    detail.focus();
  };

  const form = h(
    'form',
    {
      class: 'search',
      role: 'search',
      submit: (event) => {
        event.preventDefault();
        void search(null);
      },
    },
    text,
    state,
    h('label', { class: 'check' }, overdue, words.overdue),
    h('button', { type: 'submit', class: 'solid' }, words.search),
  );
  void search(null);
  return h(
    'div',
    { class: 'grid' },
    h(
      'section',
      { class: 'card wide' },
      h('h2', {}, words.orders),
      form,
      status,
      list,
      more,
      exportLinks(words, me, ['orders', 'payments', 'refunds']),
    ),
    detail,
  );
}

/** Downloads, for those whose role may. */
function exportLinks(words: Words, me: Me, names: readonly string[]): HTMLElement {
  const links = names.map((name) =>
    h(
      'a',
      { href: `/admin/v1/exports/${name}.csv`, download: `${name}.csv` },
      words.exportNames[name] ?? name,
    ),
  );
  return h('p', { class: 'exports', hidden: me.role === 'viewer' }, `${words.exports}: `, ...links);
}

function auditCells(formats: Formats, row: AuditEntry): readonly string[] {
  return [formats.time(row.at), row.who, row.what, row.subject, row.why];
}

/** What was done, by whom and why; newest first. */
export function auditView(words: Words, formats: Formats, me: Me): HTMLElement {
  const { element: list, body } = table(words.audit, words.auditHeads);
  const status = h('p', { class: 'fine', role: 'status' });
  void call<{ rows: AuditEntry[] }>('GET', '/audit?limit=200').then(
    ({ rows }) => {
      setRows(
        body,
        rows.map((row) => auditCells(formats, row)),
      );
      setText(status, rows.length === 0 ? words.none : '');
    },
    (error: unknown) => setText(status, error instanceof Error ? error.message : String(error)),
  );
  return h(
    'div',
    { class: 'grid' },
    h(
      'section',
      { class: 'card wide' },
      h('h2', {}, words.audit),
      status,
      list,
      exportLinks(words, me, ['audit']),
    ),
  );
}
