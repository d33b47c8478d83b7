import type { Language } from './language.ts';
import { type Words, en } from './words-en.ts';
import { zh } from './words-zh.ts';

export type { Words } from './words-en.ts';

export const words: Readonly<Record<Language, Words>> = { en, zh };
