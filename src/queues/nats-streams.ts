import type { StreamConfig, StreamInfo } from '@nats-io/jetstream';
import { JetStreamApiCodes, JetStreamApiError } from '@nats-io/jetstream';
import { buriedMax } from '../core/stock/outbox.ts';
import { UnavailableError } from '../ports/errors.ts';
import type { Delivery, OrderMessage } from '../ports/order-queue.ts';
import type { NatsLink } from './nats-link.ts';

/** What streams, subjects and deliveries are called in JetStream, and how they are set up. */
export interface StreamSettings {
  readonly prefix: string;
  readonly visibilityMs: number;
  readonly messagesMax: number;
  readonly unacknowledgedMax: number;
  readonly duplicatesForMs: number;
  readonly replicas: number;
}

/** The durable consumer that all workers share. */
export const workerGroup = 'orders';

export interface StreamNames {
  readonly orders: string;
  readonly dead: string;
}

/** Names of the streams, and the first token of their subjects. */
export const namesOf = (prefix: string): StreamNames => ({
  orders: `${prefix}-orders`,
  dead: `${prefix}-dead`,
});

/** A subject per SKU, so that an operator's tools can count and watch one. */
export const subjectOf = (stream: string, { activityId, skuId }: OrderMessage): string =>
  `${stream}.${token(activityId)}.${token(skuId)}`;

/** Any text as one token of a subject. */
export const token = (text: string): string =>
  text === ''
    ? '='
    : text.replaceAll(/[^A-Za-z0-9_-]/g, (char) => `=${char.charCodeAt(0).toString(16)}=`);

/** Makes streams and consumer what the settings say, from however many processes at once. */
export async function prepareStreams(link: NatsLink, settings: StreamSettings): Promise<void> {
  const { orders, dead } = namesOf(settings.prefix);
  const common = {
    storage: 'file',
    discard: 'new',
    num_replicas: settings.replicas,
  } as const;
  await ensureStream(link, {
    ...common,
    name: orders,
    subjects: [`${orders}.>`],
    retention: 'workqueue',
    max_msgs: settings.messagesMax,
    duplicate_window: settings.duplicatesForMs * 1e6,
  });
  await ensureStream(link, {
    ...common,
    name: dead,
    subjects: [`${dead}.>`],
    retention: 'limits',
    max_msgs: buriedMax,
  });
  await link.call('set up', () =>
    link.manager.consumers.add(orders, {
      durable_name: workerGroup,
      ack_policy: 'explicit',
      deliver_policy: 'all',
      ack_wait: settings.visibilityMs * 1e6,
      // Whether to give up is the worker's decision: it buries.
      max_deliver: -1,
      max_ack_pending: settings.unacknowledgedMax,
    }),
  );
}

/** Makes the stream, or gives an old one the limits of today. Its nature must be ours. */
async function ensureStream(
  link: NatsLink,
  config: Partial<StreamConfig> & { readonly name: string },
): Promise<void> {
  let found: StreamInfo;
  try {
    found = await link.call('set up', () => link.manager.streams.info(config.name));
  } catch (error) {
    if (!(error instanceof JetStreamApiError) || error.code !== JetStreamApiCodes.StreamNotFound)
      throw error;
    // Two processes may do this at once: the same configuration is accepted twice.
    await link.call('set up', () => link.manager.streams.add(config));
    return;
  }
  for (const trait of ['storage', 'retention', 'discard'] as const)
    if (found.config[trait] !== config[trait])
      throw new UnavailableError(
        `NATS stream ${config.name} has ${trait} ${found.config[trait]}; allowed is ${config[trait]}`,
      );
  const limits = {
    max_msgs: config.max_msgs ?? -1,
    num_replicas: config.num_replicas ?? 1,
    ...(config.duplicate_window === undefined ? {} : { duplicate_window: config.duplicate_window }),
  };
  const same = Object.entries(limits).every(
    ([name, value]) => found.config[name as keyof typeof limits] === value,
  );
  if (!same) await link.call('set up', () => link.manager.streams.update(config.name, limits));
}

export interface NatsHandle {
  readonly subject: string;
  readonly sequence: number;
  readonly attempt: number;
}

/** `$JS.ACK[.domain.account].stream.consumer.attempt.sequence.delivery.time.pending[.random]` */
export function readHandle(subject: string): NatsHandle {
  const tokens = subject.split('.');
  const at = tokens.length === 9 ? 4 : 6;
  const attempt = Number(tokens[at]);
  const sequence = Number(tokens[at + 1]);
  if (!subject.startsWith('$JS.ACK.') || !Number.isInteger(attempt) || !Number.isInteger(sequence))
    throw new RangeError(`${subject} is not a delivery of this queue`);
  return { subject, sequence, attempt };
}

export const handleOf = (delivery: Delivery): NatsHandle => readHandle(delivery.deliveryId);
