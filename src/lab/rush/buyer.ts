import { question } from './dice.ts';
import { addRequest, isDecided, isLive } from './dossier.ts';
import type { Dossier, RequestTrace } from './dossier.ts';
import { stage, trait } from './population.ts';
import type { Reply } from './reply-parser.ts';
import { bodyOf, comeBackAfterMs, outcomeIn, textIn, thinkMs } from './scene.ts';
import type { CrowdCall, Scene, Task, Told } from './scene.ts';
import { triesMax } from './visitor.ts';
import type { Visitor } from './visitor.ts';
import { Witness } from './witness.ts';

/** Questions about one request without a deciding answer, after which a person stops asking. */
const questionsMax = 200;

/** How people with `duplicates` send their submit more than once. */
const duplicatePatterns = ['same_id', 'two_ids', 'two_devices', 'three'] as const;

/**
 * A person with a pass: submits, perhaps twice, perhaps without hearing the answer; follows the one
 * request that reserved; pays, cancels, or walks away.
 *
 * The trap is the person with several requests in the air. Whatever order the answers come in, the
 * person follows a request that reserved if there is one; only when every request has been answered,
 * and none reserved, does the last refusal count.
 */
export class Buyer {
  readonly #scene: Scene;
  readonly #visitor: Visitor;
  /** What a bot does with a pass beyond buying. */
  readonly #afterPass: (dossier: Dossier) => void;

  constructor(scene: Scene, visitor: Visitor, afterPass: (dossier: Dossier) => void) {
    this.#scene = scene;
    this.#visitor = visitor;
    this.#afterPass = afterPass;
  }

  /** A pass has been taken: a moment's thought, then the button. */
  begin(dossier: Dossier): void {
    const { people } = this.#scene;
    this.#afterPass(dossier);
    people.stage[dossier.person] = stage.submit;
    this.#scene.wake(dossier.person, thinkMs(this.#scene, dossier.person, 4));
  }

  wake(person: number): void {
    const scene = this.#scene;
    const dossier = this.#dossier(person);
    const request = dossier.requests[dossier.current];
    switch (scene.people.stage[person]) {
      case stage.submit:
        this.#press(dossier);
        return;
      case stage.queued:
        if (request !== undefined) this.ask(dossier, dossier.current);
        return;
      case stage.deciding:
        if (request?.orderId === undefined) this.ask(dossier, dossier.current);
        else this.#decide(dossier, request.orderId);
        return;
      case stage.paying:
        this.ask(dossier, dossier.current);
        return;
      default:
        throw new RangeError(`buyer woken in stage ${scene.people.stage[person]}`);
    }
  }

  task(task: Task): void {
    const { people } = this.#scene;
    if (task.kind === 'abandon') {
      if (task.call !== undefined && !task.call.settled) this.#giveUpOn(task.call);
      return;
    }
    const dossier = this.#scene.dossiers.get(task.person);
    if (dossier === undefined) return;
    if (task.kind === 'click') {
      const request = dossier.requests[task.detail];
      if (request !== undefined) this.#submit(dossier, task.detail, true);
    } else if (people.userToken(task.person) !== '') {
      // The second device takes its own pass; the answer submits with it.
      const text = this.#scene.writer.pass(task.person, dossier.skuId, 1);
      this.#scene.send('pass', task.person, task.detail, text);
    }
  }

  /** The second device's pass came, or did not. */
  secondPassReplied(call: CrowdCall, pass: { pass: string; nonce: string } | undefined): void {
    const dossier = this.#scene.dossiers.get(call.person);
    const request = dossier?.requests[call.detail];
    if (dossier === undefined || request === undefined) return;
    if (pass === undefined) {
      request.outstanding -= 1;
      request.state = 'REFUSED';
      this.#judge(dossier);
      return;
    }
    dossier.pass = pass.pass;
    dossier.nonce = pass.nonce;
    this.#submit(dossier, call.detail, true);
  }

  submitReplied(call: CrowdCall, reply: Reply): void {
    const scene = this.#scene;
    const dossier = this.#dossier(call.person);
    const request = dossier.requests[call.detail];
    if (request === undefined) return;
    request.outstanding -= 1;
    const wasLive = isLive(request.state);
    this.#listen(dossier, request, call, reply);
    // An answer that the network swallowed: the crowd's witness has read it, the person has not.
    if (
      scene.people.has(call.person, trait.timeouts) &&
      !scene.people.has(call.person, trait.lostOne) &&
      !wasLive
    ) {
      scene.people.set(call.person, trait.lostOne);
      if (scene.dice.roll(call.person, question.replyLost) < 0.5) {
        this.#sayAgain(dossier, call.detail);
        return;
      }
    }
    this.#judge(dossier);
  }

