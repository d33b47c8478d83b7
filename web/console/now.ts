import { actionsCard } from './actions.ts';
import type { Me, Overview, Point } from './api.ts';
import {
  type Card,
  type Formats,
  funnelCard,
  instancesCard,
  modeCard,
  refusalsCard,
  roomsCard,
  shareCard,
  stockCard,
} from './cards.ts';
import { h, setText } from './dom.ts';
import { type Line, type Plot, makePlot } from './plots.ts';
import type { Words } from './words.ts';

/** Reasons drawn apart in the plot; the rest together. */
const reasonsShown = 7;
const keepPoints = 600;

const reasonColours = ['--c1', '--c2', '--c3', '--c4', '--c5', '--c6', '--c7'];

export interface NowView {
  readonly element: HTMLElement;
  restore(points: readonly Point[], reasons: readonly string[]): void;
  show(overview: Overview, point: Point | null, reasons: readonly string[]): void;
  destroy(): void;
}

/** The sale as it is: figures, stock that adds up, funnel, plots, tables. */
export function nowView(
  words: Words,
  formats: Formats,
  me: Me,
  say: (text: string) => void,
): NowView {
  let points: Point[] = [];
  let reasons: readonly string[] = [];
  let shownReasons = '';

  const tileNames = [
    'arrivals',
    'refused',
    'reserved',
    'ordered',
    'paid',
    'p99',
    'queue',
    'waiting',
  ] as const;
  const tileValues = tileNames.map(() => h('strong', {}, '–'));
  const tiles = h(
    'dl',
    { class: 'tiles' },
    ...tileNames.map((name, at) =>
      h(
        'div',
        { class: `tile ${name}` },
        h('dt', {}, words.tiles[name]),
        h('dd', {}, tileValues[at]),
      ),
    ),
  );

  const cards: Card[] = [
    stockCard(words, formats),
    funnelCard(words, formats),
    modeCard(words, formats),
    shareCard(words, formats),
    actionsCard(words, me, say),
    roomsCard(words, formats),
    refusalsCard(words, formats),
    instancesCard(words, formats),
  ];
  const [stock, funnel, mode, share, act, rooms, refusals, instances] = cards.map(
    (one) => one.element,
  );

  const plot = (title: string, lines: readonly Line[], stacked = false): Plot =>
    makePlot({ title, lines, stacked, tag: words.tag });
  const { series } = words;
  const flow = plot(words.flowTitle, [
    { name: series.arrivals, colour: '--arrivals' },
    { name: series.refused, colour: '--refused' },
    { name: series.reserved, colour: '--reserved' },
    { name: series.ordered, colour: '--ordered' },
    { name: series.paid, colour: '--paid' },
  ]);
  const why = plot(words.reasonsTitle, [], true);
  const latency = plot(words.latencyTitle, [
    { name: series.p50, colour: '--reserved' },
    { name: series.p99, colour: '--ordered' },
    { name: series.refusedP99, colour: '--refused' },
  ]);
  const queue = plot(words.queueTitle, [
    { name: series.depth, colour: '--reserved' },
    { name: series.age, colour: '--refused', axis: 'right' },
  ]);
  const stockPlot = plot(
    words.stockOverTime,
    [
      { name: words.stock.available, colour: '--available' },
      { name: words.stock.held, colour: '--held' },
      { name: words.stock.pending, colour: '--pending' },
      { name: words.stock.paid, colour: '--paid' },
    ],
    true,
  );
  const plots = [flow, why, latency, queue, stockPlot];

  const draw = (): void => {
    const times = points.map((point) => Date.parse(point.taken_at));
    const column = (pick: (point: Point) => number | null): (number | null)[] => points.map(pick);
    flow.draw(times, [
      column((p) => p.arrivals_per_second),
      column((p) => p.refused_per_second),
      column((p) => p.reserved_per_second),
      column((p) => p.ordered_per_second),
      column((p) => p.paid_per_second),
    ]);
    latency.draw(times, [
      column((p) => p.p50_ms),
      column((p) => p.p99_ms),
      column((p) => p.refused_p99_ms),
    ]);
    queue.draw(times, [column((p) => p.queue_depth), column((p) => p.queue_age_ms)]);
    stockPlot.draw(times, [
      column((p) => p.stock?.available ?? null),
      column((p) => p.stock?.held ?? null),
      column((p) => p.stock?.pending ?? null),
      column((p) => p.stock?.paid ?? null),
    ]);
    drawReasons(times);
  };

  const drawReasons = (times: readonly number[]): void => {
    const sums = reasons.map((_, at) => points.reduce((sum, p) => sum + (p.reasons[at] ?? 0), 0));
    const order = reasons.map((_, at) => at).filter((at) => (sums[at] ?? 0) > 0);
    order.sort((a, b) => (sums[b] ?? 0) - (sums[a] ?? 0));
    // In the order of first sight, not of size: colours must not jump while two reasons race.
    const top = order.slice(0, reasonsShown).sort((a, b) => a - b);
    const rest = order.slice(reasonsShown);
    const names = [
      ...top.map((at) => reasons[at] ?? ''),
      ...(rest.length > 0 ? [series.other] : []),
    ];
    if (names.join() !== shownReasons) {
      shownReasons = names.join();
      why.relabel(names.map((name, at) => ({ name, colour: reasonColours[at] ?? '--arrivals' })));
    }
    const columns = top.map((at) => points.map((p) => p.reasons[at] ?? 0));
    if (rest.length > 0)
      columns.push(points.map((p) => rest.reduce((sum, at) => sum + (p.reasons[at] ?? 0), 0)));
    why.draw(times, columns);
  };

  const queueText = (queue: NonNullable<Overview['queue']>): string =>
    queue.buried === 0
      ? formats.span(queue.oldest_age_ms)
      : `${formats.span(queue.oldest_age_ms)} · ${words.buried(formats.count(queue.buried))}`;

  const showTiles = (overview: Overview, point: Point | null): void => {
    const rate = (value: number | undefined): string =>
      value === undefined ? '–' : formats.count(Math.round(value));
    const texts = [
      rate(point?.arrivals_per_second),
      rate(point?.refused_per_second),
      rate(point?.reserved_per_second),
      rate(point?.ordered_per_second),
      rate(point?.paid_per_second),
      overview.latency.admitted === null ? '–' : formats.span(overview.latency.admitted.p99_ms),
      overview.queue === null ? '–' : queueText(overview.queue),
      formats.count(overview.rooms.reduce((sum, room) => sum + room.waiting, 0)),
    ];
    tileValues.forEach((value, at) => setText(value, texts[at] ?? ''));
  };

  return {
    element: h(
      'div',
      { class: 'grid' },
      tiles,
      h('div', { class: 'half' }, stock, flow.element),
      h('div', { class: 'half' }, funnel, refusals),
      h('div', { class: 'trio' }, mode, share, act),
      stockPlot.element,
      why.element,
      latency.element,
      queue.element,
      rooms,
      instances,
    ),
    restore(earlier, names) {
      points = earlier.slice(-keepPoints);
      reasons = names;
      draw();
    },
    show(overview, point, names) {
      reasons = names;
      if (point !== null) {
        points.push(point);
        if (points.length > keepPoints) points.shift();
      }
      showTiles(overview, point);
      for (const one of cards) one.show(overview);
      if (!document.hidden) draw();
    },
    destroy() {
      for (const one of plots) one.destroy();
    },
  };
}
