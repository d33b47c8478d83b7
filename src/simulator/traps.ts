/**
 * While a world is simulated nothing may touch the real time, chance or network: a single look at the
 * real clock, and the same seed tells another story tomorrow. The rules of the tree forbid it in the
 * text of the code; here it is forbidden to libraries and to what the text does not show.
 */
export class EscapeError extends Error {
  override readonly name = 'EscapeError';

  constructor(what: string) {
    super(`${what} was called in a simulated world; take it through a port`);
  }
}

const banned = (what: string) => (): never => {
  throw new EscapeError(what);
};

/** A date of an instant that is given is a computation; of now, an escape. */
function guardedDate(RealDate: DateConstructor): DateConstructor {
  return new Proxy(RealDate, {
    construct(target, given, newTarget) {
      if (given.length === 0) throw new EscapeError('new Date()');
      return Reflect.construct(target, given, newTarget) as object;
    },
    apply: banned('Date()'),
    get: (target, name) =>
      name === 'now' ? banned('Date.now') : (Reflect.get(target, name) as unknown),
  });
}

/** Sets the traps; the result takes them away again. */
export function setTraps(): () => void {
  const undo: (() => void)[] = [];
  const put = (on: object, name: string, value: unknown): void => {
    const before = Object.getOwnPropertyDescriptor(on, name);
    Object.defineProperty(on, name, { value, configurable: true, writable: true });
    undo.push(() => {
      if (before === undefined) Reflect.deleteProperty(on, name);
      else Object.defineProperty(on, name, before);
    });
  };
  put(globalThis, 'Date', guardedDate(Date));
  put(Math, 'random', banned('Math.random'));
  put(performance, 'now', banned('performance.now'));
  put(process, 'hrtime', banned('process.hrtime'));
  for (const name of ['setTimeout', 'setInterval', 'setImmediate', 'fetch']) {
    put(globalThis, name, banned(name));
  }
  for (const name of ['randomUUID', 'getRandomValues']) {
    put(globalThis.crypto, name, banned(`crypto.${name}`));
  }
  return () => {
    for (const one of undo.toReversed()) one();
  };
}
