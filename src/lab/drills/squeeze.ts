import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { parse, stringify } from 'yaml';
import { formatRate, parseRate } from '../../core/limit/rate.ts';
import { DrillCannotRunError, type Drill } from './drill.ts';
import { inMs, type Site } from './site.ts';
import { type Heard, isAnswer, type Visitor } from './visitor.ts';

/** The squeeze: what is left of the peak that the crowd has just shown. */
const share = 0.6;
const people = 10;
const eachEveryMs = 50;
const spanMs = 4_000;
/** A new version of the rules is in force at every gateway within this, ms. */
const inForceMs = 3_000;

/** What a crowd heard in one span. */
interface Crowd {
  readonly asked: number;
  /** Answered from the sale itself. */
  readonly fresh: number;
  /** Past the budget: the answer that was known last, marked as such. */
  readonly fallback: number;
  /** Health or a limit asked to wait, and said for how long. */
  readonly told: number;
  /** Left without any of these. */
  readonly stranded: number;
}

const nobody: Crowd = { asked: 0, fresh: 0, fallback: 0, told: 0, stranded: 0 };

/**
 * The budget of the whole cluster, cut to a part of the peak that is really there. The rule is one for
 * facts, whose fallback is the answer that was known last: nobody who asks what is on sale goes away
 * with nothing. It is put into the rules file as an operator would, and taken out again.
 */
export const squeeze: Drill<{
  readonly peakPerSecond: number;
  readonly squeezed: Crowd;
  readonly freshPerSecond: number;
  readonly backMs: number | undefined;
}> = {
  name: 'squeeze',
  about: 'the budget of facts, over all gateways, is squeezed to 60 % of the real peak',
  expected:
    'no more than the budget is answered from the sale; everybody past it gets the answer that was known last, marked so; all are served again within 3 s after',
  async observe(site) {
    const { rulesFile } = site.parts;
    if (rulesFile === undefined)
      throw new DrillCannotRunError('the cluster reads its rules from no file (rules_file)');
    const visitors = Array.from({ length: people }, () => site.visitor(true));
    const before = await crowd(site, visitors);
    const peakPerSecond = (before.fresh * 1_000) / spanMs;
    if (before.fresh < before.asked / 2)
      throw new DrillCannotRunError(
        `${before.fresh} of ${before.asked} are served before it: that is no peak`,
      );
    const text = readFileSync(rulesFile, 'utf8');
    const version = versionIn(text, rulesFile);
    site.undo('the rules as they were', () => replace(rulesFile, withVersion(text, version + 2)));
    replace(rulesFile, squeezedRules(text, version + 1, share * peakPerSecond));
    const isSqueezed = async (): Promise<boolean> =>
      (await crowd(site, visitors, 500)).fallback > 0;
    if (!(await site.within(inForceMs, isSqueezed)))
      throw new Error(`rules of version ${version + 1} are not in force after ${inForceMs} ms`);
    const squeezed = await crowd(site, visitors);
    replace(rulesFile, withVersion(text, version + 2));
    const backMs = await site.msUntil(inForceMs, async () => {
      const now = await crowd(site, visitors, 500);
      return now.asked > 0 && now.fallback === 0 && now.stranded === 0;
    });
    const freshPerSecond = (squeezed.fresh * 1_000) / spanMs;
    return { peakPerSecond, squeezed, freshPerSecond, backMs };
  },
  judge: ({ peakPerSecond, squeezed, freshPerSecond, backMs }) => {
    const { asked, fallback, told, stranded } = squeezed;
    return {
      holds:
        fallback > 0 &&
        stranded === 0 &&
        // The budget, and the burst of one second of it that it may begin with.
        freshPerSecond <= (1.05 + 1_000 / spanMs) * share * peakPerSecond &&
        freshPerSecond > 0 &&
        backMs !== undefined,
      seen: `peak ${Math.round(peakPerSecond)}/s; of ${asked} asked then ${Math.round(freshPerSecond)}/s were answered from the sale, ${fallback} with what was known last, ${told} were told when to ask again, ${stranded} went away with nothing; all served again ${inMs(backMs)} after`,
    };
  },
};

/** Everybody asks at a steady pace, whatever they hear. */
async function crowd(
  site: Site,
  visitors: readonly Visitor[],
  forMs: number = spanMs,
): Promise<Crowd> {
  const endMs = site.nowMs() + forMs;
  const heard = await Promise.all(
    visitors.map(async (visitor, at) => {
      await site.sleep((at * eachEveryMs) / visitors.length);
      const mine: Heard[] = [];
      for (let dueMs = site.nowMs(); dueMs < endMs; dueMs += eachEveryMs) {
        await site.sleep(Math.max(0, dueMs - site.nowMs()));
        mine.push(await visitor.ask('GET', `/v1/activities/${site.parts.activityId}`));
      }
      return mine;
    }),
  );
  return heard.flat().reduce<Crowd>((sum, one) => {
    const kind =
      one.degraded === true
        ? 'fallback'
        : one.status === 200
          ? 'fresh'
          : isAnswer(one) || Number(one.body['retry_after_ms']) > 0
            ? 'told'
            : 'stranded';
    return { ...sum, asked: sum.asked + 1, [kind]: sum[kind] + 1 };
  }, nobody);
}

const versionLine = /^version:\s*(\d+)[ \t]*$/m;

function versionIn(text: string, file: string): number {
  const version = versionLine.exec(text)?.[1];
  if (version !== undefined) return Number(version);
  throw new DrillCannotRunError(
    `${file}: found no line "version: N"; the drill writes a higher one`,
  );
}

/** The same file in every other letter: a lower version is never put in force. */
export function withVersion(text: string, version: number): string {
  return text.replace(versionLine, `version: ${version}`);
}

/** The rules of the file, and one more: a budget that all gateways share. */
export function squeezedRules(text: string, version: number, perSecond: number): string {
  const written: unknown = parse(text);
  const rules: unknown =
    typeof written === 'object' && written !== null && Reflect.get(written, 'rules');
  if (!Array.isArray(rules)) throw new DrillCannotRunError('the rules file has no list of rules');
  const rate = Math.max(1, Math.floor(perSecond));
  const rule = {
    id: 'drill-squeeze',
    match: { route: 'facts' },
    limit: { rate: formatRate(parseRate(`${rate}/s`)), burst: rate },
    scope: 'lease',
    fail: 'closed',
    on_limit: 'degrade',
  };
  return stringify({ ...(written as object), version, rules: [...rules, rule] });
}

/** Beside, and moved into place: never half of it. */
function replace(file: string, text: string): void {
  writeFileSync(`${file}.drill`, text);
  renameSync(`${file}.drill`, file);
}
