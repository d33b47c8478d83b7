import { readFile, stat } from 'node:fs/promises';
import { renderProblems } from '../config/problems.ts';
import { type CheckedRules, checkRules } from '../config/rules-file.ts';
import type { RuleContext } from '../core/rules/judge.ts';
import type { RuleSet } from '../core/rules/model.ts';
import type { Clock, TimerHandle, Timers } from '../ports/clock.ts';

/**
 * A file of rules that is watched.
 *
 * Watchers of the operating system miss what editors and orchestrators do (write beside and rename,
 * swap a link, mount anew), so the file is looked at instead: four times a second its time, size and
 * place, and only when one of them has changed its content. Half-written files do not parse, or are
 * read again when their writer is done; a file that is wrong leaves the rules in force as they are.
 */
export interface RulesFileOptions {
  readonly path: string;
  readonly context: RuleContext;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly clock: Pick<Clock, 'monoUs'>;
  readonly timers: Timers;
  /** A new set that reads well; what comes of it is the owner's business. */
  readonly onSet: (set: RuleSet) => void;
  readonly onRefused: (why: string) => void;
}

/** Between two looks, ms: a change is in force well within a second. */
const lookEveryMs = 250;

/** The file cannot be used as it is. */
export class RulesFileError extends Error {
  override readonly name = 'RulesFileError';
}

export class RulesFile {
  readonly #options: RulesFileOptions;
  #mark = '';
  #content = '';
  #timer: TimerHandle | undefined;
  #looking: Promise<void> | undefined;
  /** Whether what was read last is what is in force. */
  #inForce = false;
  #confirmedAtUs = 0;

  constructor(options: RulesFileOptions) {
    this.#options = options;
  }

  /** Reads it for the first time. @throws RulesFileError that lists every problem */
  async first(): Promise<RuleSet> {
    this.#mark = await this.#markNow();
    this.#content = await this.#read();
    const checked = this.#check(this.#content);
    if (!checked.ok) throw new RulesFileError(renderProblems(checked.problems));
    this.#confirm();
    return checked.set;
  }

  /** For how long the file has not been seen to hold the rules in force, ms; a few looks at most, if well. */
  get ageMs(): number {
    return (this.#options.clock.monoUs() - this.#confirmedAtUs) / 1000;
  }

  /** The set that was read last was not put in force: a lower version than the one that is. */
  notInForce(): void {
    this.#inForce = false;
  }

  watch(): void {
    this.#timer = this.#options.timers.every(lookEveryMs, () => {
      this.#looking ??= this.#look().finally(() => {
        this.#looking = undefined;
      });
    });
  }

  async close(): Promise<void> {
    this.#timer?.cancel();
    await this.#looking;
  }

  async #look(): Promise<void> {
    const { onSet, onRefused } = this.#options;
    try {
      const mark = await this.#markNow();
      if (mark === this.#mark) {
        if (this.#inForce) this.#confirm();
        return;
      }
      const content = await this.#read();
      // Remembered only once it could be read: a file that comes and goes is looked at again.
      this.#mark = mark;
      if (content === this.#content) {
        if (this.#inForce) this.#confirm();
        return;
      }
      this.#content = content;
      const checked = this.#check(content);
      if (checked.ok) {
        this.#confirm();
        onSet(checked.set);
      } else {
        this.#inForce = false;
        onRefused(renderProblems(checked.problems));
      }
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      // Told once for each kind of trouble, not four times a second.
      if (this.#mark === `! ${why}`) return;
      this.#mark = `! ${why}`;
      onRefused(why);
    }
  }

  #confirm(): void {
    this.#inForce = true;
    this.#confirmedAtUs = this.#options.clock.monoUs();
  }

  async #markNow(): Promise<string> {
    try {
      const { mtimeMs, size, ino, dev } = await stat(this.#options.path);
      return `${dev} ${ino} ${size} ${mtimeMs}`;
    } catch (error) {
      throw this.#unreadable(error);
    }
  }

  async #read(): Promise<string> {
    try {
      return await readFile(this.#options.path, 'utf8');
    } catch (error) {
      throw this.#unreadable(error);
    }
  }

  #unreadable(error: unknown): RulesFileError {
    const why = error instanceof Error && 'code' in error ? String(error.code) : String(error);
    return new RulesFileError(
      `rules_file: found "${this.#options.path}" (${why}); allowed is a readable YAML file of rules`,
    );
  }

  #check(content: string): CheckedRules {
    const { path, context, environment } = this.#options;
    return checkRules(content, path, context, environment);
  }
}
