import type { Overview, Stock } from './api.ts';
import { h, setRows, setText, svg, table } from './dom.ts';
import type { Words } from './words.ts';

/** A part of the page that rewrites itself from an overview. */
export interface Card {
  readonly element: HTMLElement;
  show(overview: Overview): void;
}

export interface Formats {
  readonly count: (value: number) => string;
  readonly share: (value: number) => string;
  readonly time: (iso: string) => string;
  readonly span: (ms: number) => string;
}

export function makeFormats(tag: string): Formats {
  const count = new Intl.NumberFormat(tag);
  const share = new Intl.NumberFormat(tag, { style: 'percent', maximumFractionDigits: 1 });
  const time = new Intl.DateTimeFormat(tag, {
    month: 'short',
    day: 'numeric',
    hour: '2-digit',
    minute: '2-digit',
    second: '2-digit',
    hourCycle: 'h23',
  });
  return {
    count: (value) => count.format(value),
    share: (value) => share.format(value),
    time: (iso) => time.format(Date.parse(iso)),
    span: (ms) => {
      if (ms < 1_000) return `${Math.round(ms)} ms`;
      if (ms < 120_000) return `${(ms / 1000).toFixed(1)} s`;
      if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
      return `${Math.round(ms / 3_600_000)} h`;
    },
  };
}

const card = (title: string, kind: string, ...children: (Node | string)[]): HTMLElement =>
  h('section', { class: `card ${kind}` }, h('h2', {}, title), ...children);

const stockParts = ['paid', 'pending', 'held', 'available'] as const;

/** Each SKU as a bar, and under it the sum written out, with the verdict. */
export function stockCard(words: Words, formats: Formats): Card {
  const list = h('div', { class: 'stocks' });
  const stale = h('p', { class: 'fine bad', hidden: true }, words.notMeasured);
  const element = card(words.stockTitle, 'stock', list, stale);
  const rows = new Map<string, ReturnType<typeof stockRow>>();
  return {
    element,
    show(overview) {
      stale.hidden = overview.stock.length > 0;
      for (const stock of overview.stock) {
        const key = `${stock.activity_id}/${stock.sku_id}`;
        let row = rows.get(key);
        if (row === undefined) {
          row = stockRow(words, formats, stock);
          rows.set(key, row);
          list.append(row.element);
        }
        row.show(stock);
      }
    },
  };
}

