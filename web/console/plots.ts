import uPlot from 'uplot';
import { h, setText } from './dom.ts';

/** One line of a plot; `colour` is the name of a CSS custom property. */
export interface Line {
  readonly name: string;
  readonly colour: string;
  readonly axis?: 'right';
}

export interface Plot {
  readonly element: HTMLElement;
  /** Times in ms, and one column for each line; null is a gap. */
  draw(times: readonly number[], columns: readonly (readonly (number | null)[])[]): void;
  /** Another set of lines: for plots whose reasons come and go. */
  relabel(lines: readonly Line[]): void;
  destroy(): void;
}

export interface PlotOptions {
  readonly title: string;
  readonly lines: readonly Line[];
  readonly tag: string;
  /** Areas on top of each other instead of lines. */
  readonly stacked?: boolean;
}

/** The picture fills its box, and is never lower than this, px. */
const heightMin = 190;

/**
 * A plot with its legend as text: the legend says the newest values, so that what the picture shows
 * is there for a screen reader too, and colour is never the only sign.
 */
export function makePlot(options: PlotOptions): Plot {
  const box = h('div', { class: 'canvas', 'aria-hidden': 'true' });
  const legend = h('ul', { class: 'legend' });
  const element = h(
    'figure',
    { class: 'card plot' },
    h('figcaption', {}, options.title),
    box,
    legend,
  );
  const compact = new Intl.NumberFormat(options.tag, {
    notation: 'compact',
    maximumFractionDigits: 1,
  });
  const exact = new Intl.NumberFormat(options.tag, { maximumFractionDigits: 1 });
  let lines = options.lines;
  let plot: uPlot | undefined;
  let values: HTMLElement[] = [];
  let last: uPlot.AlignedData = [[], ...lines.map(() => [])];

  const css = (name: string): string =>
    getComputedStyle(element).getPropertyValue(name).trim() || '#888';

  const build = (): void => {
    plot?.destroy();
    const axis = (side: number, scale: string): uPlot.Axis => ({
      scale,
      side,
      stroke: css('--ink-2'),
      grid: { show: side !== 1, stroke: css('--line'), width: 1 },
      ticks: { show: false },
      font: '12px system-ui, sans-serif',
      size: 48,
      values: (_plot, splits) => splits.map((value) => compact.format(value)),
    });
    plot = new uPlot(
      {
        width: Math.max(240, box.clientWidth),
        height: Math.max(heightMin, box.clientHeight),
        legend: { show: false },
        cursor: { points: { show: false }, drag: { x: false, y: false } },
        scales: {
          x: { time: true },
          y: { range: (_plot, _low, high) => [0, Math.max(1, (high ?? 0) * 1.08)] },
          right: { range: (_plot, _low, high) => [0, Math.max(1, (high ?? 0) * 1.08)] },
        },
        axes: [
          {
            stroke: css('--ink-2'),
            grid: { show: false },
            ticks: { show: false },
            font: '12px system-ui, sans-serif',
            space: 90,
            size: 30,
            values: (_plot, splits) =>
              splits.map((second) =>
                new Date(second * 1000).toLocaleTimeString(options.tag, { hourCycle: 'h23' }),
              ),
          },
          axis(3, 'y'),
          ...(lines.some((line) => line.axis === 'right') ? [axis(1, 'right')] : []),
        ],
        series: [
          {},
          ...lines.map(
            (line): uPlot.Series => ({
              label: line.name,
              scale: line.axis === 'right' ? 'right' : 'y',
              stroke: css(line.colour),
              width: options.stacked === true ? 1 : 2,
              ...(options.stacked === true ? { fill: `${css(line.colour)}cc` } : {}),
              points: { show: false },
              spanGaps: false,
            }),
          ),
        ],
      },
      last,
      box,
    );
  };

  const writeLegend = (): void => {
    values = lines.map(() => h('b'));
    legend.replaceChildren(
      ...lines.map((line, at) => {
        const swatch = h('i', { 'aria-hidden': 'true' });
        swatch.style.background = `var(${line.colour})`;
        return h('li', {}, swatch, h('span', {}, line.name), values[at]);
      }),
    );
  };

  const resize = new ResizeObserver(() => {
    if (plot !== undefined && box.clientWidth > 0)
      plot.setSize({ width: box.clientWidth, height: Math.max(heightMin, box.clientHeight) });
  });
  resize.observe(box);
  writeLegend();

  return {
    element,
    draw(times, columns) {
      columns.forEach((column, at) => {
        const newest = column.at(-1);
        const value = values[at];
        if (value !== undefined)
          setText(value, newest === null || newest === undefined ? '–' : exact.format(newest));
      });
      const seconds = times.map((time) => time / 1000);
      last = [
        seconds,
        ...(options.stacked === true ? stack(columns) : columns),
      ] as uPlot.AlignedData;
      if (!element.isConnected || document.hidden) return;
      if (plot === undefined) build();
      else plot.setData(last);
    },
    relabel(next) {
      lines = next;
      last = [[], ...lines.map(() => [])];
      writeLegend();
      plot?.destroy();
      plot = undefined;
      box.replaceChildren();
    },
    destroy() {
      resize.disconnect();
      plot?.destroy();
    },
  };
}

/** Each column on top of those after it, so that the first is drawn first and highest; gaps stay gaps. */
function stack(columns: readonly (readonly (number | null)[])[]): (number | null)[][] {
  const out: (number | null)[][] = [];
  let below: (number | null)[] = [];
  for (const column of columns.toReversed()) {
    const sums = column.map((value, at) => (value === null ? null : (below[at] ?? 0) + value));
    out.unshift(sums);
    below = sums;
  }
  return out;
}
