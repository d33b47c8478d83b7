import { createClient, createCluster } from '@redis/client';
import { UnavailableError } from '../../ports/errors.ts';

export interface ListenerOptions {
  readonly urls: readonly string[];
  readonly cluster: boolean;
  readonly channel: string;
  readonly onMessage: (message: string) => void;
  /** Told of lost connections; they are made anew, and what was said meanwhile is lost. */
  readonly onTrouble?: (error: unknown) => void;
}

export interface Listener {
  close(): Promise<void>;
}

/** Soon, then steadily. */
const reconnectMs = (tries: number): number => Math.min(1_000, 20 * 2 ** Math.min(tries, 6));

/**
 * A connection that only listens to one channel; a channel of a cluster is heard at any of its nodes.
 * Apart from {@link RedisLink} because a connection that listens can do nothing else.
 */
export async function listenTo(options: ListenerOptions): Promise<Listener> {
  const common = {
    RESP: 3 as const,
    pingInterval: 1_000,
    socket: { connectTimeout: 1_000, socketTimeout: 5_000, reconnectStrategy: reconnectMs },
  };
  const trouble = (error: unknown): void => options.onTrouble?.(error);
  const hear = (message: string): void => options.onMessage(message);
  try {
    if (options.cluster) {
      const cluster = createCluster({
        RESP: 3,
        rootNodes: options.urls.map((url) => ({ url, ...common })),
        defaults: common,
      });
      cluster.on('error', trouble);
      cluster.on('node-error', trouble);
      await cluster.connect();
      await cluster.subscribe(options.channel, hear);
      return { close: async () => cluster.destroy() };
    }
    const [url] = options.urls;
    if (url === undefined) throw new RangeError('no Redis URL to listen to');
    const client = createClient({ url, ...common });
    client.on('error', trouble);
    await client.connect();
    await client.subscribe(options.channel, hear);
    return { close: async () => client.destroy() };
  } catch (cause) {
    if (cause instanceof RangeError) throw cause;
    throw new UnavailableError('Redis does not let us listen', { cause });
  }
}
