import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Stores } from '../../../src/app/embedded-stores.ts';
import { without } from './guards.ts';
import type { Guard, HarshWorld } from './guards.ts';

/**
 * The real server in a harsher world, with one guard taken out: `--world WORLD --without GUARD up
 * --config FILE --json`. `--without nothing` is the same world with every guard in place; the crowd must find that
 * one in order, or the harshness alone would explain what it finds in the others.
 *
 * It exists under test/ only. The shipped command has no such switch: here the guard's own code is
 * exchanged in this process before the server starts, from the build.
 */
const dist = join(dirname(fileURLToPath(import.meta.url)), '..', '..', '..', 'dist');

async function built<Module>(path: string): Promise<Module> {
  return (await import(join(dist, path))) as Module;
}

const argv = process.argv.slice(2);
const after = (flag: string): string => argv[argv.indexOf(flag) + 1] ?? '';

const { SkuStock } =
  await built<typeof import('../../../src/core/stock/sku-stock.ts')>('core/stock/sku-stock.js');
const { SoldOutFlags } = await built<typeof import('../../../src/pipeline/sold-out-flags.ts')>(
  'pipeline/sold-out-flags.js',
);
without(after('--without') as Guard, after('--world') as HarshWorld, { SkuStock, SoldOutFlags });

const { startServer } = await built<typeof import('../../../src/app/server.ts')>('app/server.js');
const { serve } = await built<typeof import('../../../src/cli/up-command.ts')>('cli/up-command.js');
const { systemTimers, systemClock } =
  await built<typeof import('../../../src/app/system.ts')>('app/system.js');

/**
 * The harshness: whoever asks for a pass again gets another one with a nonce of its own, as if two
 * devices had been served by two rooms. Only the per-person check stands between them and two units.
 */
function generousRoom(stores: Stores): Stores {
  const { admission } = stores;
  const takePass: typeof admission.takePass = async (activityId, request, nowMs) => {
    const reply = await admission.takePass(activityId, request, nowMs);
    if (reply.kind !== 'taken' || reply.fresh) return reply;
    await admission.endAttempt(activityId, request.entryId, request.skuId, reply.attempt, nowMs);
    return admission.takePass(activityId, { ...request, renewable: true }, nowMs);
  };
  return { ...stores, admission: overriding(admission, { takePass }), close: () => stores.close() };
}

/** The object with some methods exchanged; all others still run on the object itself. */
function overriding<Target extends object>(target: Target, methods: Partial<Target>): Target {
  return new Proxy(target, {
    get(inner, name) {
      const own = (methods as Record<PropertyKey, unknown>)[name];
      if (own !== undefined) return own;
      const value: unknown = Reflect.get(inner, name, inner);
      return typeof value === 'function' ? value.bind(inner) : value;
    },
  });
}

/** Everybody is let in at once: the crowd meets the guards, not the waiting room. */
function withoutRoom(file: string): string {
  const config = JSON.parse(readFileSync(file, 'utf8')) as {
    activities: { room: { mode: string } }[];
  };
  for (const { room } of config.activities) room.mode = 'passthrough';
  const changed = `${file}.passthrough.yaml`;
  writeFileSync(changed, JSON.stringify(config));
  return changed;
}

process.exitCode = await serve(
  { config: withoutRoom(after('--config')), json: true },
  {
    environment: process.env,
    out: (text) => process.stdout.write(text),
    err: (text) => process.stderr.write(text),
    isTty: false,
    errIsTty: false,
    nowMs: () => systemClock.wallMs(),
    stopSignal: () => new Promise((resolve) => process.once('SIGTERM', () => resolve('SIGTERM'))),
  },
  { start: (config) => startServer(config, { adaptStores: generousRoom }), timers: systemTimers },
);
