import type { Config } from '../config/config.ts';
import { overloadDefaults, type OverloadSettings } from '../control/overload-loop.ts';
import { perSecond } from '../core/limit/rate.ts';

/**
 * The overload control of an instance, from its configuration. It comes up by the ramp unless told
 * otherwise: caches, connections and compiled code are cold, and where it comes back in the middle of a
 * sale the crowd that lost it is already there.
 */
export function overloadSettings({
  overload: { adaptive, setpointMs, ceilings, start },
  server,
}: Pick<Config, 'overload' | 'server'>): OverloadSettings {
  return {
    ...overloadDefaults,
    adaptive,
    setpointMs,
    ceilings,
    start: start === 'ramp' ? 'ramping' : 'steady',
    admitPerSecond: perSecond(server.ceiling),
  };
}
