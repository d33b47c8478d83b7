// Runs the `sluice` command from a checkout, building first when dist/ is older than its sources.
import { existsSync, statSync } from 'node:fs';
import { buildAll, newestSourceMs, stampFile } from './build.mjs';

if (!existsSync(stampFile) || statSync(stampFile).mtimeMs < newestSourceMs()) await buildAll();
await import('../dist/main.js');
