import { type Html, html, trusted } from './html.ts';

/**
 * Drawings, all inline and all decoration (`aria-hidden`): colours come from CSS classes, so that
 * they follow theme, dark mode and forced colours.
 */

/** FNV-1a: the same activity has the same picture everywhere. */
function hash(text: string): number {
  let value = 2166136261;
  for (let at = 0; at < text.length; at += 1)
    value = Math.imul(value ^ text.charCodeAt(at), 16777619) >>> 0;
  return value;
}

/** A calm wave across `width`, closed down to `floor`. */
function wave(width: number, floor: number, level: number, height: number, phase: number): string {
  const length = width / Math.max(3, Math.round(width / 180));
  let x = -((phase % 1) * length) - length;
  let path = `M${x.toFixed(1)} ${floor}V${level.toFixed(1)}`;
  while (x < width + length) {
    const half = length / 2;
    path += `q${(half / 2).toFixed(1)} ${(-height).toFixed(1)} ${half.toFixed(1)} 0t${half.toFixed(1)} 0`;
    x += length;
  }
  return `${path}V${floor}z`;
}

/**
 * The picture of an activity: a low sun over water, drawn from its id, so that every sale has a face
 * of its own without anybody uploading one.
 */
export function poster(activityId: string): Html {
  const seed = hash(activityId);
  const part = (shift: number, range: number): number => (((seed >>> shift) % 97) / 97) * range;
  const sunX = 310 + part(0, 180);
  const sunY = 58 + part(5, 34);
  const radius = 30 + part(9, 18);
  const layers = [
    ['w1', 104 + part(3, 10), 15 + part(6, 8), part(11, 1)],
    ['w2', 124 + part(8, 8), 12 + part(2, 8), part(14, 1)],
    ['w3', 146 + part(12, 6), 9 + part(4, 6), part(17, 1)],
  ] as const;
  const waves = layers
    .map(
      ([name, level, height, phase]) =>
        `<path class="${name}" d="${wave(800, 180, level, height, phase)}"/>`,
    )
    .join('');
  const rays = [0, 1, 2, 3]
    .map((line) => {
      const y = sunY + radius * 0.1 + line * radius * 0.26;
      const half = radius * (1.25 - line * 0.16);
      return `<path class="ray" d="M${(sunX - half).toFixed(1)} ${y.toFixed(1)}h${(half * 2).toFixed(1)}"/>`;
    })
    .join('');
  return trusted(
    `<svg class="poster" viewBox="0 0 800 180" preserveAspectRatio="xMidYMax slice" aria-hidden="true" focusable="false"><circle class="sun" cx="${sunX.toFixed(1)}" cy="${sunY.toFixed(1)}" r="${radius.toFixed(1)}"/>${rays}${waves}</svg>`,
  );
}

/** The gate: bars in moving water; lifted when it is one's turn. Wide, so that any card crops it well. */
export function gate(open: boolean): Html {
  const bars = Array.from({ length: 15 }, (_, index) => `<path d="M${24 + index * 48} 12V94"/>`);
  return trusted(
    `<svg class="gate${open ? ' open' : ''}" viewBox="0 0 720 120" preserveAspectRatio="xMidYMax slice" aria-hidden="true" focusable="false"><g class="flow back"><path d="${wave(1080, 120, 66, 9, 0.3)}"/></g><g class="bars">${bars.join('')}</g><path class="beam" d="M-9 12H729"/><g class="flow front"><path d="${wave(1080, 120, 84, 8, 0)}"/></g></svg>`,
  );
}

const markPath = trusted(
  '<svg class="mark" viewBox="0 0 32 32" aria-hidden="true" focusable="false"><path d="M9 6v9M16 6v6M23 6v9"/><path d="M5 21c2.5-2.4 5-2.4 7.300 0s5 2.400 7.400 0 5-2.400 7.300 0"/></svg>',
);

/** The operator's letters, or the built-in mark. */
export function mark(logoText: string): Html {
  return logoText === ''
    ? html`<span class="logo">${markPath}</span>`
    : html`<span class="logo letters" aria-hidden="true">${logoText}</span>`;
}

/** A large tick that says: done. */
export const seal = trusted(
  '<svg class="seal" viewBox="0 0 64 64" aria-hidden="true" focusable="false"><circle cx="32" cy="32" r="30"/><path d="M19 33l9 9 18-20"/></svg>',
);

export const tick = trusted(
  '<svg class="tick" viewBox="0 0 16 16" aria-hidden="true" focusable="false"><path d="M3 8.500l3.200 3.200L13 5"/></svg>',
);
