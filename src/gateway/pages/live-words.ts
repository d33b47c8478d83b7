import { formatCount, formatSpan } from './format.ts';
import type { Language } from './language.ts';

/**
 * The words that change while a person waits. The server writes them into the page and the page's
 * script rewrites them in place, from the same functions, so that both always say the same.
 */
export interface LiveWords {
  /** The chance before the draw, when nobody has a place yet. */
  readonly noPlaceYet: string;
  readonly place: (position: number) => string;
  readonly ahead: (ahead: number | null) => string;
  readonly wait: (eta: { readonly low_ms: number; readonly high_ms: number } | null) => string;
  readonly held: (ratio: number | null) => string;
  readonly chance: Readonly<Record<'likely' | 'uncertain' | 'unlikely' | 'gone_for_now', string>>;
  readonly yourTime: (instant: string) => string;
  readonly sameTime: string;
  readonly reconnecting: string;
  readonly live: string;
  /** Said aloud by a screen reader; whole sentences. */
  readonly sayPlace: (position: number, wait: string) => string;
  readonly sayTurn: string;
  readonly sayChanged: string;
  readonly working: string;
  /** How long a calculation will take from here on the average, s. */
  readonly workLeft: (seconds: number) => string;
  readonly workDone: string;
}

const share = (ratio: number): string => `${Math.round(ratio * 100)}%`;

const en: LiveWords = {
  noPlaceYet: 'Equal for everyone',
  place: (position) => formatCount('en', position),
  ahead: (ahead) => (ahead === null ? 'Not drawn yet' : formatCount('en', ahead)),
  wait: (eta) => (eta === null ? 'Not known yet' : formatSpan('en', eta.low_ms, eta.high_ms)),
  held: (ratio) =>
    ratio === null
      ? 'An estimate, not a promise.'
      : `An estimate: ${share(ratio)} of our past ones in this room held.`,
  chance: {
    likely: 'Likely enough',
    uncertain: 'Uncertain',
    unlikely: 'Unlikely',
    gone_for_now: 'Gone for now',
  },
  yourTime: (instant) => `Your time: ${instant}`,
  sameTime: 'This is your local time too.',
  reconnecting: 'Connection lost. Your place is kept; trying again…',
  live: 'Updates by itself. You may close this page: your place is kept.',
  sayPlace: (position, wait) =>
    `Your place is about ${formatCount('en', position)}. Estimated wait: ${wait}.`,
  sayTurn: 'It is your turn.',
  sayChanged: 'The page has been updated.',
  working: 'One moment…',
  workLeft: (seconds) =>
    seconds <= 2
      ? 'Calculating: a second or two.'
      : `Calculating: about ${seconds < 90 ? `${seconds} seconds` : `${Math.round(seconds / 60)} minutes`}.`,
  workDone: 'Found. Joining…',
};

const zh: LiveWords = {
  noPlaceYet: '人人均等',
  place: (position) => formatCount('zh', position),
  ahead: (ahead) => (ahead === null ? '尚未抽签' : formatCount('zh', ahead)),
  wait: (eta) => (eta === null ? '暂不可知' : formatSpan('zh', eta.low_ms, eta.high_ms)),
  held: (ratio) =>
    ratio === null
      ? '这是估计，不是承诺。'
      : `这是估计：本场此前的估计有 ${share(ratio)} 与实际相符。`,
  chance: {
    likely: '较有希望',
    uncertain: '不确定',
    unlikely: '希望不大',
    gone_for_now: '暂时售罄',
  },
  yourTime: (instant) => `您的当地时间：${instant}`,
  sameTime: '与您的当地时间相同。',
  reconnecting: '连接中断。您的位置已保留，正在重试……',
  live: '页面会自动更新。关闭也没关系，您的位置会保留。',
  sayPlace: (position, wait) => `您大约在第 ${formatCount('zh', position)} 位，预计等待${wait}。`,
  sayTurn: '轮到您了。',
  sayChanged: '页面内容已更新。',
  working: '请稍候……',
  workLeft: (seconds) =>
    seconds <= 2
      ? '正在计算：还需一两秒。'
      : `正在计算：大约还需 ${seconds < 90 ? `${seconds} 秒` : `${Math.round(seconds / 60)} 分钟`}。`,
  workDone: '已算出，正在加入……',
};

export const liveWords: Readonly<Record<Language, LiveWords>> = { en, zh };