  statusReplied(call: CrowdCall, reply: Reply): void {
    const scene = this.#scene;
    const { people } = scene;
    const dossier = this.#dossier(call.person);
    const request = dossier.requests[call.detail];
    if (request === undefined) return;
    dossier.questions += 1;
    const told = this.#listen(dossier, request, call, reply);
    if (reply.status === 404) {
      // Nothing of that id: it never reserved, whatever was feared.
      if (request.toldQueued) {
        scene.witness.breach(12, `request ${request.id} was told QUEUED and then NOT_FOUND`);
      }
      request.uncertain = false;
      request.state = 'REFUSED';
    }
    // Nobody knows of it, and that is certain: also for whoever asks after the crowd has gone.
    if (dossier.lastCode === 'RESERVATION_LOST') request.uncertain = false;
    if (people.stage[call.person] === stage.done || dossier.current !== call.detail) return;
    if (told !== undefined && told.state !== 'UNKNOWN') {
      people.tries[call.person] = 0;
      this.#follow(dossier, request, told.nextPollAfterMs ?? 500);
      return;
    }
    if (dossier.questions > questionsMax) {
      people.settle(call.person, 'unknown');
      return;
    }
    if (reply.status === 404 || dossier.lastCode === 'RESERVATION_LOST') {
      // Another try with the same id, if the pass lives.
      this.#backToSubmit(dossier, 50);
      return;
    }
    people.tries[call.person] = Math.min(255, (people.tries[call.person] ?? 0) + 1);
    const hintMs = told?.nextPollAfterMs ?? comeBackAfterMs(scene, call.person, reply);
    scene.wake(call.person, Math.max(100, hintMs));
  }

  payReplied(call: CrowdCall, reply: Reply): void {
    const { people } = this.#scene;
    if (people.stage[call.person] === stage.done) return;
    const body = bodyOf(reply);
    if (textIn(body, 'state') === 'PAID' && reply.status === 200) people.tries[call.person] = 0;
    if (reply.status === 429 || reply.status === 503) {
      people.tries[call.person] = Math.min(255, (people.tries[call.person] ?? 0) + 1);
      if ((people.tries[call.person] ?? 0) <= triesMax) {
        people.stage[call.person] = stage.deciding;
        this.#scene.wake(call.person, comeBackAfterMs(this.#scene, call.person, reply));
        return;
      }
    }
    // Whatever the answer was, the request's status is what counts.
    people.stage[call.person] = stage.paying;
    this.#scene.wake(call.person, 150);
  }

  failed(call: CrowdCall): void {
    const { people } = this.#scene;
    const dossier = this.#dossier(call.person);
    const request = dossier.requests[call.detail];
    people.tries[call.person] = Math.min(255, (people.tries[call.person] ?? 0) + 1);
    if (call.kind === 'submit' && request !== undefined) {
      request.outstanding -= 1;
      if (!isLive(request.state)) request.uncertain = true;
      this.#judge(dossier);
      return;
    }
    if (people.stage[call.person] === stage.done) return;
    // Nobody knows whether it arrived: pressing again pays once, and not pressing perhaps never.
    if (call.kind === 'pay') people.stage[call.person] = stage.deciding;
    if ((people.tries[call.person] ?? 0) > triesMax * 2) people.settle(call.person, 'unknown');
    else this.#scene.wake(call.person, comeBackAfterMs(this.#scene, call.person, undefined));
  }

