import { Asker, member, numberOf } from './ask.ts';

/** Units of one activity, summed over its SKUs, as the operator sees them. */
export interface StockView {
  readonly total: number;
  /** Of live orders, paid or not. */
  readonly sold: number;
  /** Reserved, no order yet. */
  readonly held: number;
  readonly available: number;
}

/** One order as the operator sees it. */
export interface OrderView {
  readonly orderId: string;
  readonly skuId: string;
  readonly personId: string;
  readonly quantity: number;
  readonly state: string;
}

/** Orders read back at most. */
const ordersMax = 200_000;

function orderOf(row: unknown): OrderView {
  const text = (name: string): string => {
    const value = member(row, name);
    if (typeof value === 'string') return value;
    throw new Error(`order: expected a text "${name}", found ${brief(row)}`);
  };
  const quantity = numberOf(member(row, 'quantity'));
  if (quantity === undefined) throw new Error(`order: expected "quantity", found ${brief(row)}`);
  return {
    orderId: text('order_id'),
    skuId: text('sku_id'),
    personId: text('person_id'),
    quantity,
    state: text('state'),
  };
}

/** The operator's side of a target, where a credential for it is at hand. */
export class BackOffice {
  readonly #asker: Asker;

  constructor(url: string, token: string) {
    this.#asker = new Asker(new URL(url), token);
  }

  close(): void {
    this.#asker.close();
  }

  /** @throws Error when the endpoint is not there or answers in another shape. */
  async stock(activityId: string): Promise<StockView> {
    const json = await this.#get(`/admin/v1/stock?activity_id=${activityId}`);
    const rows = member(json, 'skus');
    if (!Array.isArray(rows)) throw new Error(`stock: expected "skus", found ${brief(json)}`);
    const sum = { total: 0, sold: 0, held: 0, available: 0 };
    for (const row of rows) {
      const owner = member(row, 'activity_id');
      if (owner !== undefined && owner !== activityId) continue;
      const paid = numberOf(member(row, 'paid'));
      const pending = numberOf(member(row, 'pending'));
      const total = numberOf(member(row, 'total'));
      const held = numberOf(member(row, 'held'));
      const available = numberOf(member(row, 'available'));
      if (
        total === undefined ||
        held === undefined ||
        available === undefined ||
        paid === undefined ||
        pending === undefined
      ) {
        throw new Error(
          `stock: expected total, paid, pending, held, available; found ${brief(row)}`,
        );
      }
      sum.total += total;
      sum.sold += paid + pending;
      sum.held += held;
      sum.available += available;
    }
    return sum;
  }

  /** What the flow ledger does not find again; 0 when it closes. */
  async ledgerResidual(): Promise<number> {
    const json = await this.#get('/admin/v1/ledger');
    const residual = numberOf(member(json, 'residual'));
    if (residual === undefined)
      throw new Error(`ledger: expected "residual", found ${brief(json)}`);
    return residual;
  }

  /** What a reconciliation finds, without repairing it. */
  async findings(): Promise<readonly string[]> {
    const answer = await this.#asker.post('/admin/v1/commands/reconcile', {
      dry_run: true,
      reason: 'end of a rush',
    });
    if (answer.status !== 200) {
      throw new Error(`reconcile: answered ${answer.status} ${brief(answer.json)}`);
    }
    const findings = member(answer.json, 'findings');
    if (!Array.isArray(findings)) {
      throw new Error(`reconcile: expected "findings", found ${brief(answer.json)}`);
    }
    return findings.map((finding) => brief(finding));
  }

  /** Every order of an activity, in pages. @throws Error when there are more than `ordersMax`. */
  async orders(activityId: string): Promise<readonly OrderView[]> {
    const orders: OrderView[] = [];
    let after = '';
    for (;;) {
      const path = `/admin/v1/orders?activity_id=${activityId}&limit=200${after}`;
      const json = await this.#get(path);
      const rows = member(json, 'orders');
      if (!Array.isArray(rows)) throw new Error(`orders: expected "orders", found ${brief(json)}`);
      for (const row of rows) orders.push(orderOf(row));
      if (orders.length > ordersMax) throw new Error(`more than ${ordersMax} orders`);
      const next = member(json, 'next');
      if (typeof next !== 'string' || next === '') return orders;
      after = `&after=${encodeURIComponent(next)}`;
    }
  }

  /** The audit file of an activity's draw; undefined with the reason where there is none. */
  async drawAudit(activityId: string): Promise<{ readonly text?: string; readonly why: string }> {
    const answer = await this.#asker.get(`/admin/v1/draws/${activityId}/audit`, 60_000);
    if (answer.status === 200) return { text: answer.text, why: '' };
    const detail = member(answer.json, 'detail');
    return { why: typeof detail === 'string' ? detail : `answered ${answer.status}` };
  }

  async #get(path: string): Promise<unknown> {
    const answer = await this.#asker.get(path);
    if (answer.status !== 200) {
      throw new Error(`GET ${path.split('?', 1)[0]}: answered ${answer.status}`);
    }
    return answer.json;
  }
}

function brief(value: unknown): string {
  return (JSON.stringify(value) ?? String(value)).slice(0, 300);
}
