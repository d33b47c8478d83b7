/**
 * W3C Trace Context, level 1 (https://www.w3.org/TR/trace-context/): `version-trace-parent-flags`, in
 * lower-case hex. All zeros in an id, and version ff, are invalid, and an invalid context is none.
 */
export interface TraceContext {
  /** 32 hex digits. */
  readonly traceId: string;
  /** 16 hex digits: the span that is the parent of ours. */
  readonly spanId: string;
  readonly sampled: boolean;
}

const pattern = /^(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;

export function parseTraceparent(text: string | undefined): TraceContext | undefined {
  const match = text === undefined ? null : pattern.exec(text);
  const [, traceId = '', spanId = '', flags = '0'] = match ?? [];
  if (match === null || /^0+$/.test(traceId) || /^0+$/.test(spanId)) return undefined;
  return { traceId, spanId, sampled: (Number.parseInt(flags, 16) & 1) === 1 };
}

export function formatTraceparent({ traceId, spanId, sampled }: TraceContext): string {
  return `00-${traceId}-${spanId}-0${sampled ? 1 : 0}`;
}
