import type { Risk } from './model.ts';

/**
 * What the rules may know of one request, as far as the path has come. What is not known yet is
 * absent: a rule that needs it belongs to a later stage (stage.ts).
 */
export interface RequestFacts {
  /** A route of Sluice by its name, or a path where Sluice stands in front of another service. */
  readonly route: string;
  readonly method: string;
  /** Canonical (limit/address.ts); `unknown` where there is none. */
  readonly address: string;
  readonly activity?: string | undefined;
  readonly sku?: string | undefined;
  /** Verified. */
  readonly user?: string | undefined;
  /** Hash of the device header. */
  readonly device?: string | undefined;
  /** The verified pass's id. */
  readonly pass?: string | undefined;
  readonly quantity?: number | undefined;
  readonly risk: Risk;
  /** A repetition of something that was admitted before. */
  readonly retry?: boolean | undefined;
  /** Work that others must make room for. */
  readonly p0?: boolean;
  /** The peer of the connection is one of our proxies: its headers may say what things cost. */
  readonly fromTrustedProxy: boolean;
  header(name: string): string | undefined;
  /** A claim of the verified token. */
  claim(name: string): string | undefined;
}
