import type { Drill } from './drill.ts';
import { inMs } from './site.ts';
import { isAnswer } from './visitor.ts';

/** An instance dies with whatever it has: leases, connections, half a request. */
export const killGateway: Drill<{
  readonly replacedMs: number | undefined;
  readonly asked: number;
  readonly unanswered: number;
  readonly residual: number;
}> = {
  name: 'kill-gateway',
  about: 'a gateway is killed, with the leases that it holds',
  expected:
    'another takes its place within 20 s; the others answer meanwhile; the ledger closes; its unspent leases die with it',
  async observe(site) {
    const [victim] = site.gateways();
    if (victim === undefined || site.gateways().length < 2) {
      throw new RangeError(`${site.gateways().length} gateways behind the port; two are needed`);
    }
    const visitor = site.visitor();
    process.kill(victim, 'SIGKILL');
    let [asked, unanswered] = [0, 0];
    let replacedMs: number | undefined;
    const killedMs = site.nowMs();
    // Replaced sooner than that, too few have been asked to say anything.
    await site.within(20_000, async () => {
      asked += 1;
      const heard = await visitor.ask('GET', `/v1/activities/${site.parts.activityId}`);
      // In a rush, health may say "not now": that is an answer.
      if (!isAnswer(heard)) unanswered += 1;
      const now = site.gateways();
      if (now.length >= 2 && !now.includes(victim)) replacedMs ??= site.nowMs() - killedMs;
      return replacedMs !== undefined && asked >= 20;
    });
    await site.within(20_000, () => site.isReady());
    return { replacedMs, asked, unanswered, residual: await site.ledgerResidual() };
  },
  judge: ({ replacedMs, asked, unanswered, residual }) => ({
    holds: replacedMs !== undefined && unanswered * 2 <= asked && residual === 0,
    seen: `replaced after ${inMs(replacedMs)}; ${unanswered} of ${asked} requests meanwhile had no answer; ledger residual ${residual}`,
  }),
};

/** The leader stops, with the world in its hands. */
export const staleControl: Drill<{
  readonly polls: number;
  readonly wrong: number;
  readonly letIn: boolean;
  readonly backMs: number | undefined;
}> = {
  name: 'stale-control',
  about: 'the process that leads is frozen for eight seconds',
  expected:
    'people who wait hear of their place all the time, nobody is let in by guess, and all is as before within 20 s of its waking',
  async observe(site) {
    const waiting = await site.waiting();
    const control = site.pid('control');
    site.undo('waking control', () => process.kill(control, 'SIGCONT'));
    process.kill(control, 'SIGSTOP');
    // Whoever had been let in before it stopped is not what this is about.
    await site.sleep(4_000);
    const late = site.visitor();
    await late.signIn();
    await late.join(site.parts.activityId, site.parts.skuId);
    site.undo('leaving the room', () => late.leave(site.parts.activityId));
    let [polls, wrong, letIn] = [0, 0, false];
    const endMs = site.nowMs() + 4_000;
    while (site.nowMs() < endMs) {
      for (const visitor of [waiting, late]) {
        const heard = await visitor.standing(site.parts.activityId);
        polls += 1;
        if (!isAnswer(heard)) wrong += 1;
        if (visitor === late && heard.body['state'] === 'admitted') letIn = true;
      }
      await site.sleep(100);
    }
    process.kill(control, 'SIGCONT');
    return { polls, wrong, letIn, backMs: await site.msUntil(20_000, () => site.isReady()) };
  },
  judge: ({ polls, wrong, letIn, backMs }) => ({
    holds: polls > 0 && wrong === 0 && !letIn && backMs !== undefined,
    seen: `${polls - wrong} of ${polls} polls answered; ${letIn ? 'somebody was' : 'nobody'} let in without a leader; ready ${inMs(backMs)} after it woke`,
  }),
};
