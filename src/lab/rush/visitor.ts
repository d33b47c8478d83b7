import { answerWork } from './proof-of-work.ts';
import type { Standing } from '../../wire/standing.ts';
import { question } from './dice.ts';
import { newDossier } from './dossier.ts';
import type { Dossier } from './dossier.ts';
import type { FailureReason } from './http-pool.ts';
import { stage, trait } from './population.ts';
import type { Reply } from './reply-parser.ts';
import { bodyOf, comeBackAfterMs, passIn, standingIn, textIn, thinkMs } from './scene.ts';
import type { Body, CrowdCall, Scene } from './scene.ts';

/** Refusals and failures in a row after which a person gives up for good. */
export const triesMax = 40;

/** Challenges answered one after the other before a person pauses, as after any other refusal. */
const worksMax = 3;

/** Polls of a bot that ignores what it is told, before it tires. */
const ignorerPollsMax = 60;

/**
 * A person on the way from the front door to a pass.
 *
 *     planned → session → joining → waiting ⇄ pass → (Buyer)
 *
 * One wake-up or one request in flight at any time; what happens beside it (second clicks, second
 * devices) belongs to the Buyer.
 */
export class Visitor {
  readonly #scene: Scene;
  /** Takes over once a pass is there. */
  readonly #toBuy: (dossier: Dossier) => void;

  constructor(scene: Scene, toBuy: (dossier: Dossier) => void) {
    this.#scene = scene;
    this.#toBuy = toBuy;
  }

  /** The wake-up of someone who is not yet buying. */
  wake(person: number): void {
    const scene = this.#scene;
    const { people, writer } = scene;
    if (this.#losesPatience(person)) return;
    switch (people.stage[person]) {
      case stage.planned:
      case stage.session:
        people.stage[person] = stage.session;
        scene.send('session', person, 0, writer.session(person));
        return;
      case stage.joining:
        scene.send('join', person, 0, writer.join(person, scene.skuOf(person)));
        return;
      case stage.waiting:
        people.used[person] = Math.min(60_000, (people.used[person] ?? 0) + 1);
        scene.send('poll', person, 0, writer.poll(person));
        return;
      case stage.pass:
        scene.send('pass', person, 0, writer.pass(person, scene.skuOf(person), 0));
        return;
      default:
        throw new RangeError(`visitor woken in stage ${people.stage[person]}`);
    }
  }

  replied(call: CrowdCall, reply: Reply): void {
    const { person } = call;
    const body = bodyOf(reply);
    switch (call.kind) {
      case 'session':
        this.#sessionReplied(person, reply, body);
        return;
      case 'join':
        this.#joinReplied(person, reply, body);
        return;
      case 'poll':
        this.#pollReplied(person, reply, body);
        return;
      default:
        this.#passReplied(person, reply, body);
    }
  }

  /** No answer: the same again, later. All of these requests may be repeated. */
  failed(call: CrowdCall, reason: FailureReason): void {
    this.#again(call.person, undefined, reason);
  }

  /** Back into the room: to ask how one stands, after `afterMs`. */
  wait(person: number, afterMs: number): void {
    this.#scene.people.stage[person] = stage.waiting;
    this.#scene.wake(person, afterMs);
  }

  /** Told that it is sold out: some stay, in case units return. */
  toldSoldOut(person: number, nextPollMs: number): void {
    const { people, dice } = this.#scene;
    if (!people.has(person, trait.toldSoldOut)) {
      people.set(person, trait.toldSoldOut);
      if (people.has(person, trait.hopeful)) {
        const untilMs = this.#scene.now() + dice.between(person, question.patience, 2_000, 12_000);
        people.quitAtMs[person] = Math.min(people.quitAtMs[person] ?? untilMs, untilMs);
      }
    }
    if (people.has(person, trait.hopeful) && !this.#scene.closing) this.wait(person, nextPollMs);
    else {
      this.#sayGoodbye(person);
      people.settle(person, 'sold_out');
    }
  }

  /** Half of those who go say so; the other half just close the page. */
  #sayGoodbye(person: number): void {
    const { people, dice, writer } = this.#scene;
    if (people.userToken(person) === '' || this.#scene.closing) return;
    if (dice.roll(person, question.leavesPolitely) >= 0.5) return;
    this.#scene.send('leave', person, 0, writer.leave(person));
  }

  stand(person: number, standing: Standing): void {
    const { people, witness } = this.#scene;
    people.tries[person] = 0;
    const pollMs = this.#paceMs(person, standing.next_poll_after_ms);
    switch (standing.state) {
      case 'waiting':
        // Nothing left now, though some may come back: to most people that is sold out.
        if (standing.sell_through === 'gone_for_now') this.toldSoldOut(person, pollMs);
        else this.wait(person, pollMs);
        return;
      case 'admitted':
      case 'claimed':
        if (!people.has(person, trait.admitted)) {
          people.set(person, trait.admitted);
          this.#scene.series.add('admitted', this.#scene.now());
          if (standing.claim_before !== null) witness.released(standing.claim_before);
        }
        people.stage[person] = stage.pass;
        this.#scene.wake(person, thinkMs(this.#scene, person, 1));
        return;
      case 'missed':
      case 'left':
        this.#joinAgainOnce(person);
        return;
      case 'not_drawn':
        people.settle(person, 'not_admitted');
        return;
      case 'sold_out':
        this.toldSoldOut(person, pollMs);
        return;
      case 'closed':
        people.settle(person, people.has(person, trait.toldSoldOut) ? 'sold_out' : 'not_admitted');
        return;
      default:
        people.settle(person, 'unknown');
    }
  }

  #sessionReplied(person: number, reply: Reply, body: Body): void {
    const { people } = this.#scene;
    const token = textIn(body, 'token');
    if ((reply.status === 200 || reply.status === 201) && token !== '') {
      people.keepUserToken(person, token);
      people.tries[person] = 0;
      people.stage[person] = stage.joining;
      this.#scene.wake(person, thinkMs(this.#scene, person, 2, 60));
    } else this.#again(person, reply, 'refused');
  }

  #joinReplied(person: number, reply: Reply, body: Body): void {
    const standing = standingIn(body);
    if ((reply.status === 200 || reply.status === 201) && standing !== undefined) {
      this.#scene.people.keepEntryToken(person, textIn(body, 'entry_token'));
      this.stand(person, standing);
    } else if (textIn(body, 'code') === 'CHALLENGE_REQUIRED') this.#doWork(person, reply, body);
    else this.#again(person, reply, 'refused');
  }

