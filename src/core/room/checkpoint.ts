import { changeLine, eventLine } from './audit-format.ts';
import { toHex, utf8 } from './bytes.ts';
import { participantLeaf } from './draw.ts';
import type { RoomEvent } from './events.ts';
import { MerkleLog } from './merkle.ts';
import type { RoomChange } from './model.ts';
import { RunningSha256, sha256 } from './sha256.ts';

/**
 * A room's logs up to a decision, in one line that anybody can keep: how many decisions there were, how
 * many late arrivals stood in line, and a digest over all of them and over what happened to entries.
 *
 * Without it, whoever holds an audit file alone cannot tell that its last decisions were cut off and its
 * digest made anew: the rest is a true file of an earlier instant. The checkpoint is public while the
 * sale runs. Whoever noted one can demand a file in which those decisions stand; nobody can make a
 * shorter or another history with the same checkpoint.
 *
 *     head₀ = SHA-256 of nothing
 *     headₙ = SHA-256(headₙ₋₁ ‖ SHA-256(changes taken in since decision n−1) ‖ decision n)
 *     digest = SHA-256(headₙ ‖ root over the first k late arrivals)
 *     checkpoint = n-k-digest
 *
 * The lobby itself is bound by its root, which stands in the decision that closed it.
 */
export class CheckpointLog {
  #head = sha256();
  #changes = new RunningSha256();
  readonly #late = new MerkleLog();
  #decisions = 0;

  change(change: RoomChange): void {
    this.#changes.update(utf8(`${changeLine(change)}\n`));
  }

  decision(event: RoomEvent): void {
    this.#head = sha256(this.#head, this.#changes.digest(), utf8(eventLine(event)));
    this.#changes = new RunningSha256();
    this.#decisions += 1;
  }

  late(entry: { readonly entryId: string; readonly weight: number }): void {
    this.#late.append(participantLeaf(entry.entryId, entry.weight));
  }

  get decisions(): number {
    return this.#decisions;
  }

  /** Digest over the decisions so far, without late arrivals. */
  get head(): Uint8Array {
    return this.#head;
  }

  /** Root over the late arrivals so far, in hex. */
  get lateRoot(): string {
    return toHex(this.#late.root());
  }

  get lateCount(): number {
    return this.#late.size;
  }

  get text(): string {
    return checkpointText(this.#decisions, this.#late.size, this.#head, this.#late.root());
  }
}

export function checkpointText(
  decisions: number,
  late: number,
  head: Uint8Array,
  lateRoot: Uint8Array,
): string {
  return `${decisions}-${late}-${toHex(sha256(head, lateRoot))}`;
}

/** Undefined where the text is no checkpoint. */
export function parseCheckpoint(
  text: string,
): { readonly decisions: number; readonly late: number } | undefined {
  const match = /^(\d{1,15})-(\d{1,15})-[0-9a-f]{64}$/.exec(text);
  if (match === null) return undefined;
  return { decisions: Number(match[1]), late: Number(match[2]) };
}
