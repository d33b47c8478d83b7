/** Who is asking, from a user token. The user id comes from a verified token, never from a parameter. */
export interface IdentityVerifier {
  /** At once where the key is here; later where it must be fetched. Never rejects. */
  verify(token: string, nowMs: number): IdentityResult | Promise<IdentityResult>;
  /**
   * The person that the token claims, believed by nobody: good only for looks that grant nothing.
   * Must name the same person as `verify` would for an authentic token.
   */
  claimedPerson(token: string): string | undefined;
}

export interface KnownPerson {
  readonly userId: string;
  /** Whom the purchase limit counts: the user id, or a configured verified claim. */
  readonly personId: string;
  /** Further claims of the token, as texts, for rules and rooms that name one. */
  readonly claim?: (name: string) => string | undefined;
}

export type IdentityResult =
  | ({ readonly kind: 'person' } & KnownPerson)
  /** `reason` is a short word from a closed set. */
  | { readonly kind: 'refused'; readonly reason: string }
  /** The keys could not be had: says nothing about the token. */
  | { readonly kind: 'unavailable' };
