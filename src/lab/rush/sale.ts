import { Asker, member } from './ask.ts';

/** What the shop's public page says of a sale. */
export interface Sale {
  readonly activityId: string;
  readonly phase: string;
  readonly lobbyOpensAtMs: number;
  readonly opensAtMs: number;
  readonly closesAtMs: number;
  readonly serverTimeMs: number;
  readonly commitment: string | undefined;
  /** Binds what the room had decided by then. */
  readonly checkpoint: string | undefined;
  readonly skus: readonly { readonly skuId: string; readonly maxPerPerson: number }[];
}

/** The run cannot begin: the target is not there, or is not what it should be. */
export class CannotStartError extends Error {
  override readonly name = 'CannotStartError';
}

/** Looks up the sale to rush. @throws CannotStartError that says what was found and what is needed. */
export async function findSale(shop: Asker, wanted: string | undefined): Promise<Sale> {
  let answer;
  try {
    answer = await shop.get('/v1/activities');
  } catch (error) {
    throw new CannotStartError(`the target does not answer: ${messageOf(error)}`);
  }
  const listed = member(answer.json, 'activities');
  if (answer.status !== 200 || !Array.isArray(listed)) {
    throw new CannotStartError(
      `GET /v1/activities answered ${answer.status} ${answer.text.slice(0, 200)}; the target must be a shop of Sluice`,
    );
  }
  const sales = listed.map(saleOf);
  const ids = sales.map(({ activityId }) => activityId).join(', ');
  if (wanted !== undefined) {
    const sale = sales.find(({ activityId }) => activityId === wanted);
    if (sale !== undefined) return sale;
    // What is rehearsed is on no list.
    const unlisted = await shop.get(`/v1/activities/${encodeURIComponent(wanted)}`);
    if (unlisted.status === 200) return saleOf(unlisted.json);
    throw new CannotStartError(`--activity: found "${wanted}"; the target has: ${ids || 'none'}`);
  }
  const [only, ...others] = sales;
  if (only === undefined) throw new CannotStartError('the target has no activity');
  if (others.length > 0) {
    throw new CannotStartError(
      `the target has several activities; give --activity, one of: ${ids}`,
    );
  }
  return only;
}

function saleOf(body: unknown): Sale {
  const text = (name: string): string => textOf(member(body, name));
  const skus = member(body, 'skus');
  const commitment = member(member(body, 'room'), 'commitment');
  const checkpoint = member(member(body, 'room'), 'checkpoint');
  return {
    activityId: text('activity_id'),
    phase: text('phase'),
    lobbyOpensAtMs: Date.parse(text('lobby_opens_at')),
    opensAtMs: Date.parse(text('opens_at')),
    closesAtMs: Date.parse(text('closes_at')),
    serverTimeMs: Date.parse(text('server_time')),
    commitment: typeof commitment === 'string' ? commitment : undefined,
    checkpoint: typeof checkpoint === 'string' ? checkpoint : undefined,
    skus: (Array.isArray(skus) ? skus : []).map((sku: unknown) => ({
      skuId: textOf(member(sku, 'sku_id')),
      maxPerPerson: Number(member(sku, 'max_per_person') ?? 1),
    })),
  };
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
