import { expect, test } from 'vitest';
import { shapedArrivals } from './arrivals.ts';
import { Dice } from './dice.ts';
import { Population, outcomeNames, stage, trait } from './population.ts';
import { botKinds, scenarios } from './scenarios.ts';

function crowd(seed: number, size = 2_000): Population {
  const dice = new Dice(seed);
  const scenario = { ...scenarios.even, bots: 0.2, duplicates: 0.5, timeouts: 0.1 };
  return new Population(size, scenario, shapedArrivals('constant', size, 1000, dice), dice);
}

test('shares are exact; traits of people only; every kind of bot is there', () => {
  const people = crowd(3);
  const all = Array.from({ length: people.size }, (_, person) => person);
  const humans = all.filter((person) => people.kind(person) === 'person');
  expect(humans).toHaveLength(1_600);
  const having = (bit: number): number[] => all.filter((person) => people.has(person, bit));
  expect(having(trait.duplicates)).toHaveLength(800);
  expect(having(trait.timeouts)).toHaveLength(160);
  expect(having(trait.duplicates).every((person) => people.kind(person) === 'person')).toBe(true);
  for (const kind of botKinds)
    expect(all.some((person) => people.kind(person) === kind)).toBe(true);
});

test('the same seed makes the same people, another seed others', () => {
  const kinds = (people: Population): string =>
    Array.from({ length: people.size }, (_, person) => people.kind(person)).join();
  expect(kinds(crowd(3))).toBe(kinds(crowd(3)));
  expect(kinds(crowd(4))).not.toBe(kinds(crowd(3)));
});

test('outcomes sum to the people settled; a truer outcome replaces, and is not counted twice', () => {
  const people = crowd(3, 50);
  for (let person = 0; person < 50; person += 1) people.settle(person, 'ordered');
  people.settle(0, 'expired');
  expect(people.settled).toBe(50);
  const counts = people.outcomes();
  expect(counts).toMatchObject({ ordered: 49, expired: 1 });
  expect(outcomeNames.reduce((sum, name) => sum + counts[name], 0)).toBe(50);
  expect(people.stage[0]).toBe(stage.done);
});

test('a rotator has another address at each request, a farm shares one, a household shares one', () => {
  const people = crowd(3);
  const all = Array.from({ length: 600 }, (_, person) => person);
  const rotator = all.find((person) => people.kind(person) === 'rotator')!;
  const first = people.address(rotator);
  people.used[rotator] = 1;
  expect(people.address(rotator)).not.toBe(first);
  const farm = all.filter((person) => people.kind(person) === 'farm');
  expect(farm.length).toBeGreaterThan(5);
  expect(new Set(farm.map((person) => people.address(person))).size).toBe(1);
});

test('tokens come back as they were kept', () => {
  const people = crowd(3, 3);
  people.keepUserToken(1, 'user.token');
  people.keepEntryToken(1, 'entry.token');
  people.keepEntryToken(1, 'entry.token');
  expect(people.userToken(1)).toBe('user.token');
  expect(people.entryToken(1)).toBe('entry.token');
  expect(people.userToken(0)).toBe('');
});
