import { describe, expect, test } from 'vitest';
import { Drawer, EntryIdMaker } from '../../src/core/room/draw.ts';
import { SeededRandom } from '../support/world.ts';

/**
 * Many draws, and whether anything about a person that the room could know has to do with their place.
 * Every statistic is compared with what chance alone would give, and each is shown to notice a draw
 * that is not fair. Seeds are fixed: the same draws every time.
 */
const draws = 400;
const people = 300;

interface Somebody {
  readonly userId: string;
  readonly arrival: number;
  readonly device: 'phone' | 'desktop' | 'tablet';
  readonly network: string;
}

const crowd: readonly Somebody[] = Array.from({ length: people }, (_, at) => ({
  // Ids as they come in real life: counted, with a few shapes.
  userId: at % 3 === 0 ? `user-${at}` : at % 3 === 1 ? `${1_000_000 + at}` : `a${at}@mail.example`,
  arrival: at,
  device: at % 5 === 0 ? 'tablet' : at % 2 === 0 ? 'phone' : 'desktop',
  network: ['10.0', '10.1', '192.168', '2001:db8'][Math.floor(at / 75)] ?? '',
}));

/** Gives each person of a draw a key; ascending keys are the order. */
type Draw = (round: number, somebody: Somebody) => number;

const random = new SeededRandom('fairness');
const drawers = Array.from(
  { length: draws },
  () => new Drawer(random.bytes(32), random.bytes(32), new Uint8Array(0)),
);
const ids = Array.from({ length: draws }, (_, round) => {
  const maker = new EntryIdMaker(random.bytes(32), `activity-${round}`);
  return crowd.map(({ userId }) => maker.idOf(userId));
});
const ours: Draw = (round, { arrival }) => drawers[round]!.valueOf(ids[round]![arrival]!);

/** Places from 0, by arrival, for every draw. */
function placesOf(draw: Draw): number[][] {
  return Array.from({ length: draws }, (_, round) => {
    const order = crowd
      .map((somebody) => ({ arrival: somebody.arrival, key: draw(round, somebody) }))
      .sort((a, b) => a.key - b.key);
    const places = Array.from({ length: people }, () => 0);
    order.forEach(({ arrival }, place) => {
      places[arrival] = place;
    });
    return places;
  });
}

function chiSquare(observed: readonly number[], expected: readonly number[]): number {
  return observed.reduce((sum, count, at) => {
    const wanted = expected[at]!;
    return sum + (count - wanted) ** 2 / wanted;
  }, 0);
}

/** Standard deviations by which a chi-square lies above its mean (Wilson and Hilferty's cube root). */
function chiSquareZ(value: number, freedom: number): number {
  const cube = Math.cbrt(value / freedom);
  return (cube - (1 - 2 / (9 * freedom))) / Math.sqrt(2 / (9 * freedom));
}

/** How far winners (the first tenth) by class are from the classes' shares, in standard deviations. */
function classZ(places: readonly number[][], classOf: (somebody: Somebody) => string): number {
  const names = [...new Set(crowd.map((each) => classOf(each)))];
  const cut = people / 10;
  const won = names.map(() => 0);
  for (const round of places) {
    round.forEach((place, arrival) => {
      if (place < cut) won[names.indexOf(classOf(crowd[arrival]!))]! += 1;
    });
  }
  const sizes = names.map((name) => crowd.filter((each) => classOf(each) === name).length);
  const expected = sizes.map((size) => (size / people) * cut * draws);
  // Drawing without replacement varies a little less: (N − n)/(N − 1).
  const shrink = (people - cut) / (people - 1);
  return chiSquareZ(chiSquare(won, expected) / shrink, names.length - 1);
}

/** Mean Spearman correlation of arrival and place over all draws, in its standard deviations. */
function arrivalZ(places: readonly number[][]): number {
  const rho = (round: readonly number[]): number => {
    const squares = round.reduce((sum, place, arrival) => sum + (place - arrival) ** 2, 0);
    return 1 - (6 * squares) / (people * (people ** 2 - 1));
  };
  const mean = places.reduce((sum, round) => sum + rho(round), 0) / draws;
  return mean * Math.sqrt((people - 1) * draws);
}

/** Whether each tenth of the places is as likely as the next for these people, in deviations. */
function placeZ(places: readonly number[][], who: readonly number[]): number {
  const counts = Array.from({ length: 10 }, () => 0);
  for (const round of places) {
    for (const arrival of who) counts[Math.floor((round[arrival]! * 10) / people)]! += 1;
  }
  const expected = counts.map(() => (draws * who.length) / 10);
  return chiSquareZ(chiSquare(counts, expected), 9);
}

/** One false alarm in 30,000 for each; there are a dozen, all at fixed seeds. */
const limit = 4;