function stockRow(words: Words, formats: Formats, first: Stock) {
  const bars = stockParts.map((part) =>
    svg('rect', { class: `part ${part}`, y: 0, height: 10, x: 0, width: 0 }),
  );
  const bar = svg(
    'svg',
    { class: 'bar', viewBox: '0 0 100 10', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    ...bars,
  );
  const total = h('b');
  const numbers = stockParts.map(() => h('b'));
  const verdict = h('span', { class: 'verdict' });
  const sum = h(
    'p',
    { class: 'sum' },
    h('span', {}, `${words.total} `, total),
    ' = ',
    ...stockParts.flatMap((part, at) => [
      h('span', {}, h('i', { class: `dot ${part}` }), `${words.stock[part]} `, numbers[at]),
      at < stockParts.length - 1 ? ' + ' : ' ',
    ]),
    verdict,
  );
  const element = h(
    'div',
    { class: 'sku' },
    h('h3', {}, first.name, ' ', h('small', {}, first.activity_id)),
    bar,
    sum,
  );
  return {
    element,
    show(stock: Stock): void {
      const parts = stockParts.map((part) => stock[part]);
      const found = parts.reduce((all, one) => all + one, 0);
      let x = 0;
      parts.forEach((value, at) => {
        const width = (100 * value) / Math.max(1, stock.total, found);
        bars[at]?.setAttribute('x', x.toFixed(3));
        bars[at]?.setAttribute('width', width.toFixed(3));
        x += width;
        const number = numbers[at];
        if (number !== undefined) setText(number, formats.count(value));
      });
      setText(total, formats.count(stock.total));
      const off = stock.total - found;
      verdict.className = off === 0 ? 'verdict good' : 'verdict bad';
      setText(verdict, off === 0 ? words.addsUp : words.addsNot(formats.count(off)));
    },
  };
}

/** Steps from the edge to the paid order. Bars are by square root: the first is a thousand times the last. */
export function funnelCard(words: Words, formats: Formats): Card {
  const list = h('ol', { class: 'funnel' });
  const rows = new Map<string, { bar: SVGElement; count: HTMLElement; share: HTMLElement }>();
  return {
    element: card(words.funnelTitle, 'wide', list),
    show(overview) {
      const top = Math.max(1, ...overview.funnel.map((step) => step.count));
      overview.funnel.forEach((step, at) => {
        let row = rows.get(step.step);
        if (row === undefined) {
          const bar = svg('rect', { x: 0, y: 0, height: 10, width: 0 });
          row = { bar, count: h('b'), share: h('small') };
          rows.set(step.step, row);
          list.append(
            h(
              'li',
              {},
              h('span', { class: 'step' }, words.funnel[step.step] ?? step.step),
              svg(
                'svg',
                {
                  class: 'bar',
                  viewBox: '0 0 100 10',
                  preserveAspectRatio: 'none',
                  'aria-hidden': 'true',
                },
                bar,
              ),
              row.count,
              row.share,
            ),
          );
        }
        row.bar.setAttribute('width', (100 * Math.sqrt(step.count / top)).toFixed(2));
        setText(row.count, formats.count(step.count));
        const before = overview.funnel[at - 1];
        // Requests and people are two kinds of thing: no share from one to the other.
        const comparable = before !== undefined && before.step !== 'arrived' && before.count > 0;
        setText(
          row.share,
          comparable ? words.ofBefore(formats.share(step.count / before.count)) : '',
        );
      });
    },
  };
}

export function modeCard(words: Words, formats: Formats): Card {
  const name = h('strong', { class: 'modename' });
  const since = h('small');
  const text = h('p');
  const driver = h('p', { class: 'fine' });
  const extra = h('p', { class: 'fine' });
  const needle = svg('path', { class: 'needle', d: 'M0 0v16' });
  // 0 to 1.5; marks where each mode is entered.
  const gauge = svg(
    'svg',
    { class: 'gauge', viewBox: '-2 -2 154 20', 'aria-hidden': 'true' },
    svg('rect', { class: 'g0', x: 0, y: 4, width: 60, height: 8 }),
    svg('rect', { class: 'g1', x: 60, y: 4, width: 20, height: 8 }),
    svg('rect', { class: 'g2', x: 80, y: 4, width: 20, height: 8 }),
    svg('rect', { class: 'g3', x: 100, y: 4, width: 50, height: 8 }),
    needle,
  );
  return {
    element: card(
      words.modeTitle,
      'mode',
      h('p', { class: 'row' }, name, since),
      text,
      gauge,
      driver,
      extra,
    ),
    show({ mode }) {
      name.className = `modename ${mode.mode.toLowerCase()}`;
      setText(name, words.modes[mode.mode] ?? mode.mode);
      setText(since, words.since(formats.time(mode.since)));
      setText(text, words.modeTexts[mode.mode] ?? '');
      const z = mode.driver?.z ?? 0;
      needle.setAttribute(
        'transform',
        `translate(${Math.min(150, Math.max(0, z * 100)).toFixed(1)} 0)`,
      );
      setText(
        driver,
        mode.driver === null
          ? words.noDriver
          : words.driver(words.signals[mode.driver.signal] ?? mode.driver.signal, formats.share(z)),
      );
      setText(
        extra,
        mode.pinned_until !== undefined
          ? words.pinned(formats.time(mode.pinned_until))
          : mode.ramp !== undefined && mode.ramp < 1
            ? words.ramp(formats.share(mode.ramp))
            : '',
      );
    },
  };
}

/** The share of 429s against its band. The scale is by square root, so that 1–3% can be seen. */
export function shareCard(words: Words, formats: Formats): Card {
  const value = h('strong', { class: 'figure' });
  const text = h('p');
  const at = (share: number): number => 150 * Math.sqrt(Math.min(1, share / 0.25));
  const needle = svg('path', { class: 'needle', d: 'M0 0v16' });
  const gauge = svg(
    'svg',
    { class: 'gauge', viewBox: '-2 -2 154 20', 'aria-hidden': 'true' },
    svg('rect', { class: 'g1', x: 0, y: 4, width: at(0.01), height: 8 }),
    svg('rect', { class: 'g0', x: at(0.01), y: 4, width: at(0.03) - at(0.01), height: 8 }),
    svg('rect', { class: 'g1', x: at(0.03), y: 4, width: at(0.1) - at(0.03), height: 8 }),
    svg('rect', { class: 'g3', x: at(0.1), y: 4, width: 150 - at(0.1), height: 8 }),
    needle,
  );
  return {
    element: card(words.shareTitle, 'share', value, gauge, text),
    show({ limited_share: share }) {
      setText(value, share === null ? '–' : formats.share(share));
      needle.setAttribute('transform', `translate(${at(share ?? 0).toFixed(1)} 0)`);
      const bands = words.shareBands;
      setText(
        text,
        share === null
          ? words.shareNone
          : share === 0
            ? bands.loose
            : share < 0.01
              ? bands.low
              : share <= 0.03
                ? bands.healthy
                : share <= 0.1
                  ? bands.high
                  : bands.tight,
      );
    },
  };
}

export function roomsCard(words: Words, formats: Formats): Card {
  const { element, body } = table(words.roomsTitle, words.roomHeads);
  return {
    element: card(words.roomsTitle, 'wide', element),
    show({ rooms }) {
      setRows(
        body,
        rooms.map((room) => [
          room.name,
          words.phases[room.phase] ?? room.phase,
          words.roomStates[room.state] ?? room.state,
          ...[
            room.joined,
            room.waiting,
            room.released,
            room.claimed,
            room.finished,
            room.waves,
          ].map(formats.count),
        ]),
      );
    },
  };
}

export function refusalsCard(words: Words, formats: Formats): Card {
  const { element, body } = table(words.refusalsTitle, words.refusalHeads);
  const none = h('p', { class: 'fine' }, words.noRefusals);
  return {
    element: card(words.refusalsTitle, 'list', none, element),
    show({ refusals }) {
      none.hidden = refusals.length > 0;
      element.hidden = refusals.length === 0;
      const top = refusals.toSorted((a, b) => b.count - a.count).slice(0, 30);
      setRows(
        body,
        top.map((row) => [row.stage, row.reason, formats.count(row.count)]),
      );
    },
  };
}

export function instancesCard(words: Words, formats: Formats): Card {
  const { element, body } = table(words.instancesTitle, words.instanceHeads);
  const ledger = h('p', { class: 'fine' });
  return {
    element: card(words.instancesTitle, 'wide', element, ledger),
    show({ instances, ledger_residual: residual }) {
      setRows(
        body,
        instances.map((one) => [
          one.instance,
          one.roles.join(', '),
          words.modes[one.mode] ?? one.mode,
          `${formats.count(one.in_flight)} / ${formats.count(one.in_flight_limit)}`,
          formats.span(one.loop_delay_ms),
          `${formats.count(Math.round(one.memory_bytes / 1_048_576))} MiB`,
          formats.count(one.rules_version),
          formats.span(one.uptime_ms),
        ]),
      );
      ledger.className = residual === null || residual === 0 ? 'fine' : 'fine bad';
      setText(
        ledger,
        residual === null
          ? ''
          : `${words.ledger}: ${formats.count(residual)}. ${residual === 0 ? words.ledgerZero : words.ledgerOff(formats.count(residual))}`,
      );
    },
  };
}
