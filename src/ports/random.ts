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

/** 128 bits in 22 letters of base64url: unguessable, and unique without asking anybody. */
export function uniqueText(random: Random): string {
  return Buffer.from(random.bytes(16)).toString('base64url');
}

/** `prefix_` and such a text. */
export function newId(random: Random, prefix: string): string {
  return `${prefix}_${uniqueText(random)}`;
}
