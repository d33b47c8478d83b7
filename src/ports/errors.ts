/** A part did not answer, and it is certain that it did nothing. Safe to repeat. */
export class UnavailableError extends Error {
  override readonly name = 'UnavailableError';
}

/**
 * We ourselves did not ask: no time, no place, or a part that is known not to answer. Surely did
 * nothing, and no evidence of anything: never counted as an error of the part.
 */
export class NotAskedError extends UnavailableError {}

/**
 * A part did not answer in time and may have done the work. Never repeated blindly: the caller says
 * "unknown" and the same request id finds out later.
 */
export class OutcomeUnknownError extends Error {
  override readonly name = 'OutcomeUnknownError';
}

/** The store holds no such SKU: it was never loaded, or its activity is forgotten. Nothing was done. */
export class UnknownSkuError extends Error {
  override readonly name = 'UnknownSkuError';

  constructor(activityId: string, skuId: string) {
    super(`No stock is loaded for SKU ${skuId} of activity ${activityId}`);
  }
}
