import { fc } from '../support/property.ts';
import { expect, test } from 'vitest';
import { MemoryOrderQueue } from '../../src/queues/memory-queue.ts';
import { UnavailableError } from '../../src/ports/errors.ts';
import type {
  Delivery,
  OrderMessage,
  OrderQueue,
  OrderQueueProducer,
  PublishOutcome,
} from '../../src/ports/order-queue.ts';
import { Relay } from '../../src/workers/relay.ts';
import { journaled } from '../contract/memory-inventory.ts';
import { otherSku, requests, reserve, sku, stockOf } from '../contract/stock-samples.ts';
import { SeededRandom, World } from '../support/world.ts';

/**
 * A relay between an outbox and a broker that both fail, killed at every kind of place: what was
 * reserved is with the broker in the end, each SKU's in its order, and little is anywhere but there.
 */

/** What becomes of one publish: how many of the messages the broker keeps, and what the relay hears. */
type Publish =
  | { readonly kind: 'good' }
  /** The broker takes so many and refuses the rest for now. */
  | { readonly kind: 'full'; readonly takes: number }
  /** It took them; the answer is lost. */
  | { readonly kind: 'silent'; readonly takes: number }
  /** The relay's process ends here. */
  | { readonly kind: 'killed'; readonly takes: number };

type Step =
  | { readonly kind: 'reserve'; readonly count: number; readonly other: boolean }
  | { readonly kind: 'pass'; readonly publish: Publish; readonly trim: Trim }
  | { readonly kind: 'power_cut' }
  | { readonly kind: 'time'; readonly ms: number };

/** What becomes of the acknowledgement: also lost on its way there or back, or never said. */
type Trim = 'good' | 'lost' | 'unheard' | 'killed';

const visibilityMs = 5_000;
const batchMax = 7;

const takes = fc.nat({ max: batchMax });
const publish: fc.Arbitrary<Publish> = fc.oneof(
  { weight: 3, arbitrary: fc.constant({ kind: 'good' as const }) },
  ...(['full', 'silent', 'killed'] as const).map((kind) => ({
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant(kind), takes }),
  })),
);
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('reserve' as const),
      count: fc.integer({ min: 1, max: 6 }),
      other: fc.boolean(),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant('pass' as const),
      publish,
      trim: fc.constantFrom<Trim>('good', 'good', 'good', 'lost', 'unheard', 'killed'),
    }),
  },
  { weight: 1, arbitrary: fc.constant({ kind: 'power_cut' as const }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('time' as const),
      ms: fc.integer({ min: 1, max: visibilityMs }),
    }),
  },
);

interface Guards {
  /** Tells the relay that the broker has what it may not have. */
  readonly believesEverything?: boolean;
  /** Lets a new relay begin while its predecessor's messages are still out. */
  readonly beginsAtOnce?: boolean;
  /** Hands the relay what comes next although the broker has not taken what came before. */
  readonly givesBackLate?: boolean;
}

interface History {
  readonly reserved: readonly OrderMessage[];
  readonly stored: readonly OrderMessage[];
  readonly largest: number;
  readonly depthAtEnd: number;
}

