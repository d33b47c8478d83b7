import type { CallOptions, Outbound } from './outbound.ts';

/**
 * A port whose calls go out through an `Outbound`: the same interface, so that adapters need not know.
 *
 * Every asynchronous method of the port must be named in the plan, with how it is called; one that is
 * added to a port later does not compile until somebody has decided.
 *
 * - `read`: changes nothing, or the same once; may be made again.
 * - `write`: one attempt. Whoever asked for it decides about another.
 * - `report`: reads much, and may take its time.
 * - `through`: not a call to the other side, or one that must get through (closing, listening).
 * - a function: the options from the arguments, for calls that are meant to wait.
 */
export type CallPlan<Args extends readonly unknown[]> =
  | 'read'
  | 'write'
  | 'report'
  | 'through'
  | ((...args: Args) => CallOptions);

type Calls<Port> = {
  [Name in keyof Port as Port[Name] extends (...args: never[]) => Promise<unknown>
    ? Name
    : never]: Port[Name] extends (...args: infer Args) => Promise<unknown> ? CallPlan<Args> : never;
};

export type PortPlan<Port> = Readonly<Calls<Port>>;

/** What a report may take longer than an ordinary call, ms. */
export const reportPatienceMs = 60_000;

const optionsOf = { read: { repeatable: true }, report: { patienceMs: reportPatienceMs } } as const;

/**
 * The port behind its way out. What is not an asynchronous method is the port's own, or stands in
 * `parts`: ports inside the port, guarded by themselves.
 */
export function guardPort<Port extends object>(
  port: Port,
  outbound: Outbound,
  plan: PortPlan<Port>,
  parts: Partial<Port> = {},
): Port {
  const guarded: Record<string, unknown> = { ...parts };
  for (const [name, how] of Object.entries(plan) as [string, CallPlan<readonly unknown[]>][]) {
    const method: unknown = Reflect.get(port, name);
    // Optional methods that this port does not have.
    if (typeof method !== 'function') continue;
    const run = (args: readonly unknown[]): Promise<unknown> =>
      Reflect.apply(method, port, args) as Promise<unknown>;
    guarded[name] =
      how === 'through'
        ? (...args: readonly unknown[]) => run(args)
        : (...args: readonly unknown[]) => {
            const options =
              typeof how === 'function'
                ? how(...args)
                : how === 'write'
                  ? undefined
                  : optionsOf[how];
            return outbound.call(() => run(args), options);
          };
  }
  return new Proxy(port, {
    get(target, name): unknown {
      if (typeof name === 'string' && Object.hasOwn(guarded, name)) return guarded[name];
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}
