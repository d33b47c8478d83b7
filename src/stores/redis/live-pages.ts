import type { RequestRecord } from '../../core/stock/model.ts';
import { readRecord } from './records.ts';
import type { Reply } from './replies.ts';

/** Where a page ended: element of `order`, and how many reservations of it are behind. */
interface Place {
  readonly element: number;
  readonly offset: number;
}

interface Source {
  page(element: number, offset: number, limit: number): Promise<Reply>;
  elements(from: number, to: number): Promise<Reply>;
  /** The request's field of a reservation, where it is known. */
  field(reservationId: string): Promise<string | undefined>;
}

const placesMax = 1_000;
const searchElements = 64;

/**
 * Pages by reservation id over a list that has no index by id: an index would cost every reservation
 * to serve a listing that reconciliation asks for now and then. Where the last pages ended is
 * remembered; an id that is not remembered is searched for from the front, O(reservations before it).
 */
export class LivePages {
  readonly #places = new Map<string, Place>();

  async page(
    source: Source,
    sku: string,
    after: string | undefined,
    limit: number,
  ): Promise<readonly RequestRecord[]> {
    let place: Place = { element: 0, offset: 0 };
    if (after !== undefined) {
      const found = await this.#find(source, sku, after);
      if (found === undefined)
        throw new RangeError(`No reservation ${after}: the SKU was rebuilt; begin again`);
      place = found;
    }
    const page: RequestRecord[] = [];
    while (page.length < limit) {
      const reply = await source.page(place.element, place.offset, limit - page.length);
      const generation = reply.number();
      place = { element: reply.number(), offset: reply.number() };
      const ended = reply.number() === 1;
      while (!reply.ended) {
        const at = { element: reply.number(), offset: reply.number() };
        const record = readRecord(reply, generation);
        page.push(record);
        this.#remember(sku, record.reservationId, at);
      }
      if (ended) break;
    }
    return page;
  }

  async #find(source: Source, sku: string, id: string): Promise<Place | undefined> {
    const field = await source.field(id);
    if (field === undefined) return undefined;
    const remembered = this.#places.get(`${sku}\n${id}`);
    if (remembered !== undefined) {
      // A rebuild may have put another list in its place.
      const [fields] = await fieldsOf(source, remembered.element, remembered.element);
      if (fields?.[remembered.offset - 1] === field) return remembered;
    }
    for (let from = 0; ; from += searchElements) {
      const elements = await fieldsOf(source, from, from + searchElements - 1);
      for (const [at, fields] of elements.entries()) {
        const offset = fields.indexOf(field);
        if (offset >= 0) return { element: from + at, offset: offset + 1 };
      }
      if (elements.length < searchElements) return undefined;
    }
  }

  #remember(sku: string, id: string, place: Place): void {
    this.#places.set(`${sku}\n${id}`, place);
    for (const oldest of this.#places.keys()) {
      if (this.#places.size <= placesMax) break;
      this.#places.delete(oldest);
    }
  }
}

async function fieldsOf(source: Source, from: number, to: number): Promise<string[][]> {
  const reply = await source.elements(from, to);
  const elements: string[][] = [];
  while (!reply.ended) elements.push(reply.text().split('\n'));
  return elements;
}
