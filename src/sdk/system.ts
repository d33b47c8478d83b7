import type { ClientEnvironment, EventStream, KeyValueStore } from './environment.ts';

/**
 * The place the client runs in, browser or Node, by what is there. The one file of the client that
 * touches the system's own clock, chance, timers and network.
 */
interface Source {
  readonly readyState: number;
  addEventListener(name: string, run: (event: { readonly data?: unknown }) => void): void;
  close(): void;
}

interface Surroundings {
  readonly EventSource?: new (url: string) => Source;
  readonly localStorage?: {
    getItem(key: string): string | null;
    setItem(key: string, value: string): void;
    removeItem(key: string): void;
  };
  readonly document?: {
    readonly hidden: boolean;
    addEventListener(name: string, run: () => void): void;
    removeEventListener(name: string, run: () => void): void;
  };
}

const closedState = 2;

export function systemEnvironment(): ClientEnvironment {
  const here = globalThis as unknown as Surroundings;
  const { EventSource: Events, document } = here;
  const store = storeOf(here);
  return {
    async fetch(url, init) {
      const options = { ...init, cache: 'no-store', credentials: 'same-origin' } as const;
      const reply = await fetch(url, options);
      return {
        status: reply.status,
        header: (name) => reply.headers.get(name),
        json: () => reply.json(),
      };
    },
    ...(Events === undefined ? {} : { events: (url: string) => streamOf(new Events(url)) }),
    ...(store === undefined ? {} : { store }),
    after(delayMs, run) {
      const timer = setTimeout(run, delayMs);
      return () => clearTimeout(timer);
    },
    nowMs: () => Date.now(),
    random: () => Math.random(),
    token: () => {
      const bytes = crypto.getRandomValues(new Uint8Array(16));
      return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
    },
    hidden: () => document?.hidden ?? false,
    onVisibility(run) {
      document?.addEventListener('visibilitychange', run);
      return () => document?.removeEventListener('visibilitychange', run);
    },
  };
}

function streamOf(source: Source): EventStream {
  return {
    closed: () => source.readyState === closedState,
    onEvent: (name, run) => source.addEventListener(name, (event) => run(String(event.data))),
    onError: (run) => source.addEventListener('error', run),
    close: () => source.close(),
  };
}

/** Storage that a browser may refuse (private windows, full, switched off): then nothing is kept. */
function storeOf(here: Surroundings): KeyValueStore | undefined {
  try {
    const storage = here.localStorage;
    if (storage === undefined) return undefined;
    return {
      get: (key) => storage.getItem(key) ?? undefined,
      set: (key, value) => {
        try {
          storage.setItem(key, value);
        } catch {
          // Full or refused: the id lives as long as the page does, which is what there is.
        }
      },
      remove: (key) => storage.removeItem(key),
    };
  } catch {
    // Reading `localStorage` itself throws where cookies are blocked.
    return undefined;
  }
}