async function play(steps: readonly Step[], guards: Guards = {}): Promise<History> {
  const world = new World();
  const inventory = await journaled(16 * 1024 * 1024);
  await inventory.store.preload(sku, stockOf(1_000));
  await inventory.store.preload(otherSku, stockOf(1_000));
  const stored: OrderMessage[] = [];
  let largest = 0;
  let nextPublish: Publish = { kind: 'good' };
  let nextTrim: Trim = 'good';

  /** Parts of one life of the process: after its end they neither do nor answer anything. */
  const live = (queue: MemoryOrderQueue) => {
    let alive = true;
    const forever = new Promise<never>(() => undefined);
    let killed: () => void = () => undefined;
    const death = new Promise<'killed'>((resolve) => {
      killed = () => {
        alive = false;
        resolve('killed');
      };
    });
    const broker: OrderQueueProducer = {
      publish: async (messages): Promise<readonly PublishOutcome[]> => {
        if (!alive) return forever;
        largest = Math.max(largest, messages.length);
        const now = nextPublish;
        nextPublish = { kind: 'good' };
        const taken = now.kind === 'good' ? messages.length : Math.min(now.takes, messages.length);
        stored.push(...messages.slice(0, taken));
        if (now.kind === 'killed') {
          killed();
          return forever;
        }
        const heard = now.kind === 'silent' ? 0 : taken;
        const error = new UnavailableError(now.kind);
        return messages.map((_, at) =>
          at < heard || guards.believesEverything === true
            ? { kind: 'stored' }
            : { kind: 'again', error },
        );
      },
    };
    const outbox: Pick<OrderQueue, 'receive' | 'acknowledge' | 'bury' | 'giveBack'> = {
      receive: (...asked) => (alive ? queue.receive(...asked) : forever),
      acknowledge: async (deliveries: readonly Delivery[]) => {
        if (!alive) return forever;
        const now = nextTrim;
        nextTrim = 'good';
        if (now === 'killed') {
          killed();
          return forever;
        }
        if (now !== 'lost') await queue.acknowledge(deliveries);
        if (now !== 'good') throw new UnavailableError(now);
      },
      bury: async () => {
        throw new Error('nothing is refused here');
      },
      giveBack: (deliveries) => (alive ? queue.giveBack(deliveries) : forever),
    };
    const relay = new Relay(
      {
        outbox,
        broker,
        clock: world,
        timers: world,
        random: new SeededRandom('relay'),
        leads: () => true,
      },
      {
        consumer: 'relay',
        outboxVisibilityMs: guards.beginsAtOnce === true ? 0 : visibilityMs,
        batchMax,
      },
    );
    return { relay, death, kill: () => killed() };
  };
  const openQueue = () =>
    new MemoryOrderQueue(inventory.store.engine, { clock: world, timers: world, visibilityMs });
  let queue = openQueue();
  let life = live(queue);
  const reserved: OrderMessage[] = [];

  const pass = async (): Promise<void> => {
    let relay = life.relay;
    if (guards.givesBackLate === true) {
      // A relay that keeps nothing: each pass is a new one, and what it had waits for its time.
      life = live(queue);
      relay = life.relay;
    }
    const ended = await Promise.race([relay.runOnce(0), life.death]);
    if (ended === 'killed') life = live(queue);
  };

  for (const each of steps) {
    if (each.kind === 'reserve') {
      const key = each.other ? otherSku : sku;
      const before = new Set((await inventory.messages()).map(({ messageId }) => messageId));
      await reserve(inventory.store, requests(each.count), key);
      const added = (await inventory.messages()).filter(({ messageId }) => !before.has(messageId));
      reserved.push(...added);
    } else if (each.kind === 'pass') {
      nextPublish = each.publish;
      nextTrim = each.trim;
      await pass();
    } else if (each.kind === 'time') await world.advance(each.ms);
    else {
      life.kill();
      await inventory.crash();
      queue = openQueue();
      life = live(queue);
    }
  }
  // The faults end; two visibility times bring back whatever was out.
  nextPublish = { kind: 'good' };
  nextTrim = 'good';
  for (let rounds = 0; rounds < 4; rounds += 1) {
    await pass();
    await world.advance(visibilityMs);
    for (let more = 0; more < 400; more += 1) await pass();
  }
  const { depth } = await queue.backlog(world.wallMs());
  return { reserved, stored, largest, depthAtEnd: depth };
}

/** What must hold, in words that a counterexample shows; empty when all does. */
function wrongs({ reserved, stored, largest, depthAtEnd }: History): string[] {
  const wrong: string[] = [];
  const has = new Set(stored.map(({ messageId }) => messageId));
  const lost = reserved.filter(({ messageId }) => !has.has(messageId));
  if (lost.length > 0) wrong.push(`lost: ${lost.map(({ messageId }) => messageId).join()}`);
  if (largest > batchMax) wrong.push(`published ${largest} at once`);
  if (depthAtEnd > 0) wrong.push(`${depthAtEnd} not trimmed`);
  for (const key of [sku, otherSku]) {
    const ids = (messages: readonly OrderMessage[]): string[] => [
      ...new Set(
        messages.filter(({ skuId }) => skuId === key.skuId).map(({ messageId }) => messageId),
      ),
    ];
    // Of a message that came twice, the first counts: the second changes nothing.
    if (ids(stored).join() !== ids(reserved).join())
      wrong.push(`order of ${key.skuId}: ${ids(stored).join()} for ${ids(reserved).join()}`);
  }
  return wrong;
}

