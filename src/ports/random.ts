/** Randomness, injected. Production uses the system's secure source; the simulator a seeded one. */
export interface Random {
  /** Uniform in [0, 1), 53 bits. */
  float(): number;
  /** Uniform integer in [0, bound). */
  below(bound: number): number;
  bytes(count: number): Uint8Array;
  /** An independent stream named by its use, so that one more draw here shifts nothing there. */
  fork(label: string): Random;
}

/** `prefix_` and 128 bits in base64url: unguessable, and unique without asking anybody. */
export function newId(random: Random, prefix: string): string {
  return `${prefix}_${Buffer.from(random.bytes(16)).toString('base64url')}`;
}
