import { createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { systemClock, systemTimers } from '../../src/app/system.ts';
import { homeShard, reservationIdAt } from '../../src/core/stock/shards.ts';
import { ReserveBatcher } from '../../src/pipeline/reserve-batcher.ts';
import type { InventoryStore, ReserveRequest } from '../../src/ports/inventory-store.ts';
import type { RedisLink } from '../../src/stores/redis/client.ts';
import type { RedisInventoryStore } from '../../src/stores/redis/inventory-store.ts';
import type { Keys } from '../../src/stores/redis/keys.ts';
import { fieldOf, personField, textOfRequest } from '../../src/stores/redis/records.ts';

/** Three ways to reserve one unit of one hot SKU; each answers whether it was reserved. */
export interface Reserver {
  readonly name: string;
  reserve(request: ReserveRequest): Promise<boolean>;
}

export const hotSku = { activityId: 'bench', skuId: 'hot' } as const;

/** Requests as gateways make them, each of another person. */
export function makeRequests(count: number): ReserveRequest[] {
  return Array.from({ length: count }, (_, at) => {
    const userId = `user-${at}`;
    return {
      requestId: randomBytes(16).toString('hex'),
      userId,
      personId: userId,
      fingerprint: createHash('sha256').update(userId).digest('hex'),
      nonce: randomBytes(16).toString('base64url'),
      quantity: 1,
      limit: 1,
      reservationId: reservationIdAt(userId, randomBytes(16).toString('base64url')),
      deadlineMs: 1_800_000_000_000,
      activityVersion: 1,
      unitAmountMinor: 9_900,
      currency: 'EUR',
    };
  });
}

/** Ours, as gateways use it: one batcher per gateway, one call in flight in each, to each shard. */
export function batched(
  store: Pick<InventoryStore, 'reserve'>,
  gateways: number,
  shards = 1,
): Reserver {
  const batchers = Array.from(
    { length: gateways },
    () =>
      new ReserveBatcher({
        store,
        wallMs: () => systemClock.wallMs(),
        monoUs: () => systemClock.monoUs(),
        timers: systemTimers,
        defer: (task) => void setImmediate(task),
        placeOf: (_sku, { personId }) => homeShard(personId, shards),
      }),
  );
  let turn = 0;
  return {
    name: shards === 1 ? 'batch' : `batch, in ${shards} shards`,
    async reserve(request) {
      turn += 1;
      const result = await batchers[turn % gateways]?.add(hotSku, request);
      return result?.kind === 'outcome' && result.outcome.kind === 'reserved';
    },
  };
}

/** The same script, called for each request. */
export function oneByOne(store: RedisInventoryStore): Reserver {
  return {
    name: 'same script, one call per request',
    async reserve(request) {
      const reply = await store.reserve(hotSku, [request], 0, systemClock.wallMs());
      return reply.kind === 'done' && reply.outcomes[0]?.kind === 'reserved';
    },
  };
}

/** The usual design: a script written for one request, so free of what a batch needs. */
export async function usual(link: RedisLink, keys: Keys): Promise<Reserver> {
  const text = readFileSync(new URL('./reserve-one.lua', import.meta.url), 'utf8');
  const sha = String(await link.command(undefined, ['SCRIPT', 'LOAD', text]));
  const names = ['stock', 'requests', 'nonces', 'persons', 'order', 'outbox'] as const;
  const scriptKeys = names.map((name) => keys.sku(hotSku, name));
  return {
    name: 'script for one request',
    async reserve(request) {
      const nowMs = systemClock.wallMs();
      const reply = await link.command(scriptKeys[0], [
        'EVALSHA',
        sha,
        String(scriptKeys.length),
        ...scriptKeys,
        '0',
        fieldOf(request.userId, request.requestId),
        request.nonce,
        personField(request.personId),
        String(request.quantity),
        String(request.limit),
        textOfRequest(request, nowMs),
        String(nowMs),
      ]);
      return Array.isArray(reply) && reply[0] === 'g';
    },
  };
}
