import type { Drill } from './drill.ts';
import { isAnswer } from './visitor.ts';

/** Somebody who does not listen. */
export const ignoreRetryAfter: Drill<{
  readonly loud: number;
  readonly loudRefused: number;
  readonly polite: number;
  readonly politeRefused: number;
}> = {
  name: 'ignore-retry-after',
  about: 'one client asks without a pause, whatever it is told',
  expected: 'it is refused by its own limits; those beside it are not',
  async observe(site) {
    const { activityId, skuId } = site.parts;
    const loud = site.visitor(true);
    const polite = await site.waiting();
    await loud.signIn();
    let [asked, loudRefused, politeAsked, politeRefused] = [0, 0, 0, 0];
    const endMs = site.nowMs() + 6_000;
    while (site.nowMs() < endMs && (loudRefused < 20 || politeAsked < 3)) {
      for (let at = 0; at < 25; at += 1) {
        asked += 1;
        const heard = await loud.status(activityId, skuId, 'drill-nothing');
        if (heard.status === 429) loudRefused += 1;
      }
      politeAsked += 1;
      // Health may ask anybody to wait; a limit that somebody else has used up may not.
      if (!isAnswer(await polite.standing(activityId))) politeRefused += 1;
    }
    return { loud: asked, loudRefused, polite: politeAsked, politeRefused };
  },
  judge: ({ loud, loudRefused, polite, politeRefused }) => ({
    holds: loudRefused > 0 && polite > 0 && politeRefused === 0,
    seen: `${loudRefused} of ${loud} questions of the loud one refused, ${politeRefused} of ${polite} of a quiet one`,
  }),
};
