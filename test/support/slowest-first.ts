import { BaseSequencer } from 'vitest/node';
import type { TestSpecification } from 'vitest/node';

/** Files that take a minute, which a worker that comes to them last would take alone. */
const slow = [
  'rush-guards',
  'crash',
  'pages-browser',
  'pages',
  'rush-stand-in',
  'readme',
  'cluster',
  'room-loop',
  'http-fuzz',
].map((name) => `/${name}.test.ts`);

const rank = ({ moduleId }: TestSpecification): number => {
  const at = slow.findIndex((name) => moduleId.endsWith(name));
  return at < 0 ? slow.length : at;
};

/** The slowest files first, the others as ever. */
export class SlowestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    return sorted.sort((one, other) => rank(one) - rank(other));
  }
}
