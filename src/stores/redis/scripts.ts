import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { KeyName } from './keys.ts';

/**
 * Every Lua script, with the keys it is given and what its arguments mean. The file's header says
 * the same, and a test compares the two: a script's contract is read in one place and relied on in
 * the other.
 */
export interface Script {
  readonly name: string;
  readonly keys: readonly KeyName[];
  readonly args: readonly string[];
  readonly text: string;
  readonly sha: string;
}

function script(name: string, keys: readonly KeyName[], args: readonly string[]): Script {
  const text = readFileSync(new URL(`./lua/${name}.lua`, import.meta.url), 'utf8');
  return { name, keys, args, text, sha: createHash('sha1').update(text).digest('hex') };
}

const reserveKeys = [
  'stock',
  'requests',
  'nonces',
  'persons',
  'reservations',
  'order',
  'outbox',
  'seats',
  'seatNames',
  'places',
] as const;

export const scripts = {
  preload: script(
    'preload',
    [
      'stock',
      'requests',
      'nonces',
      'persons',
      'reservations',
      'order',
      'adjustments',
      'seats',
      'seatNames',
      'places',
      'outbox',
      'orphaned',
    ],
    ['total', 'generation', 'epoch', 'base', 'seats', 'names', 'shards'],
  ),
  reserve: script('reserve', reserveKeys, ['seen', 'now', 'batch']),
  find: script('find', ['stock', 'requests', 'reservations', 'places'], ['field']),
  live: script(
    'live',
    ['stock', 'requests', 'reservations', 'order', 'places'],
    ['element', 'offset', 'limit'],
  ),
  settle: script(
    'settle',
    ['stock', 'requests', 'persons', 'reservations', 'seats', 'places', 'order'],
    ['fates'],
  ),
  index: script('index', ['stock', 'requests', 'reservations', 'order'], ['most']),
  adjust: script('adjust', ['stock', 'adjustments'], ['id', 'delta', 'most']),
  move: script('move', ['stock'], ['way', 'other', 'units', 'generation']),
  pause: script('pause', ['stock'], ['paused']),
  stage: script(
    'stage',
    ['requests', 'nonces', 'persons', 'reservations', 'order', 'seatNames', 'places'],
    ['ttl', 'part'],
  ),
  rebuild: script(
    'rebuild',
    [
      'stock',
      'requests',
      'nonces',
      'persons',
      'reservations',
      'order',
      'seats',
      'seatNames',
      'places',
      'requests',
      'nonces',
      'persons',
      'reservations',
      'order',
      'seatNames',
      'places',
      'outbox',
      'orphaned',
    ],
    ['total', 'generation', 'epoch', 'base', 'held', 'ordered', 'seats', 'shards'],
  ),
  forget: script(
    'forget',
    [
      'stock',
      'requests',
      'nonces',
      'persons',
      'reservations',
      'order',
      'adjustments',
      'seats',
      'seatNames',
      'places',
      'outbox',
      'partial',
      'buried',
      'orphaned',
    ],
    [],
  ),
  outboxReceive: script(
    'outbox-receive',
    ['outbox', 'partial', 'requests', 'orphaned'],
    ['group', 'consumer', 'messages', 'idle'],
  ),
  outboxAcknowledge: script(
    'outbox-acknowledge',
    ['stock', 'outbox', 'partial', 'orphaned'],
    ['group', 'done'],
  ),
  outboxBury: script(
    'outbox-bury',
    ['stock', 'outbox', 'partial', 'buried', 'orphaned'],
    ['group', 'entry', 'index', 'letter', 'most'],
  ),
  outboxRelease: script(
    'outbox-release',
    ['outbox'],
    ['group', 'consumer', 'entry', 'attempt', 'idle'],
  ),
  limitTake: script('limit-take', ['limit'], ['now', 'mode', 'checks']),
  budgetRenew: script('budget-renew', ['budget'], ['now', 'bucket', 'request', 'bounds']),
  budgetRaise: script('budget-raise', ['budget'], ['ttl']),
  roomJoin: script(
    'room-join',
    ['room', 'entries', 'participants'],
    ['now', 'entry', 'wish', 'most'],
  ),
  roomFind: script('room-find', ['room', 'entries'], ['entry']),
  roomLeave: script('room-leave', ['room', 'entries', 'changes'], ['now', 'entry']),
  roomClose: script('room-close', ['room'], ['now']),
  roomPass: script(
    'room-pass',
    ['room', 'entries', 'claims', 'changes'],
    ['now', 'entry', 'sku', 'wave', 'before', 'life', 'renewable', 'most'],
  ),
  roomEnd: script('room-end', ['claims', 'changes'], ['now', 'entry', 'sku', 'attempt']),
  roomFinish: script('room-finish', ['room', 'claims', 'changes'], ['now', 'entry', 'outcome']),
  stateSave: script('state-save', ['states'], ['name', 'value', 'expected', 'fence', 'standing']),
  announce: script(
    'announce',
    ['announced', 'announcer'],
    ['epoch', 'version', 'ttl', 'memory', 'channel', 'word'],
  ),
} as const satisfies Readonly<Record<string, Script>>;
