/** A plot as one SVG file: a few lines over one axis each, readable in any browser and in print. */
export interface PlotLine {
  readonly name: string;
  readonly points: readonly (readonly [x: number, y: number])[];
  /** What is computed rather than measured. */
  readonly dashed?: boolean;
}

export interface Plot {
  readonly title: string;
  readonly xName: string;
  readonly yName: string;
  readonly lines: readonly PlotLine[];
  /** A horizontal mark, such as a goal. */
  readonly mark?: number;
}

const [width, height, left, top, bottom] = [760, 380, 64, 44, 74];
const colours = ['#1a6dd6', '#c0392b', '#2e8b57', '#8e5bb5', '#a0670c', '#555555'];

/** Round steps of an axis up to `max`: 1, 2 or 5 times a power of ten. */
function ticks(max: number): readonly number[] {
  if (!(max > 0)) return [0, 1];
  const power = 10 ** Math.floor(Math.log10(max / 5));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= max / 5) ?? max;
  return Array.from({ length: Math.ceil(max / step - 1e-9) + 1 }, (_, at) => at * step);
}

const short = (value: number): string => String(Number(value.toPrecision(3)));
const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');

export function plotSvg({ title, xName, yName, lines, mark }: Plot): string {
  const points = lines.flatMap((line) => line.points);
  const xTicks = ticks(Math.max(...points.map(([x]) => x)));
  const yTicks = ticks(Math.max(mark ?? 0, ...points.map(([, y]) => y)));
  const xMax = xTicks.at(-1) ?? 1;
  const yMax = yTicks.at(-1) ?? 1;
  const x = (value: number): string => (left + (value / xMax) * (width - left - 16)).toFixed(1);
  const y = (value: number): string =>
    (height - bottom - (value / yMax) * (height - bottom - top)).toFixed(1);
  const right = width - 16;
  const grid = yTicks.map(
    (tick) =>
      `<line x1="${left}" x2="${right}" y1="${y(tick)}" y2="${y(tick)}" stroke="#ddd"/><text x="${left - 8}" y="${y(tick)}" text-anchor="end" dy="4">${short(tick)}</text>`,
  );
  const marks = xTicks.map(
    (tick) =>
      `<text x="${x(tick)}" y="${height - bottom + 18}" text-anchor="middle">${short(tick)}</text>`,
  );
  const goal =
    mark === undefined
      ? ''
      : `<line x1="${left}" x2="${right}" y1="${y(mark)}" y2="${y(mark)}" stroke="#888" stroke-dasharray="2 4"/>`;
  const drawn = lines.map((line, at) => {
    const path = line.points.map(([px, py]) => `${x(px)},${y(py)}`).join(' ');
    const dashes = line.dashed === true ? ' stroke-dasharray="7 5"' : '';
    return `<polyline fill="none" stroke="${colours[at % colours.length]}" stroke-width="2"${dashes} points="${path}"/>`;
  });
  const legend = lines.map((line, at) => {
    const lx = left + (at % 3) * 230;
    const ly = height - 26 + Math.floor(at / 3) * 16;
    return `<rect x="${lx}" y="${ly - 8}" width="16" height="4" fill="${colours[at % colours.length]}"/><text x="${lx + 22}" y="${ly}">${escaped(line.name)}</text>`;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12" fill="#333">`,
    `<rect width="${width}" height="${height}" fill="#fff"/>`,
    `<text x="${left}" y="18" font-size="15">${escaped(title)}</text>`,
    `<text x="${left}" y="35" fill="#666">${escaped(yName)} over ${escaped(xName)}</text>`,
    ...grid,
    ...marks,
    goal,
    ...drawn,
    ...legend,
    '</svg>\n',
  ].join('\n');
}