  /** The button: the first submit, and whatever this person sends beside it. */
  #press(dossier: Dossier): void {
    const scene = this.#scene;
    const { person } = dossier;
    if (scene.now() >= dossier.passExpiresMs) {
      this.#visitor.wait(person, 100);
      return;
    }
    const first = dossier.requests.length === 0;
    if (first || this.#needsNewId(dossier)) {
      addRequest(dossier, scene.seed, 1, 0);
      dossier.current = dossier.requests.length - 1;
    }
    const main = dossier.current;
    this.#submit(dossier, main, false);
    if (!first || !scene.people.has(person, trait.duplicates)) return;
    const at = scene.dice.below(person, question.duplicatePattern, duplicatePatterns.length);
    const pattern = duplicatePatterns[at];
    const click = (index: number, afterMs: number): void => {
      const request = dossier.requests[index];
      if (request !== undefined) request.outstanding += 1;
      scene.later(afterMs, { kind: 'click', person, detail: index });
    };
    if (pattern === 'same_id' || pattern === 'three') click(main, 5);
    if (pattern === 'two_ids' || pattern === 'three') {
      addRequest(dossier, scene.seed, 1, 1);
      click(dossier.requests.length - 1, pattern === 'three' ? 9 : 5);
    }
    if (pattern === 'two_devices') {
      const second = addRequest(dossier, scene.seed, 1, 1);
      second.outstanding += 1;
      const detail = dossier.requests.length - 1;
      scene.later(1, { kind: 'second_pass', person, detail });
    }
  }

  #submit(dossier: Dossier, index: number, counted: boolean): void {
    const scene = this.#scene;
    const { person } = dossier;
    const request = dossier.requests[index];
    if (request === undefined) return;
    if (request.nonce !== '' && request.nonce !== dossier.nonce) request.nonceUnsure = true;
    request.nonce = dossier.nonce;
    if (!counted) request.outstanding += 1;
    if (request.reservationId !== undefined) scene.witness.retries += 1;
    const text = scene.writer.submit(person, {
      path: dossier.submitPath,
      requestId: request.id,
      skuId: dossier.skuId,
      quantity: request.quantity,
      pass: dossier.pass,
      device: request.device,
    });
    const call = scene.send('submit', person, index, text);
    const { people } = scene;
    if (
      people.has(person, trait.timeouts) &&
      !people.has(person, trait.lostOne) &&
      scene.dice.roll(person, question.replyLost) >= 0.5
    ) {
      people.set(person, trait.lostOne);
      const afterMs = scene.dice.between(person, question.timeoutAfter, 0, 30);
      scene.later(afterMs, { kind: 'abandon', person, detail: index, call });
    }
  }

  /** The client's own timeout: the answer will never be read; the same id asks again. */
  #giveUpOn(call: CrowdCall): void {
    this.#scene.abandon(call);
    const dossier = this.#dossier(call.person);
    const request = dossier.requests[call.detail];
    if (request === undefined) return;
    request.outstanding -= 1;
    request.uncertain = true;
    this.#sayAgain(dossier, call.detail);
  }

  #sayAgain(dossier: Dossier, index: number): void {
    const request = dossier.requests[index];
    if (request === undefined) return;
    request.outstanding += 1;
    const afterMs = 200 + this.#scene.dice.between(dossier.person, question.timeoutAfter, 0, 600);
    this.#scene.later(afterMs, { kind: 'click', person: dossier.person, detail: index });
  }

  /** Reads an answer about a request; returns the outcome, if it was one. */
  #listen(
    dossier: Dossier,
    request: RequestTrace,
    call: CrowdCall,
    reply: Reply,
  ): Told | undefined {
    const { witness } = this.#scene;
    const body = bodyOf(reply);
    const code = textIn(body, 'code');
    const told = outcomeIn(body);
    if (told !== undefined && reply.status < 400) {
      if (told.state === 'SOLD_OUT' || told.state === 'REJECTED') {
        witness.denied(request, told.state, call.sentMs, this.#scene.now());
      } else witness.told(dossier, request, told, call.sentMs, this.#scene.now());
      dossier.lastCode = code;
      this.#questionAll(dossier);
      return told;
    }
    dossier.lastCode = code === '' ? `HTTP ${reply.status}` : code;
    dossier.retryAfterMs = comeBackAfterMs(this.#scene, dossier.person, reply);
    if (code === 'RESERVATION_LOST') witness.lost(request);
    else if (code === 'DEPENDENCY_UNAVAILABLE') request.uncertain = true;
    else if (call.kind === 'submit' && request.state === 'NONE' && !request.uncertain) {
      request.state = 'REFUSED';
    }
    return undefined;
  }

  /** Two requests that look alive: ask about both, so that the witness can be certain. */
  #questionAll(dossier: Dossier): void {
    if (!Witness.suspicious(dossier)) return;
    dossier.requests.forEach((request, index) => {
      if (isLive(request.state) && request.liveFromMs >= request.liveToMs) this.ask(dossier, index);
    });
  }

  /** Asks what became of one of a person's requests. */
  ask(dossier: Dossier, index: number): void {
    const request = dossier.requests[index];
    if (request === undefined) return;
    const text = this.#scene.writer.status(dossier.person, request.id, dossier.skuId);
    this.#scene.send('status', dossier.person, index, text);
  }

  /** After an answer to a submit: follow what reserved, or wait for the rest, or take the refusal. */
  #judge(dossier: Dossier): void {
    const { people } = this.#scene;
    const { person } = dossier;
    if (people.stage[person] !== stage.submit) return;
    const live = dossier.requests.findIndex((request) => isLive(request.state));
    if (live >= 0) {
      dossier.current = live;
      people.tries[person] = 0;
      const request = dossier.requests[live];
      if (request !== undefined) this.#follow(dossier, request, 500);
      return;
    }
    if (dossier.requests.some((request) => request.outstanding > 0)) return;
    const uncertain = dossier.requests.findIndex((request) => request.uncertain);
    if (uncertain >= 0) {
      dossier.current = uncertain;
      people.stage[person] = stage.queued;
      this.#scene.wake(person, thinkMs(this.#scene, person, 5));
      return;
    }
    this.#refused(dossier);
  }

  #refused(dossier: Dossier): void {
    const { people } = this.#scene;
    const { person } = dossier;
    people.tries[person] = Math.min(255, (people.tries[person] ?? 0) + 1);
    const sold = dossier.requests.some((request) => request.state === 'SOLD_OUT');
    if (sold) {
      this.#visitor.toldSoldOut(person, 1_000);
      return;
    }
    switch (dossier.lastCode) {
      case 'TOKEN_EXPIRED':
      case 'NOT_ADMITTED':
        this.#visitor.wait(person, dossier.retryAfterMs);
        return;
      case 'RATE_LIMITED':
      case 'SYSTEM_OVERLOADED':
      case 'NOT_OPEN':
      case 'RESERVATION_LOST':
      case 'DEPENDENCY_UNAVAILABLE':
        this.#backToSubmit(dossier, dossier.retryAfterMs);
        return;
      case 'ALREADY_PURCHASED':
      case 'REPLAY_REJECTED':
        // One of this person's own ids stands in the way: ask about each in turn.
        dossier.current = (dossier.current + 1) % dossier.requests.length;
        if ((people.tries[person] ?? 0) <= dossier.requests.length) {
          people.stage[person] = stage.queued;
          this.#scene.wake(person, 100);
          return;
        }
        people.settle(person, 'rejected');
        return;
      default:
        people.settle(person, 'rejected');
    }
  }

  #backToSubmit(dossier: Dossier, afterMs: number): void {
    const { people } = this.#scene;
    const { person } = dossier;
    if ((people.tries[person] ?? 0) > triesMax) {
      people.settle(person, 'rejected');
      return;
    }
    people.stage[person] = stage.submit;
    this.#scene.wake(person, afterMs);
  }

  /** An id that has ended (expired, cancelled, refused for good) is never used for another intention. */
  #needsNewId(dossier: Dossier): boolean {
    const state = dossier.requests[dossier.current]?.state;
    return state !== undefined && isDecided(state) && state !== 'REFUSED' && state !== 'SOLD_OUT';
  }

  /** The request's state says what the person does next. */
  #follow(dossier: Dossier, request: RequestTrace, nextPollMs: number): void {
    const { people } = this.#scene;
    const { person } = dossier;
    switch (request.state) {
      case 'QUEUED':
        people.stage[person] = stage.queued;
        this.#scene.wake(person, Math.min(10_000, Math.max(50, nextPollMs)));
        return;
      case 'ORDERED':
        if (people.has(person, trait.abandons)) people.settle(person, 'ordered');
        else if (people.stage[person] === stage.paying) this.#scene.wake(person, 400);
        else {
          people.stage[person] = stage.deciding;
          this.#scene.wake(person, thinkMs(this.#scene, person, 6, 400));
        }
        return;
      case 'PAID':
        people.settle(person, 'paid');
        return;
      case 'EXPIRED':
        people.settle(person, 'expired');
        return;
      case 'CANCELLED':
      case 'REFUNDED':
        people.settle(person, 'cancelled');
        return;
      case 'SOLD_OUT':
        this.#visitor.toldSoldOut(person, 1_000);
        return;
      default:
        people.settle(person, 'rejected');
    }
  }

  #decide(dossier: Dossier, orderId: string): void {
    const { people, writer } = this.#scene;
    const { person } = dossier;
    people.stage[person] = stage.paying;
    if (people.has(person, trait.cancels)) {
      const request = dossier.requests[dossier.current];
      if (request !== undefined) request.cancelAsked = true;
      this.#scene.send('cancel', person, dossier.current, writer.cancel(person, orderId));
    } else this.#scene.send('pay', person, dossier.current, writer.pay(person, orderId));
  }

  #dossier(person: number): Dossier {
    const dossier = this.#scene.dossiers.get(person);
    if (dossier === undefined) throw new RangeError(`person ${person} has no dossier`);
    return dossier;
  }
}
