import { sha256 } from './sha256.ts';

/**
 * Merkle trees as in RFC 6962, section 2.1: leaf = SHA-256(0x00 ‖ data), node = SHA-256(0x01 ‖ left ‖
 * right), a tree of n leaves split at the largest power of two below n. The prefixes keep a leaf from
 * being passed off as a node.
 */
const leafPrefix = Uint8Array.of(0);
const nodePrefix = Uint8Array.of(1);

export function leafHash(data: Uint8Array): Uint8Array {
  return sha256(leafPrefix, data);
}

function nodeHash(left: Uint8Array, right: Uint8Array): Uint8Array {
  return sha256(nodePrefix, left, right);
}

/** The root of a log as it grows: one leaf at a time, memory logarithmic in their number. */
export class MerkleLog {
  /** Roots of full subtrees, the largest first; their sizes are the bits of `size`. */
  readonly #peaks: Uint8Array[] = [];
  #size = 0;

  get size(): number {
    return this.#size;
  }

  append(data: Uint8Array): void {
    let hash = leafHash(data);
    for (let bits = this.#size; bits % 2 === 1; bits = Math.floor(bits / 2)) {
      hash = nodeHash(this.#peaks.pop() ?? hash, hash);
    }
    this.#peaks.push(hash);
    this.#size += 1;
  }

  /** Root over the leaves so far; SHA-256 of nothing for none. O(log n). */
  root(): Uint8Array {
    let hash = this.#peaks.at(-1);
    if (hash === undefined) return sha256();
    for (let at = this.#peaks.length - 2; at >= 0; at -= 1) {
      hash = nodeHash(this.#peaks[at] ?? hash, hash);
    }
    return hash;
  }
}

/**
 * The audit path of leaf `index` among `leaves` (already hashed): siblings from the leaf upwards.
 * O(n) hashes, O(log n) result.
 */
export function inclusionPath(leaves: readonly Uint8Array[], index: number): Uint8Array[] {
  if (!Number.isInteger(index) || index < 0 || index >= leaves.length) {
    throw new RangeError(`leaf ${index} is not among ${leaves.length} leaves (0 to n-1)`);
  }
  const path: Uint8Array[] = [];
  let level = leaves;
  let at = index;
  while (level.length > 1) {
    const sibling = level[at ^ 1];
    if (sibling !== undefined) path.push(sibling);
    const next: Uint8Array[] = [];
    for (let from = 0; from < level.length; from += 2) {
      const left = level[from];
      const right = level[from + 1];
      if (left !== undefined) next.push(right === undefined ? left : nodeHash(left, right));
    }
    level = next;
    at >>>= 1;
  }
  return path;
}

/** True exactly if `path` leads from this leaf, at this index of `size` leaves, to `root`. */
export function verifyInclusion(
  leaf: Uint8Array,
  index: number,
  size: number,
  path: readonly Uint8Array[],
  root: Uint8Array,
): boolean {
  if (!Number.isInteger(index) || index < 0 || index >= size) return false;
  let hash = leaf;
  let at = index;
  let last = size - 1;
  for (const sibling of path) {
    if (last === 0) return false;
    // At the right edge a level may have no sibling; the path then skips it.
    while (at % 2 === 0 && at === last && last > 0) {
      at = Math.floor(at / 2);
      last = Math.floor(last / 2);
    }
    if (last === 0) return false;
    hash = at % 2 === 1 ? nodeHash(sibling, hash) : nodeHash(hash, sibling);
    at = Math.floor(at / 2);
    last = Math.floor(last / 2);
  }
  while (at === last && last > 0 && at % 2 === 0) {
    at = Math.floor(at / 2);
    last = Math.floor(last / 2);
  }
  return last === 0 && sameBytes(hash, root);
}

export function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, at) => byte === b[at]);
}
