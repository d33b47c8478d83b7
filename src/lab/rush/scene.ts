import { passLifeDefaultMs } from '../../core/bounds.ts';
import type { OutcomeState } from '../../wire/codes.ts';
import { outcomeStates } from '../../wire/schemas.ts';
import type { Standing } from '../../wire/standing.ts';
import type { Dice } from './dice.ts';
import { question } from './dice.ts';
import type { Dossier } from './dossier.ts';
import type { Call } from './http-pool.ts';
import type { Population } from './population.ts';
import { headerOf } from './reply-parser.ts';
import type { Reply } from './reply-parser.ts';
import type { CallKind, RequestWriter } from './requests.ts';
import type { Scenario } from './scenarios.ts';
import type { Series } from './series.ts';
import type { Witness } from './witness.ts';

export type CrowdCall = Call<CallKind>;

/** Something a person does beside their one wake-up: a second click, a second device, giving up. */
export interface Task {
  readonly kind: 'click' | 'second_pass' | 'abandon' | 'attack';
  readonly person: number;
  /** Index of the request, or the number of the attack. */
  readonly detail: number;
  readonly call?: CrowdCall;
}

/** A pass that a bot has put up for others to try. */
export interface StolenPass {
  readonly pass: string;
  readonly nonce: string;
  readonly submitPath: string;
  readonly person: number;
  readonly skuId: string;
}

/** What the behaviours of people and bots act on. */
export interface Scene {
  readonly people: Population;
  readonly dice: Dice;
  readonly seed: number;
  readonly scenario: Scenario;
  readonly witness: Witness;
  readonly series: Series;
  readonly writer: RequestWriter;
  readonly dossiers: Map<number, Dossier>;
  /** Passes that bots share; the newest 64. */
  readonly stolen: StolenPass[];
  /** The sale is over, or the run's time is: nobody starts anything new. */
  readonly closing: boolean;
  skuOf(person: number): string;
  /** Monotonic, ms. */
  now(): number;
  send(kind: CallKind, person: number, detail: number, text: string): CrowdCall;
  abandon(call: CrowdCall): void;
  wake(person: number, afterMs: number): void;
  later(afterMs: number, task: Task): void;
}

export type Body = Readonly<Record<string, unknown>>;

/** The JSON object in a reply; an empty one when there is none, which no check then accepts. */
export function bodyOf(reply: Reply): Body {
  if (!reply.body.startsWith('{')) return {};
  try {
    return JSON.parse(reply.body) as Body;
  } catch {
    return {};
  }
}

export function textIn(body: Body, name: string): string {
  const value = body[name];
  return typeof value === 'string' ? value : '';
}

export function standingIn(body: Body): Standing | undefined {
  const inner = body['standing'];
  const candidate = (typeof inner === 'object' && inner !== null ? inner : body) as Body;
  if (textIn(candidate, 'state') === '' || typeof candidate['next_poll_after_ms'] !== 'number') {
    return undefined;
  }
  return candidate as unknown as Standing;
}

/** What the crowd reads of an outcome. */
export interface Told {
  readonly state: OutcomeState;
  readonly code: string;
  readonly reservationId: string | undefined;
  readonly orderId: string | undefined;
  readonly payBefore: string | undefined;
  readonly nextPollAfterMs: number | undefined;
}

/** The outcome in a body; undefined for anything else, a problem included. */
export function outcomeIn(body: Body): Told | undefined {
  const state = outcomeStates.find((known) => known === body['state']);
  if (state === undefined || textIn(body, 'activity_id') === '') return undefined;
  const nextPoll = body['next_poll_after_ms'];
  return {
    state,
    code: textIn(body, 'code'),
    reservationId: textIn(body, 'reservation_id') || undefined,
    orderId: textIn(body, 'order_id') || undefined,
    payBefore: textIn(body, 'pay_before') || undefined,
    nextPollAfterMs: typeof nextPoll === 'number' ? nextPoll : undefined,
  };
}

export interface TakenPass {
  readonly pass: string;
  readonly nonce: string;
  readonly submitPath: string;
  /** How long it lives from when it was first given, ms. */
  readonly lifeMs: number;
}

export function passIn(body: Body): TakenPass | undefined {
  const pass = textIn(body, 'pass');
  const submitPath = textIn(body, 'submit_path');
  if (pass === '' || !submitPath.startsWith('/')) return undefined;
  const lifeMs = Date.parse(textIn(body, 'expires_at')) - Date.parse(textIn(body, 'not_before'));
  return {
    pass,
    nonce: textIn(body, 'nonce'),
    submitPath,
    lifeMs: Number.isFinite(lifeMs) ? lifeMs : passLifeDefaultMs,
  };
}

/**
 * When a person comes back after an answer that did not help them, ms. What the server said counts
 * for those who listen; others come back at their own pace.
 */
export function comeBackAfterMs(scene: Scene, person: number, reply: Reply | undefined): number {
  const tries = Math.min(scene.people.tries[person] ?? 0, 10);
  const salt = question.backoff + tries;
  if (scene.people.kind(person) === 'ignorer') return 60;
  if (scene.scenario.retry === 'fixed_100ms') return 100;
  if (scene.scenario.retry === 'full_jitter') {
    return scene.dice.between(person, salt, 10, Math.min(10_000, 200 * 2 ** tries));
  }
  const own = Math.min(10_000, 250 * 2 ** tries);
  let told = Number.NaN;
  if (reply !== undefined) {
    const inBody = bodyOf(reply)['retry_after_ms'];
    const inHead = headerOf(reply.head, 'retry-after');
    if (typeof inBody === 'number') told = inBody;
    else if (inHead !== undefined) told = Number(inHead) * 1000;
  }
  const base = Number.isFinite(told) && told >= 0 ? Math.min(told, 60_000) : own;
  return base + scene.dice.between(person, salt, 0, Math.max(50, base * 0.3));
}

/** A phone's uplink and a thumb: a third of a second, mostly less, sometimes more. */
export function thinkMs(scene: Scene, person: number, step: number, meanMs = 200): number {
  return Math.min(meanMs * 6, 20 + scene.dice.exponential(person, question.think + step, meanMs));
}
