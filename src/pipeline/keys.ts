import {
  createPrivateKey,
  createPublicKey,
  sign as signBytes,
  verify as verifyBytes,
} from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import type { TokenKey } from '../core/pass/key-ring.ts';
import type { Mac } from '../core/pass/path-id.ts';
import type { TextCodec } from '../core/pass/token.ts';
import { hmacSha256 } from './hmac.ts';

/**
 * Keys on node:crypto: synchronous, because a thread pool costs more than an HMAC, and prepared once,
 * because importing a key costs more than using it.
 */

/** HMAC keys shorter than the hash would be the weakest link (RFC 2104, RFC 7518 section 3.2). */
const secretMinBytes = 32;

/** Characters of an Ed25519 signature (64 bytes) in base64url. */
const ed25519SignatureLength = 86;

/** Bytes of the longest token segment that is decoded in place; longer ones are read the long way. */
const scratchBytes = 4_096;
const scratch = Buffer.alloc(scratchBytes);

export const nodeTextCodec: TextCodec = {
  encode: (text) => Buffer.from(text, 'utf8').toString('base64url'),
  decode(segment) {
    if (segment.length > scratchBytes) {
      return Buffer.from(segment, 'base64url').toString('utf8');
    }
    // One buffer for all: a fresh one costs three times the decoding. Nothing of it leaves here.
    return scratch.toString('utf8', 0, scratch.write(segment, 0, 'base64url'));
  },
};

export function hs256Key(kid: string, secret: Uint8Array): TokenKey {
  if (secret.length < secretMinBytes) {
    throw new RangeError(
      `secret of key "${kid}" has ${secret.length} bytes; HS256 needs at least ${secretMinBytes}`,
    );
  }
  const mac = hmacSha256(secret);
  return {
    kid,
    algorithm: 'HS256',
    sign: mac,
    // Compared as text, so that only the one canonical spelling of a signature is accepted: the last
    // of 43 characters holds two spare bits that a decoder would overlook.
    verify: (input, signature) => sameText(mac(input), signature),
  };
}

/**
 * Equality whose time depends on the lengths alone. For short texts three times as fast as turning
 * both into buffers for `timingSafeEqual`, and a submit does it twice.
 */
export function sameText(expected: string, found: string): boolean {
  if (found.length !== expected.length) return false;
  let difference = 0;
  for (let at = 0; at < expected.length; at += 1) {
    difference |= expected.charCodeAt(at) ^ found.charCodeAt(at);
  }
  return difference === 0;
}

/** `key` is the private half (signs and verifies) or the public half (verifies). */
export function ed25519Key(kid: string, key: KeyObject): TokenKey {
  if (key.asymmetricKeyType !== 'ed25519') {
    throw new TypeError(
      `key "${kid}" is of type ${key.asymmetricKeyType ?? key.type}; EdDSA here means ed25519`,
    );
  }
  const publicKey = key.type === 'private' ? createPublicKey(key) : key;
  return {
    kid,
    algorithm: 'EdDSA',
    sign:
      key.type === 'private'
        ? (input) => signBytes(null, Buffer.from(input, 'utf8'), key).toString('base64url')
        : undefined,
    verify(input, signature) {
      if (signature.length !== ed25519SignatureLength) return false;
      const bytes = Buffer.from(signature, 'base64url');
      // Canonical spelling only, for the same reason as above.
      if (bytes.toString('base64url') !== signature) return false;
      return verifyBytes(null, Buffer.from(input, 'utf8'), publicKey, bytes);
    },
  };
}

/** Key material as it is stored: `k` for HS256, `d` and `x` (or `x` alone) for EdDSA, as in a JWK. */
export type KeyMaterial =
  | { readonly alg: 'HS256'; readonly k: string }
  | { readonly alg: 'EdDSA'; readonly x: string; readonly d?: string };

export function tokenKey(kid: string, material: KeyMaterial): TokenKey {
  if (material.alg === 'HS256') return hs256Key(kid, Buffer.from(material.k, 'base64url'));
  const { x, d } = material;
  const jwk = { kty: 'OKP', crv: 'Ed25519', x, ...(d === undefined ? {} : { d }) };
  return ed25519Key(
    kid,
    d === undefined
      ? createPublicKey({ key: jwk, format: 'jwk' })
      : createPrivateKey({ key: jwk, format: 'jwk' }),
  );
}

/** HMAC-SHA-256 for path ids and nonces. */
export function macOf(secret: Uint8Array): Mac {
  return hmacSha256(secret);
}
