import type { TimerHandle, Timers } from '../../ports/clock.ts';
import type { Asker } from './ask.ts';
import { member, numberOf } from './ask.ts';
import type { BackOffice, StockView } from './back-office.ts';
import { messageOf } from './sale.ts';
import type { Witness } from './witness.ts';

/** How long a sold-out flag may outlive a reopening: its time to live, and the second it takes to heal. */
const flagMayLagMs = 3_000;
/**
 * How old the epoch that anybody may read may be: a second, or five where the shop is overloaded, which
 * nobody outside can be sure of; and the time it takes to read it.
 */
const boardMayLagMs = 6_000;
/** Between two looks. */
const lookEveryMs = 500;

/**
 * An onlooker beside the crowd: twice a second it reads what anybody may read (availability and its
 * epoch) and, with a credential, the operator's stock. What never may happen, not even for a moment,
 * is called out at once.
 */
export class Monitor {
  readonly #shop: Asker;
  readonly #office: BackOffice | undefined;
  readonly #witness: Witness;
  readonly #activityId: string;
  readonly #skus: readonly string[];
  readonly #epochs = new Map<string, number>();
  readonly #now: () => number;
  /** The open epoch that the only SKU is in, and since when, surely. */
  #openEpoch: { readonly epoch: number; readonly sinceMs: number } | undefined;
  #timer: TimerHandle | undefined;
  #busy = false;
  epochsRead = 0;
  stocksRead = 0;
  /** Questions that were not answered; an overloaded shop may do that. */
  unanswered = 0;
  lastError = '';
  lastStock: StockView | undefined;

  constructor(
    shop: Asker,
    office: BackOffice | undefined,
    witness: Witness,
    activityId: string,
    skus: readonly string[],
    now: () => number,
  ) {
    this.#now = now;
    this.#shop = shop;
    this.#office = office;
    this.#witness = witness;
    this.#activityId = activityId;
    this.#skus = skus;
  }

  start(timers: Timers): void {
    this.#timer = timers.every(lookEveryMs, () => {
      // A slow answer delays the next look; looks never pile up.
      if (this.#busy) return;
      this.#busy = true;
      void this.look().finally(() => {
        this.#busy = false;
      });
    });
  }

  stop(): void {
    this.#timer?.cancel();
  }

  /**
   * Looks until every "sold out" that somebody was told can be judged: at once where the epoch is sold
   * out, after some seconds where it looks open. Never rejects.
   */
  async lastLooks(timers: Timers): Promise<void> {
    const endMs = this.#now() + 2 * boardMayLagMs;
    await this.look();
    while (
      this.#openEpoch !== undefined &&
      this.#witness.soldOutsWaiting > 0 &&
      this.#now() < endMs
    ) {
      await new Promise<void>((resolve) => void timers.after(lookEveryMs, resolve));
      await this.look();
    }
  }

  /** One look at everything. Never rejects. */
  async look(): Promise<void> {
    try {
      for (const skuId of this.#skus) await this.#lookAtEpoch(skuId);
      if (this.#office !== undefined) await this.#lookAtStock(this.#office);
    } catch (error) {
      this.unanswered += 1;
      this.lastError = messageOf(error);
    }
  }

  async #lookAtEpoch(skuId: string): Promise<void> {
    const path = `/v1/activities/${this.#activityId}/skus/${skuId}/availability`;
    const askedMs = this.#now();
    const answer = await this.#shop.get(path);
    const epoch = numberOf(member(answer.json, 'stock_epoch'));
    if (answer.status !== 200 || epoch === undefined) {
      this.unanswered += 1;
      this.lastError = `availability answered ${answer.status}`;
      return;
    }
    this.epochsRead += 1;
    const before = this.#epochs.get(skuId);
    if (before !== undefined && epoch < before) {
      this.#witness.breach(8, `stock epoch of ${skuId} was ${before} and then ${epoch}`);
    }
    this.#epochs.set(skuId, Math.max(before ?? 0, epoch));
    if (this.#skus.length === 1) this.#judgeSoldOuts(epoch, askedMs);
  }

  /**
   * An epoch that was open before a submit was sent and is the same after its answer was read was
   * open all the while: then "sold out" came from a flag that was wrong. Answers in the first seconds
   * of an epoch are let pass, because a flag may be that stale and heal by itself.
   */
  #judgeSoldOuts(epoch: number, askedMs: number): void {
    const told = this.#witness.takeSoldOuts(askedMs - boardMayLagMs);
    const known = this.#openEpoch;
    if (epoch % 2 === 1) this.#openEpoch = undefined;
    else if (known?.epoch !== epoch) this.#openEpoch = { epoch, sinceMs: this.#now() };
    else {
      for (const [sentMs] of told) {
        if (sentMs > known.sinceMs + flagMayLagMs) {
          this.#witness.breach(8, `told sold out while epoch ${epoch} was open on both sides`);
        }
      }
    }
  }

  async #lookAtStock(office: BackOffice): Promise<void> {
    const stock = await office.stock(this.#activityId);
    this.stocksRead += 1;
    this.lastStock = stock;
    const { total, sold, held, available } = stock;
    if (available < 0 || sold < 0 || held < 0) {
      this.#witness.breach(1, `negative stock: ${JSON.stringify(stock)}`);
    }
    if (sold > total) this.#witness.breach(1, `sold ${sold} of ${total}`);
  }
}
