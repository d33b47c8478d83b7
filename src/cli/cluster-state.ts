import { readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { UsageError } from './terminal.ts';

/** A cluster that `npm run cluster` has started on this machine. */
export interface LocalCluster {
  readonly shop: string;
  readonly operator: string;
  readonly adminToken: string;
  /** Its configuration file, and the variables that it was read with. */
  readonly config: string;
  readonly environment: Readonly<Record<string, string>>;
  /** The replica of the inventory's server that takes over when that dies, where there is one. */
  readonly inventoryStandby?: string;
  /** Process ids by name. */
  readonly processes: Readonly<Record<string, number>>;
}

/** Where the script leaves word, unless it is told another place. */
const stateFile = 'sluice-cluster.json';

/** Reads where the local cluster runs. @throws UsageError where none does */
export function findLocalCluster(file = join(tmpdir(), stateFile)): LocalCluster {
  const none = (found: string): UsageError =>
    new UsageError(
      `cluster: found ${found}; allowed: a cluster on this machine (npm run cluster), or --target URL with SLUICE_ADMIN_URL and SLUICE_ADMIN_TOKEN`,
    );
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch {
    throw none(`no ${file}`);
  }
  let state: unknown;
  try {
    state = JSON.parse(text);
  } catch {
    throw none(`${file}, which is not JSON`);
  }
  const member = (name: string): unknown =>
    typeof state === 'object' && state !== null ? Reflect.get(state, name) : undefined;
  const read = (name: string): string => {
    const value = member(name);
    if (typeof value !== 'string') throw none(`${file} without "${name}"`);
    return value;
  };
  const table = <Value>(name: string, kind: 'string' | 'number'): Record<string, Value> => {
    const value = member(name) ?? {};
    if (typeof value !== 'object') throw none(`${file} without "${name}"`);
    const entries = Object.entries(value).filter(([, one]) => typeof one === kind);
    return Object.fromEntries(entries) as Record<string, Value>;
  };
  const tokenFile = read('admin_token_file');
  try {
    return {
      adminToken: readFileSync(tokenFile, 'utf8').trim(),
      shop: read('shop'),
      operator: read('operator'),
      config: typeof member('config') === 'string' ? read('config') : '',
      environment: table<string>('environment', 'string'),
      processes: table<number>('processes', 'number'),
      ...(typeof member('inventory_standby') === 'string'
        ? { inventoryStandby: read('inventory_standby') }
        : {}),
    };
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw none(`${file} of a cluster that is gone (${tokenFile} cannot be read)`);
  }
}
