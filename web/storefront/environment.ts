import type { ClientEnvironment, EventStream } from '../../src/sdk/environment.ts';

/** The browser, as the client sees it. */
export const browser: ClientEnvironment = {
  async fetch(url, init) {
    const reply = await fetch(url, { ...init, credentials: 'same-origin', cache: 'no-store' });
    return {
      status: reply.status,
      header: (name) => reply.headers.get(name),
      json: () => reply.json() as Promise<unknown>,
    };
  },
  events(url): EventStream {
    const source = new EventSource(url);
    return {
      closed: () => source.readyState === EventSource.CLOSED,
      onEvent: (name, run) =>
        source.addEventListener(name, (event) => run(String((event as MessageEvent).data))),
      onError: (run) => source.addEventListener('error', run),
      close: () => source.close(),
    };
  },
  after(delayMs, run) {
    const timer = setTimeout(run, delayMs);
    return () => clearTimeout(timer);
  },
  nowMs: () => Date.now(),
  random: () => Math.random(),
  hidden: () => document.hidden,
  onVisibility(run) {
    document.addEventListener('visibilitychange', run);
    return () => document.removeEventListener('visibilitychange', run);
  },
};
