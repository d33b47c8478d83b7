import type { OutcomeState } from '../../wire/codes.ts';

/** One request id of a person, and everything they were told about it. */
export interface RequestTrace {
  readonly id: string;
  readonly quantity: number;
  readonly device: number;
  /** The nonce of the pass that it was last sent with. */
  nonce: string;
  /** It was sent with more than one pass: under which of them it reserved cannot be told from outside. */
  nonceUnsure: boolean;
  /** `NONE`: nothing told yet. `REFUSED`: told that it did not reserve. */
  state: OutcomeState | 'NONE' | 'REFUSED';
  reservationId: string | undefined;
  orderId: string | undefined;
  payBeforeMs: number;
  toldQueued: boolean;
  /** Its person has asked to cancel: from then on it may be gone at any moment. */
  cancelAsked: boolean;
  /** An answer to it was lost or never came: it may have reserved. */
  uncertain: boolean;
  /** Submits of this id in flight or about to be sent. */
  outstanding: number;
  /** When the newest answer that counts was read, monotonic ms. */
  asOfMs: number;
  /** It was surely live from here … */
  liveFromMs: number;
  /** … to here, monotonic ms; NaN before it was seen alive. */
  liveToMs: number;
}

/** What a person who came as far as a pass carries; bounded by the number of passes given. */
export interface Dossier {
  readonly person: number;
  readonly skuId: string;
  pass: string;
  nonce: string;
  submitPath: string;
  passExpiresMs: number;
  /** The first pass that was taken: a bot may try it again when it has long been used. */
  firstPass:
    | { readonly pass: string; readonly nonce: string; readonly submitPath: string }
    | undefined;
  /** How often a pass was taken. */
  passes: number;
  readonly requests: RequestTrace[];
  /** The request whose fate the person follows; -1 before the first. */
  current: number;
  /** The last answer to a submit that did not reserve: code and when to come back. */
  lastCode: string;
  retryAfterMs: number;
  /** Status questions asked in a row without an answer that decides. */
  questions: number;
}

export function newDossier(person: number, skuId: string): Dossier {
  return {
    person,
    skuId,
    pass: '',
    nonce: '',
    submitPath: '',
    passExpiresMs: 0,
    firstPass: undefined,
    passes: 0,
    requests: [],
    current: -1,
    lastCode: '',
    retryAfterMs: 0,
    questions: 0,
  };
}

/** A new request id of a person, unique in the run and between runs of different seeds. */
export function addRequest(
  dossier: Dossier,
  seed: number,
  quantity: number,
  device: number,
): RequestTrace {
  const trace: RequestTrace = {
    id: `rush-${seed.toString(36)}-${dossier.person.toString(36)}-${dossier.requests.length}`,
    quantity,
    device,
    nonce: '',
    nonceUnsure: false,
    state: 'NONE',
    reservationId: undefined,
    orderId: undefined,
    payBeforeMs: Number.NaN,
    toldQueued: false,
    cancelAsked: false,
    uncertain: false,
    outstanding: 0,
    asOfMs: 0,
    liveFromMs: Number.NaN,
    liveToMs: Number.NaN,
  };
  dossier.requests.push(trace);
  return trace;
}

const liveStates: ReadonlySet<string> = new Set(['QUEUED', 'ORDERED', 'PAID']);

export const isLive = (state: RequestTrace['state']): boolean => liveStates.has(state);

const ranks: Readonly<Record<RequestTrace['state'], number>> = {
  NONE: 0,
  REFUSED: 1,
  UNKNOWN: 1,
  REJECTED: 1,
  SOLD_OUT: 1,
  QUEUED: 2,
  ORDERED: 3,
  EXPIRED: 4,
  CANCELLED: 4,
  PAID: 5,
  REFUNDED: 6,
};

/** Is `next` further along a request's life than `now`? */
export const isLater = (next: RequestTrace['state'], now: RequestTrace['state']): boolean =>
  ranks[next] > ranks[now];

/** Has the request reached a state that only the person or the clock can change? */
export const isDecided = (state: RequestTrace['state']): boolean =>
  state !== 'NONE' && state !== 'QUEUED' && state !== 'UNKNOWN';
