import { parseObject, tokenTypes } from './token.ts';
import type { TextCodec, TokenAlgorithm, TokenType } from './token.ts';

/**
 * One key of one token type. The algorithm belongs to the key: what a token says about it can only
 * agree or be refused. `verify` compares in constant time and accepts the canonical encoding only.
 */
export interface TokenKey {
  /** 1 to 64 characters `[A-Za-z0-9_-]`, unique among all keys of all types. */
  readonly kid: string;
  readonly algorithm: TokenAlgorithm;
  /** Base64url signature of the signing input; absent where only the public half is known. */
  readonly sign?: ((signingInput: string) => string) | undefined;
  verify(signingInput: string, signature: string): boolean;
}

export interface RingKey {
  readonly key: TokenKey;
  /** Tokens of this key are refused from this instant on; absent: for as long as the key is here. */
  readonly verifiesUntilMs?: number;
}

/** Distinct header texts remembered per ring: one per foreign spelling of a live key's header. */
const rememberedHeadersMax = 64;

const kidPattern = /^[A-Za-z0-9_-]{1,64}$/;

/**
 * The keys of one token type: several verify, one signs.
 *
 * Rotation without a flag day takes three steps, any time apart: `add` the new key everywhere (it
 * verifies), `signWith` it (old tokens still verify), `retire` the old one once its last token has
 * expired. Revocation is at once, and wins over everything else.
 */
export class KeyRing {
  readonly type: TokenType;
  readonly codec: TextCodec;
  #keys = new Map<string, RingKey>();
  #signing:
    | { readonly kid: string; readonly header: string; sign(input: string): string }
    | undefined;
  #revoked: ReadonlySet<string> = new Set();
  /** Header text → its key. Only headers under which a signature has held get in. */
  readonly #headers = new Map<string, TokenKey>();
  /** The header before this one, with its dot: nearly always this one's too. */
  #lastHeader = '';
  #lastKey: TokenKey | undefined;

  constructor(type: TokenType, codec: TextCodec) {
    this.type = type;
    this.codec = codec;
  }

  /** Replaces all keys in one step, as a reload of the key folder does. */
  replace(keys: readonly RingKey[], signingKid: string | undefined): void {
    const next = new Map<string, RingKey>();
    for (const entry of keys) {
      checkKid(entry.key.kid);
      if (next.has(entry.key.kid)) throw new Error(`key id "${entry.key.kid}" is there twice`);
      next.set(entry.key.kid, entry);
    }
    this.#keys = next;
    this.#headers.clear();
    this.#lastKey = undefined;
    this.#signing = undefined;
    if (signingKid !== undefined) this.signWith(signingKid);
  }

