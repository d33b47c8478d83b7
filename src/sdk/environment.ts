/**
 * What the client needs of the place it runs in, injected so that tests own time and chance, and so
 * that one client serves browser and Node.
 */
export interface ClientEnvironment {
  fetch(url: string, init: FetchInit): Promise<FetchReply>;
  /** Absent where there is no EventSource: then the client polls. */
  readonly events?: (url: string) => EventStream;
  after(delayMs: number, run: () => void): () => void;
  nowMs(): number;
  /** Uniform in [0, 1). */
  random(): number;
  /** 128 random bits, as characters of an id. */
  token(): string;
  /** What survives a reload; absent where nothing does. Never throws. */
  readonly store?: KeyValueStore;
  hidden(): boolean;
  /** Calls `run` at each change of visibility; returns how to stop. */
  onVisibility(run: () => void): () => void;
}

export interface FetchInit {
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly signal?: AbortSignal;
}

export interface FetchReply {
  readonly status: number;
  header(name: string): string | null;
  json(): Promise<unknown>;
}

/** The part of EventSource that is used. */
export interface EventStream {
  /** True once the stream has given up for good. */
  closed(): boolean;
  onEvent(name: string, run: (data: string) => void): void;
  onError(run: () => void): void;
  close(): void;
}

export interface KeyValueStore {
  get(key: string): string | undefined;
  set(key: string, value: string): void;
  remove(key: string): void;
}
