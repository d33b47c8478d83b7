/**
 * From the names of the code to the names on the wire: `snake_case`, and instants (`…AtMs`, `sinceMs`,
 * `…UntilMs`) as RFC 3339. Only for values whose every key is a field's name, never data.
 */
export function toWire(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(toWire);
  if (typeof value !== 'object' || value === null) return value;
  const out: Record<string, unknown> = {};
  for (const [key, inner] of Object.entries(value)) {
    if (inner === undefined) continue;
    const instant = /^(.*(?:At|Until|Before)|since)Ms$/.exec(key);
    if (instant !== null && typeof inner === 'number')
      out[snake(instant[1] ?? '')] = new Date(inner).toISOString();
    else out[snake(key)] = toWire(inner);
  }
  return out;
}

function snake(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