  /** What a page does by itself. Whatever else is asked, or more of it, nobody of this crowd can do. */
  #doWork(person: number, reply: Reply, body: Body): void {
    const { people, writer } = this.#scene;
    const answer = answerWork(body);
    if (answer === undefined) {
      people.settle(person, 'rejected');
      return;
    }
    people.tries[person] = Math.min(255, (people.tries[person] ?? 0) + 1);
    if ((people.tries[person] ?? 0) > worksMax) this.#again(person, reply, 'refused');
    else
      this.#scene.send('join', person, 0, writer.join(person, this.#scene.skuOf(person), answer));
  }

  #pollReplied(person: number, reply: Reply, body: Body): void {
    const standing = standingIn(body);
    if (reply.status === 200 && standing !== undefined) this.stand(person, standing);
    else if (reply.status === 404) this.#joinAgainOnce(person);
    else this.#again(person, reply, 'refused');
  }

  #passReplied(person: number, reply: Reply, body: Body): void {
    const scene = this.#scene;
    const pass = passIn(body);
    if (reply.status === 200 && pass !== undefined) {
      scene.people.tries[person] = 0;
      let dossier = scene.dossiers.get(person);
      if (dossier === undefined) {
        dossier = newDossier(person, scene.skuOf(person));
        scene.dossiers.set(person, dossier);
      }
      dossier.pass = pass.pass;
      dossier.nonce = pass.nonce;
      dossier.submitPath = pass.submitPath;
      dossier.passExpiresMs = scene.now() + pass.lifeMs;
      dossier.passes += 1;
      this.#toBuy(dossier);
      return;
    }
    const standing = standingIn(body);
    const code = textIn(body, 'code');
    if (code === 'NOT_ADMITTED' && standing !== undefined) {
      // Asked too early or too late: what the standing says decides, but "admitted" would ask again
      // at once, so it waits a little.
      if (standing.state === 'admitted' || standing.state === 'claimed') {
        this.#again(person, reply, 'refused');
      } else this.stand(person, standing);
    } else if (code === 'NOT_ADMITTED') {
      this.wait(person, comeBackAfterMs(scene, person, reply));
    } else if (code === 'SECKILL_SOLD_OUT') {
      this.toldSoldOut(person, 1_000);
    } else this.#again(person, reply, 'refused');
  }

  /** The same step again, later; or never, when the answer says stop or patience is out. */
  #again(person: number, reply: Reply | undefined, why: FailureReason | 'refused'): void {
    const { people } = this.#scene;
    people.tries[person] = Math.min(255, (people.tries[person] ?? 0) + 1);
    const body = reply === undefined ? {} : bodyOf(reply);
    const next = textIn(body, 'next_action');
    const code = textIn(body, 'code');
    if (code === 'NOT_OPEN' && next === 'STOP') {
      people.settle(person, people.has(person, trait.toldSoldOut) ? 'sold_out' : 'not_admitted');
      return;
    }
    if (reply !== undefined && reply.status < 500 && next === 'STOP') {
      people.settle(person, 'rejected');
      return;
    }
    if (reply?.status === 401) {
      if (people.userToken(person) !== '' && (people.tries[person] ?? 0) > 2) {
        people.settle(person, 'rejected');
        return;
      }
      people.stage[person] = stage.session;
    }
    if ((people.tries[person] ?? 0) > triesMax) {
      people.settle(person, why === 'refused' ? 'rejected' : 'gave_up');
      return;
    }
    this.#scene.wake(person, comeBackAfterMs(this.#scene, person, reply));
  }

  #joinAgainOnce(person: number): void {
    const { people } = this.#scene;
    if (people.has(person, trait.rejoined) || this.#scene.closing) {
      people.settle(person, people.has(person, trait.toldSoldOut) ? 'sold_out' : 'not_admitted');
      return;
    }
    people.set(person, trait.rejoined);
    people.traits[person] = (people.traits[person] ?? 0) & ~trait.admitted;
    people.stage[person] = stage.joining;
    this.#scene.wake(person, thinkMs(this.#scene, person, 3));
  }

  #losesPatience(person: number): boolean {
    const scene = this.#scene;
    const { people } = scene;
    const tired = people.kind(person) === 'ignorer' && (people.used[person] ?? 0) > ignorerPollsMax;
    if (!tired && scene.now() < (people.quitAtMs[person] ?? Number.POSITIVE_INFINITY)) return false;
    const told = people.has(person, trait.toldSoldOut);
    this.#sayGoodbye(person);
    people.settle(person, told ? 'sold_out' : 'gave_up');
    return true;
  }

  /** How soon they ask again: as told, but for bots that do not listen. */
  #paceMs(person: number, toldMs: number): number {
    const kind = this.#scene.people.kind(person);
    if (kind === 'ignorer') return 120;
    if (kind === 'farm') return Math.max(100, toldMs / 2);
    return Math.min(60_000, Math.max(100, toldMs));
  }
}
