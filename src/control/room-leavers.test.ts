import { expect, test, vi } from 'vitest';
import { RoomWorld } from '../../test/support/room.ts';
import { SeededRandom } from '../../test/support/world.ts';
import { Hazards } from '../core/room/hazards.ts';

/**
 * People who were let in and closed the page without a word, while units come back and others wait:
 * how long a returned unit lies there. The windows are long (a minute), the buyers quick.
 */
async function soldOutWithReturns(
  seed: string,
): Promise<{ idleMs: number; admitted: number; unsold: number }> {
  const random = new SeededRandom(seed);
  const w = await RoomWorld.started({
    seed,
    stock: 30,
    room: { claimWindowMs: 60_000, maxActive: 200 },
  });
  const tokens = await w.joinMany('p', 150);
  await w.open();
  const capBroken: string[] = [];
  const met = new Set<string>();
  const acting: { readonly name: string; readonly atMs: number }[] = [];
  const openedMs = w.world.wallMs();
  let returns = 0;
  let idleMs = 0;
  let admitted = 0;
  for (let t = 0; t < 150_000; t += 500) {
    await w.run(500);
    const nowMs = w.world.wallMs();
    for (const [name, token] of tokens) {
      if (met.has(name) || w.standing(token).state !== 'admitted') continue;
      met.add(name);
      admitted += 1;
      // A fifth have gone without a word; the others take a few seconds.
      if (random.float() >= 0.2) acting.push({ name, atMs: nowMs + 500 + random.float() * 4_000 });
    }
    for (const act of acting.filter(({ atMs }) => atMs <= nowMs)) {
      acting.splice(acting.indexOf(act), 1);
      await w.buy(act.name);
    }
    if (w.state.counts.active > 200) capBroken.push(`${nowMs}: ${w.state.counts.active}`);
    // Unpaid units come back, two at a time.
    const since = nowMs - openedMs;
    if (since % 20_000 === 0 && returns < 6) {
      returns += 1;
      w.setStock('front', w.availableOf('front') + 2);
    }
    if (since >= 20_000 && w.availableOf('front') > 0) idleMs += 500;
  }
  expect(capBroken).toEqual([]);
  expect(returns).toBe(6);
  return { idleMs, admitted, unsold: w.availableOf('front') };
}

test('units that come back find somebody within seconds, behind people who left without a word', async () => {
  const learnt = await soldOutWithReturns('leavers');
  vi.spyOn(Hazards.prototype, 'chanceFrom').mockReturnValue(0.9);
  const counted = await soldOutWithReturns('leavers');
  vi.restoreAllMocks();
  expect(learnt.unsold).toBe(0);
  // Six returns; each takes a turn of control, a buyer's few seconds, and now and then another leaver.
  expect(learnt.idleMs / 6).toBeLessThan(12_000);
  // With everybody counted in full it takes until windows end.
  expect(counted.idleMs).toBeGreaterThan(learnt.idleMs * 1.5);
  // Nobody is let in by the dozen for it.
  expect(learnt.admitted).toBeLessThan(counted.admitted + 40);
});
