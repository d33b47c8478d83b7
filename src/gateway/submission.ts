import type { Span } from '../ports/tracer.ts';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { SkuKey } from '../core/activity.ts';
import type { Refusal } from '../core/decision.ts';
import type { InflightSlots } from '../core/overload/inflight.ts';
import type { ReserveOutcome } from '../ports/inventory-store.ts';
import type { LimitedRequest } from '../pipeline/limits.ts';
import type {
  RequestHead,
  Submission,
  SubmitBody,
  SubmitTarget,
  VerifiedPass,
} from '../pipeline/stage.ts';
import { bodyTooLarge } from '../pipeline/stages/01-receive.ts';
import { type FieldError, SubmitRequest } from '../wire/schemas.ts';
import { readRawBody } from './body.ts';
import { addressOf, type GatewayContext } from './context.ts';
import { Credentials } from './credentials.ts';
import { headerText, rawHeaderText, requestHead } from './head.ts';
import { checkerOf, idText, parseJson } from './validate.ts';

const checkSubmit = checkerOf(SubmitRequest);

/** Of the time a sender gives, kept for the answer, ms. */
const answerMarginMs = 5;
const traceparentPattern = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/;

/** A submit over HTTP. Everything that an early refusal does not need is read on demand. */
export class HttpSubmission implements Submission {
  readonly arrivedUs: number;
  readonly nowMs: number;
  readonly pathId: string;
  readonly #context: GatewayContext;
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #credentials: Credentials;
  #address: string | undefined = undefined;
  #device: string | undefined | null = null;

  // All there from the start, so that every submission has one shape, which V8 rewards.
  limited: LimitedRequest | undefined = undefined;
  target: SubmitTarget | undefined = undefined;
  probe: SkuKey | undefined = undefined;
  userId: string | undefined = undefined;
  personId: string | undefined = undefined;
  claim: ((name: string) => string | undefined) | undefined = undefined;
  pass: VerifiedPass | undefined = undefined;
  body: SubmitBody | undefined = undefined;
  span: Span | undefined = undefined;
  slots: InflightSlots | undefined = undefined;
  reserved: Extract<ReserveOutcome, { readonly kind: 'reserved' }> | undefined = undefined;

  constructor(
    context: GatewayContext,
    request: IncomingMessage,
    response: ServerResponse,
    pathId: string,
  ) {
    const { clock, settings } = context.deps;
    this.arrivedUs = clock.monoUs();
    this.nowMs = clock.wallMs();
    this.pathId = pathId;
    this.#context = context;
    this.#request = request;
    this.#response = response;
    this.#credentials = new Credentials(request, settings.proxies, settings.secure ?? false);
  }

  get head(): RequestHead {
    return requestHead(this.#request);
  }

  get address(): string {
    this.#address ??= addressOf(this.#context, this.#request);
    return this.#address;
  }

  get userToken(): string | undefined {
    return this.#credentials.userToken;
  }

  get passToken(): string | undefined {
    return this.#credentials.passToken;
  }

  get deviceHash(): string | undefined {
    if (this.#device === null) this.#device = this.#credentials.deviceHash;
    return this.#device;
  }

  get fromForeignOrigin(): boolean {
    return this.#credentials.fromForeignOrigin;
  }

  get fromTrustedProxy(): boolean {
    const peer = this.#request.socket.remoteAddress;
    return peer !== undefined && this.#context.deps.settings.proxies.contains(peer);
  }

  header(name: string): string | undefined {
    return headerText(this.#request, name);
  }

  remainingMs(): number | undefined {
    const asked = headerText(this.#request, 'sluice-timeout-ms');
    if (asked === undefined || !/^\d{1,6}$/.test(asked)) return undefined;
    const passedMs = (this.#context.deps.clock.monoUs() - this.arrivedUs) / 1000;
    // What our own answer needs to be on time.
    return Math.max(0, Number(asked) - passedMs - answerMarginMs);
  }

  get idempotencyKey(): string | undefined {
    return headerText(this.#request, 'idempotency-key');
  }

  get traceparent(): string | undefined {
    const value = rawHeaderText(this.#request, 'traceparent');
    return value !== undefined && traceparentPattern.test(value) ? value : undefined;
  }

  async readBody(): Promise<SubmitBody | Refusal> {
    // Who waits for a go-ahead gets it here, after everything cheap has agreed.
    if (this.#request.headers.expect !== undefined) this.#response.writeContinue();
    const raw = await readRawBody(this.#request);
    if (raw.kind === 'too_large') return bodyTooLarge;
    if (raw.kind === 'aborted') return bodyNeverCame;
    return submitBodyOf(raw.bytes);
  }
}

const bodyNeverCame: Refusal = {
  decision: 'reject',
  stage: 'budget',
  code: 'REQUEST_TIMEOUT',
  reason: 'body_aborted',
  detail: 'the connection ended before the body was complete',
};

/** Bytes to a submit, or the refusal that says what is wrong with them. */
export function submitBodyOf(bytes: Uint8Array): SubmitBody | Refusal {
  const parsed = parseJson(bytes);
  if (!parsed.ok) return invalidBody([parsed.error]);
  const checked = checkSubmit(parsed.value);
  if (!checked.ok) return invalidBody(checked.errors);
  const { value } = checked;
  const requestId = idText(value.request_id, parsed.text, '/request_id');
  const activityId = idText(value.activity_id, parsed.text, '/activity_id');
  const skuId = idText(value.sku_id, parsed.text, '/sku_id');
  const wrong = [requestId, activityId, skuId].filter((id) => typeof id === 'object');
  if (
    typeof requestId === 'object' ||
    typeof activityId === 'object' ||
    typeof skuId === 'object'
  ) {
    return invalidBody(wrong);
  }
  return {
    requestId,
    activityId,
    skuId,
    quantity: value.quantity,
    ...(value.seats === undefined ? {} : { seats: value.seats }),
  };
}

export function invalidBody(
  errors: readonly FieldError[],
  stage: Refusal['stage'] = 'budget',
): Refusal {
  const [first] = errors;
  return {
    decision: 'reject',
    stage,
    code: 'INVALID_ARGUMENT',
    reason: 'body',
    detail:
      first === undefined
        ? 'the request is not valid'
        : `${first.path === '' ? 'body' : first.path}: found ${first.found}, allowed is ${first.allowed}`,
    extra: { errors },
  };
}
