import { waitBucketsS } from '../core/room/measures.ts';
import type { MeasuresSnapshot } from '../core/room/measures.ts';
import type { Metrics, Tell } from './metrics.ts';

/** What the rooms of a process say of themselves at a scrape. */
export interface RoomsReading {
  readonly measures: MeasuresSnapshot;
  /** Per lane of every room: share of past forecasts that held, where it is known. */
  readonly heldRatios: readonly number[];
  readonly released: number;
  readonly waiting: number;
  readonly active: number;
  readonly missed: number;
}

type Read = () => RoomsReading | undefined;

/** Passes per entry, and accounts per device, in words: the last bucket is open. */
const perOneNames = ['one', 'two', 'three', 'four', 'five', 'more'] as const;
const tenthNames = [
  'first',
  'second',
  'third',
  'fourth',
  'fifth',
  'sixth',
  'seventh',
  'eighth',
  'ninth',
  'tenth',
  'late',
] as const;

/** Fairness and forecasts of the rooms. `requests` are all that came in, for the effort per person. */
export function registerRooms(metrics: Metrics, read: Read, requests: () => number): void {
  const from =
    (tellAll: (reading: RoomsReading, tell: Tell) => void) =>
    (tell: Tell): void => {
      const reading = read();
      if (reading !== undefined) tellAll(reading, tell);
    };
  metrics.gauge(
    {
      name: 'sluice_room_people',
      help: 'People as the release state has them: waiting, let in and not finished, let in so far, and of these those who let it pass.',
      labels: ['state'],
    },
    from(({ waiting, active, released, missed }, tell) => {
      tell(waiting, 'waiting');
      tell(active, 'active');
      tell(released, 'released');
      tell(missed, 'missed');
    }),
  );
  metrics.counter(
    {
      name: 'sluice_pass_issued_total',
      help: 'New passes; asking again is not counted.',
      labels: [],
    },
    from(({ measures }, tell) => tell(sum(measures.passesPerEntry))),
  );
  metrics.gauge(
    {
      name: 'sluice_admission_rate_by_network_class',
      help: 'Share of those who joined from such a network that took a pass.',
      labels: ['class'],
    },
    from(({ measures }, tell) => {
      for (const { name, joined, admitted } of measures.byNetwork)
        rate(tell, joined, admitted, name);
    }),
  );
  metrics.gauge(
    {
      name: 'sluice_admission_rate_by_device_class',
      help: 'Share of those who joined with such a device that took a pass.',
      labels: ['class'],
    },
    from(({ measures }, tell) => {
      for (const { name, joined, admitted } of measures.byDevice)
        rate(tell, joined, admitted, name);
    }),
  );
  metrics.gauge(
    {
      name: 'sluice_admission_rate_by_arrival',
      help: 'Share of those who joined in that tenth of the lobby, or after it, that took a pass.',
      labels: ['tenth'],
    },
    from(({ measures }, tell) => {
      measures.byArrival.forEach(({ joined, admitted }, at) =>
        rate(tell, joined, admitted, tenthNames[at] ?? 'late'),
      );
    }),
  );
  metrics.counter(
    {
      name: 'sluice_passes_per_user',
      help: 'Passes by which of its entry they were.',
      labels: ['pass'],
    },
    from(({ measures }, tell) => {
      measures.passesPerEntry.forEach((count, at) => tell(count, perOneNames[at] ?? 'more'));
    }),
  );
  metrics.counter(
    {
      name: 'sluice_accounts_per_device',
      help: 'Accounts that joined, by how many had come from the same device, themselves included.',
      labels: ['accounts'],
    },
    from(({ measures }, tell) => {
      measures.accountsPerDevice.forEach((count, at) => tell(count, perOneNames[at] ?? 'more'));
    }),
  );
  metrics.gauge(
    {
      name: 'sluice_success_concentration',
      help: 'Gini coefficient of passes over the networks that joined: 0 alike, towards 1 all in one place.',
      labels: [],
    },
    from(({ measures }, tell) => tell(measures.concentration)),
  );
  metrics.counted(
    { name: 'sluice_room_wait_seconds', help: 'From joining to the pass.' },
    waitBucketsS,
    () => read()?.measures.waits,
  );
  metrics.gauge(
    {
      name: 'sluice_eta_held_ratio',
      help: 'Share of past forecasts that held, in the line where it is lowest.',
      labels: [],
    },
    from(({ heldRatios }, tell) => {
      if (heldRatios.length > 0) tell(Math.min(...heldRatios));
    }),
  );
  metrics.gauge(
    {
      name: 'sluice_requests_per_released_person',
      help: 'Requests that came in for each person let in.',
      labels: [],
    },
    from(({ released }, tell) => {
      if (released > 0) tell(requests() / released);
    }),
  );
}

/** No rate of nobody. */
function rate(tell: Tell, joined: number, admitted: number, label: string): void {
  if (joined > 0) tell(admitted / joined, label);
}

const sum = (counts: readonly number[]): number => counts.reduce((all, count) => all + count, 0);