describe('a place has nothing to do with', () => {
  const places = placesOf(ours);

  test('the time of arrival', () => {
    expect(Math.abs(arrivalZ(places))).toBeLessThan(limit);
    expect(placeZ(places, [0])).toBeLessThan(limit);
    expect(placeZ(places, [people - 1])).toBeLessThan(limit);
    const early = crowd.slice(0, 10).map((each) => each.arrival);
    expect(placeZ(places, early)).toBeLessThan(limit);
  });

  test('the user id', () => {
    expect(classZ(places, ({ userId }) => userId.replace(/\d/g, ''))).toBeLessThan(limit);
    expect(classZ(places, ({ userId }) => userId.slice(-1))).toBeLessThan(limit);
    expect(classZ(places, ({ userId }) => String(userId.length))).toBeLessThan(limit);
  });

  test('the device or the network', () => {
    expect(classZ(places, ({ device }) => device)).toBeLessThan(limit);
    expect(classZ(places, ({ network }) => network)).toBeLessThan(limit);
  });

  test('the place next to it: values are independent', () => {
    let above = 0;
    for (const round of places) {
      for (let at = 1; at < people; at += 1) if (round[at]! > round[at - 1]!) above += 1;
    }
    const pairs = draws * (people - 1);
    // The count of rises in a random permutation has variance (n + 1)/12 (Eulerian numbers).
    const deviation = Math.sqrt((draws * (people + 1)) / 12);
    expect(Math.abs(above - pairs / 2) / deviation).toBeLessThan(limit);
  });

  test('anything, from one draw to the next', () => {
    const [first, second] = [places[0]!, places[1]!];
    const squares = first.reduce((sum, place, at) => sum + (place - second[at]!) ** 2, 0);
    const rho = 1 - (6 * squares) / (people * (people ** 2 - 1));
    expect(Math.abs(rho) * Math.sqrt(people - 1)).toBeLessThan(limit);
  });

  test('control: a draw that leans a little is noticed by each of them', () => {
    const leaning = (lean: (somebody: Somebody) => number): number[][] =>
      placesOf((round, somebody) => ours(round, somebody) - lean(somebody));
    const early = leaning(({ arrival }) => (arrival < people / 2 ? 0.02 : 0));
    expect(Math.abs(arrivalZ(early))).toBeGreaterThan(limit);
    const phones = leaning(({ device }) => (device === 'phone' ? 0.02 : 0));
    expect(classZ(phones, ({ device }) => device)).toBeGreaterThan(limit);
    const one = leaning(({ arrival }) => (arrival === 0 ? 0.2 : 0));
    expect(placeZ(one, [0])).toBeGreaterThan(limit);
    const net = leaning(({ network }) => (network === '10.0' ? 0.02 : 0));
    expect(classZ(net, ({ network }) => network)).toBeGreaterThan(limit);
  });
});

describe('weights are honoured within their expected error', () => {
  const weights = [1, 1, 2, 3, 5, 8];
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const rounds = 20_000;
  const maker = new EntryIdMaker(new Uint8Array(32).fill(5), 'weights');
  const drawer = new Drawer(new Uint8Array(32).fill(6), new Uint8Array(32), new Uint8Array(0));

  /** Who comes first and second in each of many lotteries among six people. */
  function podiums(key: (id: string, weight: number) => number): {
    first: number[];
    second: number[];
  } {
    const first = weights.map(() => 0);
    const second = weights.map(() => 0);
    for (let round = 0; round < rounds; round += 1) {
      const order = weights
        .map((weight, at) => ({ at, key: key(maker.idOf(`${round}/${at}`), weight) }))
        .sort((a, b) => a.key - b.key);
      first[order[0]!.at]! += 1;
      second[order[1]!.at]! += 1;
    }
    return { first, second };
  }

  const expectedFirst = weights.map((weight) => (weight / total) * rounds);
  const expectedSecond = weights.map((weight, at) =>
    weights.reduce(
      (sum, other, first) =>
        first === at ? sum : sum + (other / total) * (weight / (total - other)) * rounds,
      0,
    ),
  );

  test('first and second place', () => {
    const { first, second } = podiums((id, weight) => drawer.keyOf(id, weight, true));
    expect(chiSquareZ(chiSquare(first, expectedFirst), 5)).toBeLessThan(limit);
    expect(chiSquareZ(chiSquare(second, expectedSecond), 5)).toBeLessThan(limit);
  });

  test('control: the obvious wrong way (value ÷ weight) is noticed', () => {
    const { first } = podiums((id, weight) => drawer.valueOf(id) / weight);
    expect(chiSquareZ(chiSquare(first, expectedFirst), 5)).toBeGreaterThan(limit);
  });
});
