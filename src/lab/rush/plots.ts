/** Plots as SVG text: no library, no script, readable in any browser and in print. */

export interface Line {
  readonly name: string;
  /** One value per second. */
  readonly values: readonly number[];
  /** A CSS class that gives the colour. */
  readonly tone: string;
}

const width = 720;
const height = 200;
const left = 52;
const bottom = 24;
const top = 10;

/** Round numbers at which an axis up to `max` is marked: 1, 2 or 5 times a power of ten. */
export function ticksUpTo(max: number): number[] {
  if (!(max > 0)) return [0, 1];
  const rough = max / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough) ?? max;
  return Array.from({ length: Math.ceil(max / step) + 1 }, (_, at) => at * step);
}

/** Lines over seconds, on one scale, with a legend. */
export function linePlot(title: string, lines: readonly Line[]): string {
  const seconds = Math.max(2, ...lines.map(({ values }) => values.length));
  const highest = Math.max(1, ...lines.flatMap(({ values }) => values));
  const yTicks = ticksUpTo(highest);
  const yMax = yTicks[yTicks.length - 1] ?? 1;
  const x = (second: number): number => left + (second / (seconds - 1)) * (width - left - 10);
  const y = (value: number): number => height - bottom - (value / yMax) * (height - bottom - top);
  const drawn = lines.map(({ values, tone }) => {
    const points = Array.from(
      { length: seconds },
      (_, second) => `${round(x(second))},${round(y(values[second] ?? 0))}`,
    );
    return `<polyline class="${tone}" points="${points.join(' ')}"/>`;
  });
  const legend = lines
    .map(({ name, tone }) => `<span class="key ${tone}"></span>${escapeText(name)}`)
    .join(' ');
  return figure(
    title,
    [
      ...yTicks.map((tick) => gridLine(y(tick), label(tick))),
      ...ticksUpTo(seconds - 1)
        .filter((tick) => tick <= seconds - 1 && Number.isInteger(tick))
        .map((tick) => mark(x(tick), `${tick} s`)),
      ...drawn,
    ],
    legend,
  );
}

/** A distribution on a logarithmic axis: bars of [upper edge in ms, count]. */
export function histogramPlot(
  title: string,
  points: readonly (readonly [number, number])[],
  tone: string,
): string {
  const [first] = points;
  const last = points[points.length - 1];
  if (first === undefined || last === undefined) {
    return `<figure><figcaption>${escapeText(title)}: nothing was measured</figcaption></figure>`;
  }
  const low = Math.log10(first[0] / 1.05);
  const high = Math.max(low + 0.3, Math.log10(last[0] * 1.05));
  const x = (ms: number): number =>
    left + ((Math.log10(ms) - low) / (high - low)) * (width - left - 10);
  const most = Math.max(...points.map(([, count]) => count));
  const yTicks = ticksUpTo(most);
  const yMax = yTicks[yTicks.length - 1] ?? 1;
  const y = (count: number): number => height - bottom - (count / yMax) * (height - bottom - top);
  const bars = points.map(([edge, count]) => {
    const from = x(edge / 1.032);
    return `<rect class="${tone}" x="${round(from)}" y="${round(y(count))}" width="${round(Math.max(1, x(edge) - from))}" height="${round(height - bottom - y(count))}"/>`;
  });
  const decades = Array.from({ length: 12 }, (_, at) => 10 ** (at - 4)).filter(
    (ms) => Math.log10(ms) >= low && Math.log10(ms) <= high,
  );
  return figure(title, [
    ...yTicks.map((tick) => gridLine(y(tick), label(tick))),
    ...decades.map((ms) => mark(x(ms), `${ms} ms`)),
    ...bars,
  ]);
}

function figure(title: string, parts: readonly string[], legend = ''): string {
  const text = escapeText(title);
  return `<figure><figcaption>${text}<small>${legend}</small></figcaption><svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${text}">${parts.join('')}</svg></figure>`;
}

function gridLine(y: number, text: string): string {
  return `<line class="grid" x1="${left}" x2="${width - 10}" y1="${round(y)}" y2="${round(y)}"/><text x="${left - 6}" y="${round(y + 4)}" text-anchor="end">${text}</text>`;
}

function mark(x: number, text: string): string {
  return `<text x="${round(x)}" y="${height - 6}" text-anchor="middle">${text}</text>`;
}

function label(value: number): string {
  return value >= 10_000 ? `${Math.round(value / 100) / 10}k` : `${Math.round(value * 100) / 100}`;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

const escapes: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
};

/** Text that is safe in HTML and in quoted attributes. */
export function escapeText(text: string): string {
  return text.replaceAll(/[&<>"]/g, (char) => escapes[char] ?? char);
}
