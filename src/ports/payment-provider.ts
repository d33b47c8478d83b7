import type { PaymentEvent } from '../core/orders/model.ts';

/**
 * Where buyers pay. Calls reject with UnavailableError when the provider surely did nothing, and with
 * OutcomeUnknownError when it may have: a timeout is not a failure. Every call carries a key that is
 * the same at each try, and the provider does the work once per key.
 */
export interface PaymentProvider {
  /** `demo`, …; the path segment of its callbacks. */
  readonly name: string;

  /** Asks for a payment. The same key answers the same intent. */
  createIntent(request: IntentRequest): Promise<IntentReply>;

  /** Checks who signed the raw body, before anything in it is believed. Pure; never throws. */
  verifyCallback(
    rawBody: Uint8Array,
    headers: Readonly<Record<string, string | undefined>>,
    nowMs: number,
  ): CallbackVerdict;

  /** What became of a payment, by its intent or, where we never learned that, by its key. */
  query(request: QueryRequest): Promise<ProviderStatus>;

  /** Gives the money back. The same key refunds once. */
  refund(request: RefundRequest): Promise<RefundReply>;
}

export interface IntentRequest {
  /** The payment id: one intent per payment. */
  readonly idempotencyKey: string;
  readonly orderId: string;
  readonly amountMinor: number;
  readonly currency: string;
  /** The provider's own word for how to pay; absent: its default. */
  readonly method?: string;
}

export interface IntentReply {
  readonly intentId: string;
  /** Mostly `processing`; some methods are decided at once. */
  readonly state: 'processing' | 'confirmed' | 'failed';
}

export type CallbackVerdict =
  | { readonly kind: 'event'; readonly event: PaymentEvent }
  | { readonly kind: 'bad_signature'; readonly detail: string }
  | { readonly kind: 'bad_body'; readonly detail: string };

export interface QueryRequest {
  readonly idempotencyKey: string;
  /** Empty when unknown. */
  readonly intentId: string;
}

export type ProviderStatus =
  | { readonly kind: 'unknown_intent' }
  | {
      readonly kind: 'known';
      readonly intentId: string;
      readonly state: 'processing' | 'confirmed' | 'failed' | 'refunded';
      readonly amountMinor: number;
      readonly currency: string;
    };

export interface RefundRequest {
  readonly idempotencyKey: string;
  readonly intentId: string;
  readonly amountMinor: number;
  readonly currency: string;
}

export type RefundReply =
  | { readonly state: 'refunded' | 'processing' }
  /** For good: an operator has to look. */
  | { readonly state: 'refused'; readonly detail: string };
