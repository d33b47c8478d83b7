import type { OrderMessage } from '../ports/order-queue.ts';

/** The bytes of a message in a broker: JSON, so that an operator's tools can read it. */
export const encodeMessage = (message: OrderMessage): string => JSON.stringify(message);

const texts = [
  'messageId',
  'activityId',
  'skuId',
  'reservationId',
  'requestId',
  'userId',
  'personId',
  'fingerprint',
  'nonce',
  'currency',
] as const;
const numbers = [
  'activityVersion',
  'generation',
  'quantity',
  'limit',
  'unitAmountMinor',
  'reservedAtMs',
  'deadlineMs',
] as const;

/**
 * What a broker gave back. Undefined when it is no message of ours: anybody with rights to the broker
 * may have put it there, and it must not stop its neighbours.
 */
export function decodeMessage(text: string): OrderMessage | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined; // Not JSON: not ours.
  }
  if (typeof value !== 'object' || value === null) return undefined;
  const fields = value as Readonly<Record<string, unknown>>;
  const { schemaVersion, seats, traceparent } = fields;
  const whole =
    schemaVersion === 1 &&
    texts.every((name) => typeof fields[name] === 'string') &&
    numbers.every((name) => Number.isSafeInteger(fields[name])) &&
    (seats === undefined ||
      (Array.isArray(seats) && seats.every((seat) => typeof seat === 'string'))) &&
    (traceparent === undefined || typeof traceparent === 'string');
  return whole ? (value as OrderMessage) : undefined;
}
