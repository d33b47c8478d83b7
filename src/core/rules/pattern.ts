/**
 * Texts that rules match: an exact value, a `prefix*`, or a `/regular expression/`.
 *
 * A regular expression is written by an operator and fed by strangers, so one that backtracks is a way
 * to stop the process with a single header. JavaScript's engine has no linear mode, so expressions are
 * admitted only in a form whose work is bounded: no group under a quantifier that holds a quantifier or
 * an alternative, no look-around, no back-references, at most two unbounded quantifiers, and inputs cut
 * to a length. The worst case is then quadratic in that length.
 */
export interface TextPattern {
  /** As written. */
  readonly source: string;
  readonly kind: 'exact' | 'prefix' | 'regex';
  /** Never throws; looks at the first `inputMaxLength` characters of the text for a regex. O(length). */
  matches(text: string): boolean;
}

/** The pattern cannot be used; `message` says what was found and what is allowed. */
export class PatternError extends RangeError {
  override readonly name = 'PatternError';
}

const sourceMaxLength = 256;
/** Longer texts match no regular expression. */
const inputMaxLength = 512;
const unboundedMax = 2;

/** Reads `value`, `prefix*`, `*` or `/regex/`. @throws PatternError */
export function textPattern(source: string): TextPattern {
  if (source.length === 0 || source.length > sourceMaxLength) {
    throw new PatternError(
      `found a text of ${source.length} characters; allowed is 1 to ${sourceMaxLength}`,
    );
  }
  if (source.length > 2 && source.startsWith('/') && source.endsWith('/')) {
    const regex = safeRegex(source.slice(1, -1), source);
    return {
      source,
      kind: 'regex',
      matches: (text) => text.length <= inputMaxLength && regex.test(text),
    };
  }
  const star = source.indexOf('*');
  if (star < 0) return { source, kind: 'exact', matches: (text) => text === source };
  if (star !== source.length - 1) {
    throw new PatternError(
      `found "${source}"; allowed is a "*" at the end alone, or a /regular expression/`,
    );
  }
  const prefix = source.slice(0, -1);
  return { source, kind: 'prefix', matches: (text) => text.startsWith(prefix) };
}

/** Can some text match both? Unknown counts as yes. */
export function mayOverlap(a: TextPattern, b: TextPattern): boolean {
  if (a.kind === 'regex' || b.kind === 'regex') {
    if (a.kind === 'exact') return b.matches(a.source);
    if (b.kind === 'exact') return a.matches(b.source);
    return true;
  }
  if (a.kind === 'exact') return b.matches(a.source);
  if (b.kind === 'exact') return a.matches(b.source);
  const [p, q] = [a.source.slice(0, -1), b.source.slice(0, -1)];
  return p.startsWith(q) || q.startsWith(p);
}

/** Does everything that `inner` matches match `outer` as well? Unknown counts as no. */
export function covers(outer: TextPattern, inner: TextPattern): boolean {
  if (outer.source === inner.source || outer.source === '*') return true;
  if (inner.kind === 'exact') return outer.matches(inner.source);
  if (outer.kind !== 'prefix' || inner.kind !== 'prefix') return false;
  return inner.source.startsWith(outer.source.slice(0, -1));
}

function safeRegex(body: string, source: string): RegExp {
  const refuse = (what: string): never => {
    throw new PatternError(
      `found ${what} in "${source}"; allowed is an expression without look-around, back-references, repeated groups that repeat or branch inside, and with at most ${unboundedMax} of * + {n,}`,
    );
  };
  const parts = scan(body, refuse);
  if (parts.unbounded > unboundedMax) refuse(`${parts.unbounded} unbounded repetitions`);
  try {
    return new RegExp(body, 'u');
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new PatternError(`found "${source}"; allowed is a regular expression: ${reason}`);
  }
}

interface Group {
  repeats: boolean;
  branches: boolean;
}

/** Walks the expression once and refuses what could backtrack badly. */
function scan(body: string, refuse: (what: string) => never): { unbounded: number } {
  const open: Group[] = [{ repeats: false, branches: false }];
  let closed: Group | undefined;
  let unbounded = 0;
  for (let at = 0; at < body.length; at += 1) {
    const char = body[at] ?? '';
    const quantifier = /^(?:[*+?]|\{\d+(?:,\d*)?\})/.exec(body.slice(at, at + 16))?.[0];
    if (quantifier !== undefined && at > 0) {
      if (closed !== undefined && (closed.repeats || closed.branches)) {
        refuse('a repeated group that repeats or branches inside');
      }
      if (/^[*+]$|,\}$/.test(quantifier)) unbounded += 1;
      // A large count is written-out repetition: as good as unbounded.
      if (Number(/\d+(?=\}$)/.exec(quantifier)?.[0] ?? 0) > 64) unbounded += 1;
      for (const group of open) group.repeats = true;
      closed = undefined;
      at += quantifier.length - 1;
      if (body[at + 1] === '?') at += 1;
      continue;
    }
    closed = undefined;
    if (char === '\\') {
      if (/[1-9k]/.test(body[at + 1] ?? '')) refuse('a back-reference');
      at += 1;
    } else if (char === '[') {
      while (at < body.length && body[at] !== ']') at += body[at] === '\\' ? 2 : 1;
    } else if (char === '(') {
      if (/^\(\?(?:[=!]|<[=!])/.test(body.slice(at, at + 4))) refuse('look-around');
      if (body.startsWith('(?', at)) {
        const prefix = /^\(\?(?::|<\w+>)/.exec(body.slice(at))?.[0];
        if (prefix === undefined) refuse('a group of unknown kind');
        else at += prefix.length - 1;
      }
      open.push({ repeats: false, branches: false });
    } else if (char === ')') {
      const group = open.length > 1 ? open.pop() : undefined;
      if (group === undefined) return refuse('a ")" without its "("');
      closed = group;
    } else if (char === '|') {
      for (const group of open) group.branches = true;
    }
  }
  return { unbounded };
}
