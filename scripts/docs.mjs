// Writes the tables of docs/CONFIG.md and docs/METRICS.md, and docs/config.schema.json, from the code.
// Tests compare them, both ways; this saves the typing. Run after a build: node scripts/docs.mjs
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const { publishedSchema } = await import('../dist/config/schema.js');
const { settingsTable } = await import('../dist/config/show.js');
const { metricsTable } = await import('../dist/telemetry/catalogue.js');

/** Replaces the one table of a document whose first column is `heading`. */
function replaceTable(path, heading, table) {
  const lines = readFileSync(join(root, path), 'utf8').split('\n');
  const first = lines.findIndex((line) => line.startsWith(`| ${heading} |`));
  if (first < 0) throw new Error(`${path}: found no table that begins with "${heading}"`);
  let end = first;
  while (lines[end]?.startsWith('|')) end += 1;
  lines.splice(first, end - first, ...table.split('\n'));
  writeFileSync(join(root, path), lines.join('\n'));
}

replaceTable('docs/CONFIG.md', 'setting', settingsTable());
replaceTable('docs/METRICS.md', 'metric', metricsTable());
const schema = JSON.stringify(publishedSchema(), undefined, 2);
writeFileSync(join(root, 'docs/config.schema.json'), `${schema}\n`);
console.log('docs: tables written; run `npm run format` for the schema');
