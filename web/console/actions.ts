import { type Me, type Overview, call } from './api.ts';
import { h, setText } from './dom.ts';
import type { Card } from './cards.ts';
import type { Words } from './words.ts';

const ofSale = ['pause', 'resume', 'hold', 'stop', 'reopen', 'close', 'restock'];
const ofMode = ['pin_mode', 'unpin_mode'];
const grave = ['stop', 'close', 'cancel_order', 'refund_order'];

/** The buttons of what is offered here; each opens a form that asks for a reason. */
export function actionsCard(words: Words, me: Me, say: (text: string) => void): Card {
  const offered = [...ofSale, ...ofMode].filter((kind) => me.offered.includes(kind));
  let latest: Overview | undefined;
  const buttons = offered.map((kind) =>
    h(
      'button',
      {
        type: 'button',
        class: grave.includes(kind) ? 'danger' : '',
        click: () => openAction(words, kind, { overview: latest }, say),
      },
      words.actions[kind] ?? kind,
    ),
  );
  return {
    element: h(
      'section',
      { class: 'card act' },
      h('h2', {}, words.actionsTitle),
      offered.length === 0
        ? h('p', { class: 'fine' }, words.nothingOffered)
        : h('div', { class: 'buttons' }, ...buttons),
    ),
    show(overview) {
      latest = overview;
    },
  };
}

/**
 * One action as a dialog. The action's id is made when the form opens: pressing the button again
 * after a lost answer repeats the same action, and changes nothing more.
 */
export function openAction(
  words: Words,
  kind: string,
  target: { readonly overview?: Overview | undefined; readonly orderId?: string },
  say: (text: string) => void,
  done: () => void = () => undefined,
): void {
  const actionId = `act_${crypto.getRandomValues(new Uint32Array(4)).join('_')}`;
  const title = words.actions[kind] ?? kind;
  const { overview, orderId } = target;
  const fields: HTMLElement[] = [];
  const field = <Control extends HTMLElement>(label: string, control: Control): Control => {
    fields.push(h('label', {}, h('span', {}, label), control));
    return control;
  };
  const select = (
    label: string,
    options: readonly (readonly [string, string])[],
  ): HTMLSelectElement =>
    field(label, h('select', {}, ...options.map(([value, name]) => h('option', { value }, name))));

  const activity =
    ofSale.includes(kind) && kind !== 'restock'
      ? select(
          words.activity,
          (overview?.rooms ?? []).map((room) => [room.activity_id, room.name]),
        )
      : undefined;
  const sku =
    kind === 'restock'
      ? select(
          words.sku,
          (overview?.stock ?? []).map((row) => [
            `${row.activity_id} ${row.sku_id}`,
            `${row.name} · ${row.activity_id}`,
          ]),
        )
      : undefined;
  const units =
    kind === 'restock'
      ? field(words.units, h('input', { type: 'number', step: 1, required: true, value: 1 }))
      : undefined;
  const mode = kind === 'pin_mode' ? select(words.mode, Object.entries(words.modes)) : undefined;
  const minutes =
    kind === 'pin_mode'
      ? field(
          words.minutes,
          h('input', { type: 'number', min: 1, max: 1440, required: true, value: 10 }),
        )
      : undefined;
  const reason = field(
    words.reason,
    h('textarea', { rows: 2, required: true, minlength: 3, maxlength: 500 }),
  );
  const problem = h('p', { class: 'bad', role: 'alert' });
  const submit = h(
    'button',
    { type: 'submit', class: grave.includes(kind) ? 'danger solid' : 'solid' },
    words.carryOut,
  );

  const body = (): Record<string, unknown> => ({
    action: kind,
    action_id: actionId,
    reason: reason.value,
    ...(activity === undefined ? {} : { activity_id: activity.value }),
    ...(sku === undefined
      ? {}
      : {
          activity_id: sku.value.split(' ')[0],
          sku_id: sku.value.split(' ')[1],
          delta: Number(units?.value),
        }),
    ...(mode === undefined ? {} : { mode: mode.value, for_ms: Number(minutes?.value) * 60_000 }),
    ...(orderId === undefined ? {} : { order_id: orderId }),
  });

  const carryOut = async (): Promise<void> => {
    submit.disabled = true;
    setText(problem, words.working);
    try {
      await call('POST', '/actions', body());
      dialog.close();
      say(`${title}: ${words.done}`);
      done();
    } catch (error) {
      setText(problem, error instanceof Error ? error.message : String(error));
    } finally {
      submit.disabled = false;
    }
  };

  const form = h(
    'form',
    {
      method: 'dialog',
      submit: (event) => {
        event.preventDefault();
        void carryOut();
      },
    },
    h('h2', { id: 'act-title' }, title),
    h('p', {}, words.actionTexts[kind] ?? ''),
    ...fields,
    problem,
    h(
      'div',
      { class: 'buttons end' },
      h('button', { type: 'button', click: () => dialog.close() }, words.cancel),
      submit,
    ),
  );
  const dialog = h(
    'dialog',
    { 'aria-labelledby': 'act-title', close: () => dialog.remove() },
    form,
  );
  document.body.append(dialog);
  dialog.showModal();
  reason.focus();
}
