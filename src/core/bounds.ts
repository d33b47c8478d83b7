/**
 * Every constant bound, with its unit and its reason. Relations between them are asserted in
 * bounds.test.ts.
 */

/** Characters of a request, activity, SKU, reservation or order id: the API's promise. */
export const idMaxLength = 64;
export const idPattern = /^[A-Za-z0-9_-]{1,64}$/;

/** Bytes of a user id: opaque to us, so only bounded. */
export const userIdMaxBytes = 255;

/** Bytes of a pass or token before anything looks inside: a verifier must never work for a megabyte. */
export const tokenMaxBytes = 2048;

/** Bytes of a JSON body: a submit with 100 seats fits eight times over. */
export const bodyMaxBytes = 16 * 1024;

/** Bytes of all request headers: two tokens at their longest, a trace, and a browser's own. */
export const headersMaxBytes = 16 * 1024;

/** Clock skew that a pass's times may be off by, ms. */
export const passSkewMs = 2_000;

/** Life of a pass, ms, unless the activity says otherwise. */
export const passLifeDefaultMs = 30_000;

/** Units that one request may ask for: bounds arithmetic, far above any limit per person. */
export const quantityMax = 1_000;

/** Time a reservation has to become an order, ms: beyond it the units go back. */
export const reservationDeadlineMs = 60_000;

/** Requests in one reserve batch: keeps one atomic step below a millisecond. */
export const reserveBatchMax = 256;

/** Unacknowledged messages past which new submits stop. */
export const backlogCeilingDefault = 100_000;

/** Header fields of one request: a browser behind three proxies sends about forty. */
export const headersMaxCount = 100;
