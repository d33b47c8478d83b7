import type { FaultItem } from './plan.ts';

/** What can go wrong, where, and how much of it has been reached. */

/** Parts of the world that a process calls through a port. */
export const portNames = [
  'inventory',
  'queue',
  'orders',
  'payments',
  'admission',
  'budgets',
  'lease',
  'broadcast',
] as const;
export type PortName = (typeof portNames)[number];

/** What can happen to one call. */
export const callFaults = [
  /** It takes hundreds of times as long as usual. */
  'slow',
  /** Refused: surely nothing was done. */
  'refused',
  /** It never arrives; the caller waits, and does not know. */
  'lost_request',
  /** It is done; the answer never arrives. */
  'lost_reply',
  /** It is done after its caller has given up. */
  'late',
  /** It is done and answered, and done once more some time later: somebody on the way sent it again. */
  'repeated',
  /** The caller dies as it calls: nothing was done. */
  'crash_before',
  /** It is done, and the caller dies before it hears of it. */
  'crash_after',
] as const;
export type CallFault = (typeof callFaults)[number];

/** What happens to a process, a machine, a server or the network between. */
export const otherFaults = [
  'crash',
  'pause',
  'leap',
  'duplicate',
  'poison',
  'failover',
  'drop_words',
  'forget_budgets',
  'net_loss',
  'net_twice',
  'net_slow',
  /** A process answers somebody, and dies at once. */
  'crash_answered',
  /** One process is cut off from all servers, one way: what it says, or what it would hear, is lost. */
  'cut_off',
] as const;
export type FaultKind = CallFault | (typeof otherFaults)[number];

/** These need a way between the caller and what is called. */
const onTheWay: ReadonlySet<string> = new Set(['lost_request', 'late', 'repeated']);

/** What may safely come twice by its own promise, and is sent again by clients and proxies. */
const repeatable: ReadonlySet<PortName> = new Set(['inventory', 'queue', 'admission', 'broadcast']);

/** A store in the same process loses no messages on the way; a database in a thread still may. */
export function mayHappen(fault: FaultKind, deployment: 'embedded' | 'many'): boolean {
  return deployment === 'many' || !onTheWay.has(fault);
}

/** Can this fault hit this port in this deployment? */
export function canHit(fault: CallFault, port: PortName, deployment: 'embedded' | 'many'): boolean {
  if (fault === 'repeated' && !repeatable.has(port)) return false;
  if (deployment === 'many') return true;
  if (port === 'lease' || port === 'broadcast') return false;
  // What a process says to its own memory is not lost on the way back.
  if (fault === 'lost_reply') return port === 'orders' || port === 'payments';
  return !onTheWay.has(fault);
}

/** Every pair that can be reached in some deployment. */
export const faultPortPairs: readonly string[] = callFaults.flatMap((fault) =>
  portNames.filter((port) => canHit(fault, port, 'many')).map((port) => `${fault} × ${port}`),
);

/** Of these only calls that change something know: a question is as if it had never been asked. */
const onlyWrites: ReadonlySet<string> = new Set(['lost_reply', 'late', 'repeated', 'crash_after']);

interface Window {
  readonly item: FaultItem;
  readonly untilMs: number;
  calls: number;
}

/** The faults of one history: which are on, and which call is hit. */
export class Faults {
  readonly #windows: Window[] = [];
  readonly #deployment: 'embedded' | 'many';
  readonly #seed: number;
  readonly #processes: number;
  /** How often each pair or kind has happened. */
  readonly reached = new Map<string, number>();
  /** From then on nothing more goes wrong. */
  healed = false;

  constructor(deployment: 'embedded' | 'many', seed: number, processes: number) {
    this.#deployment = deployment;
    this.#seed = seed;
    this.#processes = processes;
  }

  begin(item: FaultItem): void {
    this.#windows.push({ item, untilMs: item.atMs + item.forMs, calls: 0 });
  }

  heal(): void {
    this.healed = true;
    this.#windows.length = 0;
  }

  note(what: string): void {
    this.reached.set(what, (this.reached.get(what) ?? 0) + 1);
  }

  /** What happens to this call. Asked once for each. */
  ofCall(port: PortName, process: number, nowMs: number, changes: boolean): CallFault | undefined {
    if (this.#windows.length === 0) return undefined;
    for (const window of this.#windows) {
      const { item } = window;
      if (item.fault === 'cut_off') {
        if (!this.#hits(window, process, nowMs)) continue;
        this.note('cut_off');
        return isDeaf(item) ? 'lost_reply' : 'lost_request';
      }
      const fault = item.fault as CallFault;
      if (item.port !== port || !isCallFault.has(fault) || !canHit(fault, port, this.#deployment)) {
        continue;
      }
      if (!changes && onlyWrites.has(fault)) continue;
      if (!this.#hits(window, process, nowMs)) continue;
      this.note(`${fault} × ${port}`);
      return fault;
    }
    return undefined;
  }

  /** Does a fault of this kind, that hits no port, happen here now? Asked once for each occasion. */
  happens(kind: FaultKind, process: number, nowMs: number): FaultItem | undefined {
    for (const window of this.#windows) {
      if (window.item.fault !== kind || !this.#hits(window, process, nowMs)) continue;
      this.note(kind);
      return window.item;
    }
    return undefined;
  }

  /** Does this process hear nothing of what servers say? */
  deaf(process: number, nowMs: number): boolean {
    return this.#windows.some(
      (window) =>
        window.item.fault === 'cut_off' &&
        isDeaf(window.item) &&
        this.#hits(window, process, nowMs),
    );
  }

  #hits(window: Window, process: number, nowMs: number): boolean {
    const { item } = window;
    if (nowMs >= window.untilMs) return false;
    const hit = item.process;
    if (hit !== undefined && process >= 0 && hit % this.#processes !== process) return false;
    window.calls += 1;
    return item.share >= 1 || dice(this.#seed + item.id * 7_919, window.calls) < item.share;
  }
}

const isCallFault: ReadonlySet<string> = new Set(callFaults);

/** Of whoever is cut off: the answers are lost, not the questions. */
const isDeaf = ({ size }: FaultItem): boolean => size % 2 === 1;

/** Uniform in [0, 1) from two numbers (splitmix32): the chance of one call of one fault. */
export function dice(a: number, b: number): number {
  let x = (Math.imul(a, 0x9e3779b1) + Math.imul(b, 0x85ebca6b)) | 0;
  x = Math.imul(x ^ (x >>> 16), 0x21f0aaad);
  x = Math.imul(x ^ (x >>> 15), 0x735a2d97);
  return ((x ^ (x >>> 15)) >>> 0) / 0x1_0000_0000;
}