const long = process.env['SLUICE_LONG'] === '1';
const steps = fc.array(step, { minLength: 1, maxLength: 25 });

test('whatever fails and whenever it dies: nothing lost, order kept, bounded, trimmed', async () => {
  await fc.assert(
    fc.asyncProperty(steps, async (history) => {
      expect(wrongs(await play(history))).toEqual([]);
    }),
    { numRuns: long ? 2_000 : 60 },
  );
});

const guards: readonly (readonly [string, Guards, RegExp])[] = [
  ['trims without the broker’s answer', { believesEverything: true }, /lost/],
  ['begins before its predecessor’s messages are back', { beginsAtOnce: true }, /order/],
  ['forgets what the broker did not take', { givesBackLate: true, beginsAtOnce: true }, /order/],
];
test.each(guards)('a relay that %s is noticed', async (_, off, complaint) => {
  const result = await fc.check(
    fc.asyncProperty(steps, async (history) => wrongs(await play(history, off)).length === 0),
    { numRuns: 500, seed: 7, endOnFailure: true },
  );
  expect(result.failed).toBe(true);
  const [history = []] = result.counterexample ?? [];
  expect(wrongs(await play(history, off)).join('\n')).toMatch(complaint);
});

test('a bounded run of the loop, in virtual time, keeps moving and stops clean', async () => {
  const world = new World();
  const inventory = await journaled(16 * 1024 * 1024);
  await inventory.store.preload(sku, stockOf(100));
  const outbox = new MemoryOrderQueue(inventory.store.engine, {
    clock: world,
    timers: world,
    visibilityMs,
  });
  let leads = true;
  let full = true;
  const stored: string[] = [];
  const events: string[] = [];
  const relay = new Relay(
    {
      outbox,
      broker: {
        publish: async (messages) =>
          messages.map(({ messageId }) => {
            if (full) return { kind: 'again', error: new UnavailableError('full') };
            if (messageId.endsWith('-too-large')) return { kind: 'refused', reason: 'too large' };
            stored.push(messageId);
            return { kind: 'stored' };
          }),
      },
      clock: world,
      timers: world,
      random: new SeededRandom('relay'),
      leads: () => leads,
      onEvent: (event) => events.push(event.kind),
    },
    { consumer: 'relay', outboxVisibilityMs: visibilityMs, batchMax },
  );
  const [large, ...wishes] = requests(10);
  await reserve(inventory.store, [{ ...large!, reservationId: 'one-too-large' }, ...wishes]);
  relay.start();
  await world.advance(visibilityMs - 1);
  expect(events).toEqual([]);
  await world.advance(10_000);
  expect(new Set(events)).toEqual(new Set(['blocked']));
  full = false;
  await world.advance(6_000);
  expect(stored).toEqual(wishes.map(({ reservationId }) => `1-${reservationId}`));
  expect((await outbox.buried(10)).map(({ reason }) => reason)).toEqual(['too large']);
  expect(await outbox.backlog(world.wallMs())).toMatchObject({ depth: 0, buried: 1 });
  // Whoever does not lead takes nothing and keeps nothing.
  full = true;
  await reserve(inventory.store, requests(3));
  await world.advance(2_000);
  leads = false;
  await world.advance(6_000);
  expect(await outbox.receive('other', 10, 0)).toHaveLength(3);
  const stopping = relay.stop();
  await world.advance(10_000);
  await stopping;
});

test('batches of nonsense are refused', () => {
  const parts = {} as ConstructorParameters<typeof Relay>[0];
  for (const size of [0, 1_001, 1.5])
    expect(
      () => new Relay(parts, { consumer: 'relay', outboxVisibilityMs: 0, batchMax: size }),
    ).toThrow(/allowed is 1 to 1000/);
});