  /** The key verifies from now on, and signs nothing yet. */
  add(key: TokenKey): void {
    checkKid(key.kid);
    if (this.#keys.has(key.kid)) throw new Error(`key id "${key.kid}" is in the ring already`);
    this.#keys.set(key.kid, { key });
  }

  /** The key signs from now on; the one before it goes on verifying. */
  signWith(kid: string): void {
    const key = this.#keys.get(kid)?.key;
    const sign = key?.sign;
    if (key === undefined || sign === undefined) {
      throw new Error(
        `key id "${kid}" cannot sign; ${this.type} keys here: ${[...this.#keys.keys()].join(', ') || 'none'}`,
      );
    }
    const header = this.codec.encode(
      JSON.stringify({ alg: key.algorithm, kid, typ: tokenTypes[this.type] }),
    );
    this.#signing = { kid, header, sign };
  }

  /** Tokens of this key verify until `untilMs`, and no longer; the signing key cannot be retired. */
  retire(kid: string, untilMs: number): void {
    const entry = this.#keys.get(kid);
    if (entry === undefined) throw new Error(`no ${this.type} key has the id "${kid}"`);
    if (this.#signing?.kid === kid) {
      throw new Error(`key "${kid}" is signing; rotate to another key first`);
    }
    this.#keys.set(kid, { key: entry.key, verifiesUntilMs: untilMs });
    this.#forget(kid);
  }

  /** Key ids whose tokens are refused at once, whatever else is known of them. */
  setRevoked(kids: Iterable<string>): void {
    const next = new Set(kids);
    for (const kid of next) this.#forget(kid);
    this.#revoked = next;
  }

  /** Key ids and what each may do, in the order in which they were added. */
  list(): readonly {
    kid: string;
    algorithm: TokenAlgorithm;
    signs: boolean;
    revoked: boolean;
    verifiesUntilMs: number | undefined;
  }[] {
    return [...this.#keys].map(([kid, { key, verifiesUntilMs }]) => ({
      kid,
      algorithm: key.algorithm,
      signs: this.#signing?.kid === kid,
      revoked: this.#revoked.has(kid),
      verifiesUntilMs,
    }));
  }

  /** The signing key with its prepared header. Throws when no key signs. */
  signer(): { readonly kid: string; readonly header: string; sign(input: string): string } {
    if (this.#signing === undefined) throw new Error(`no ${this.type} key signs`);
    return this.#signing;
  }

  /**
   * The key that a token's header asks for, or the refusal: type, then key, then algorithm. The header
   * is what stands before `firstDot`. One seen before costs a comparison or a map lookup; an unknown
   * one a parse of at most 2 KiB.
   */
  keyForToken(
    token: string,
    firstDot: number,
    nowMs: number,
  ): TokenKey | 'structure' | 'type' | 'key' | 'algorithm' {
    if (this.#lastKey !== undefined && token.startsWith(this.#lastHeader)) {
      return this.#usable(this.#lastKey.kid, nowMs) ?? 'key';
    }
    const header = token.slice(0, firstDot);
    const known = this.#headers.get(header);
    if (known !== undefined) return this.#usable(known.kid, nowMs) ?? 'key';

    const fields = parseObject(this.codec.decode(header));
    // Exactly these three members: `crit`, `b64`, `jwk` and the like ask for what is not done here.
    if (fields === undefined || Object.keys(fields).length !== 3) return 'structure';
    const { alg, kid, typ } = fields;
    if (typeof alg !== 'string' || typeof kid !== 'string' || typeof typ !== 'string') {
      return 'structure';
    }
    if (typ !== tokenTypes[this.type]) return 'type';
    const key = this.#usable(kid, nowMs);
    if (key === undefined) return 'key';
    return alg === key.algorithm ? key : 'algorithm';
  }

  /** Called once a signature under this header has held, so strangers cannot fill the memory. */
  rememberHeader(token: string, firstDot: number, key: TokenKey): void {
    if (this.#lastKey === key && token.startsWith(this.#lastHeader)) return;
    const header = token.slice(0, firstDot);
    const known = this.#headers.has(header);
    if (!known && this.#headers.size >= rememberedHeadersMax) return;
    this.#headers.set(header, key);
    // With its dot, so that a longer header that begins alike is another one.
    this.#lastHeader = `${header}.`;
    this.#lastKey = key;
  }

  #usable(kid: string, nowMs: number): TokenKey | undefined {
    const entry = this.#keys.get(kid);
    if (entry === undefined || this.#revoked.has(kid)) return undefined;
    if (entry.verifiesUntilMs !== undefined && nowMs >= entry.verifiesUntilMs) return undefined;
    return entry.key;
  }

  #forget(kid: string): void {
    if (this.#lastKey?.kid === kid) this.#lastKey = undefined;
    for (const [header, key] of this.#headers) if (key.kid === kid) this.#headers.delete(header);
  }
}

function checkKid(kid: string): void {
  if (!kidPattern.test(kid)) {
    throw new Error(`key id "${kid}" is not 1 to 64 characters of A-Z a-z 0-9 _ -`);
  }
}
