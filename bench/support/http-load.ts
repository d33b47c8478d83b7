import { connect, type Socket } from 'node:net';

/**
 * A closed load over raw sockets: each connection sends its next request as soon as the last answer is
 * complete. The generator must cost less than any server it measures, or it measures itself: requests
 * are bytes made beforehand, answers land in one buffer per connection and are measured by three
 * native searches, and no stream stands between.
 *
 * It never sleeps while it runs: it looks for answers again and again. To wake a sleeping reader on the
 * same machine costs the writer several microseconds, half of what it does for a request; a server would
 * pay that only if it were slower than the generator, so that of two servers the slower one would look
 * slower still. A reader on another machine costs nobody anything.
 */
export interface LoadResult {
  readonly requests: number;
  readonly wallMs: number;
  /** Answers by status. */
  readonly statuses: ReadonlyMap<number, number>;
}

/** Bytes of one answer: far above any that a benchmark asks for. */
const answerMax = 64 * 1024;

export async function closedLoad(
  port: number,
  requests: readonly Buffer[],
  connections: number,
): Promise<LoadResult> {
  const statuses = new Map<number, number>();
  let next = 0;
  const lanes = await Promise.all(
    Array.from({ length: Math.min(connections, requests.length) }, () => Lane.open(port)),
  );
  let awake = true;
  const stayAwake = (): void => {
    if (awake) setImmediate(stayAwake);
  };
  stayAwake();
  const started = process.hrtime.bigint();
  await Promise.all(
    lanes.map((lane) =>
      lane.run(
        () => requests[next++],
        (status) => statuses.set(status, (statuses.get(status) ?? 0) + 1),
      ),
    ),
  );
  const wallMs = Number(process.hrtime.bigint() - started) / 1e6;
  awake = false;
  return { requests: requests.length, wallMs, statuses };
}

class Lane {
  #socket: Socket | undefined;
  readonly #buffer = Buffer.alloc(answerMax);
  #filled = 0;
  #take: () => Buffer | undefined = () => undefined;
  #count: (status: number) => void = () => undefined;
  #done: () => void = () => undefined;
  #failed: (error: Error) => void = () => undefined;

  static open(port: number): Promise<Lane> {
    const lane = new Lane();
    return new Promise((resolve, reject) => {
      lane.#failed = reject;
      const chunk = Buffer.alloc(answerMax);
      const socket = connect({
        port,
        host: '127.0.0.1',
        noDelay: true,
        onread: {
          buffer: chunk,
          callback: (bytes) => {
            lane.#read(chunk, bytes);
            return true;
          },
        },
      });
      socket.once('connect', () => resolve(lane));
      socket.on('error', (error) => lane.#failed(error));
      socket.on('close', () => lane.#failed(new Error('the server closed a connection')));
      lane.#socket = socket;
    });
  }

  run(take: () => Buffer | undefined, count: (status: number) => void): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#take = take;
      this.#count = count;
      this.#done = resolve;
      this.#failed = reject;
      this.#send();
    });
  }

  #send(): void {
    const request = this.#take();
    if (request !== undefined) {
      this.#socket?.write(request);
      return;
    }
    this.#done();
    this.#failed = () => undefined;
    this.#socket?.end();
  }

  #read(chunk: Buffer, bytes: number): void {
    chunk.copy(this.#buffer, this.#filled, 0, bytes);
    this.#filled += bytes;
    const answer = measure(this.#buffer.subarray(0, this.#filled));
    if (answer === undefined) return;
    if (answer.length !== this.#filled) {
      this.#failed(new Error(`${this.#filled - answer.length} bytes after an answer`));
      return;
    }
    this.#filled = 0;
    this.#count(answer.status);
    this.#send();
  }
}

const lengthName = Buffer.from('\r\nContent-Length: ', 'latin1');
/** As some frameworks write it. */
const smallLengthName = Buffer.from('\r\ncontent-length: ', 'latin1');
const headEnd = Buffer.from('\r\n\r\n', 'latin1');

/** Status and whole length of the answer in the bytes, once it is complete. */
export function measure(bytes: Buffer): { status: number; length: number } | undefined {
  const end = bytes.indexOf(headEnd);
  if (end < 0) return undefined;
  let at = bytes.indexOf(lengthName);
  if (at < 0) at = bytes.indexOf(smallLengthName);
  if (at < 0)
    throw new Error(`an answer without Content-Length: ${bytes.toString('latin1', 0, end)}`);
  const length = end + 4 + digits(bytes, at + lengthName.length);
  return bytes.length < length ? undefined : { status: digits(bytes, 9), length };
}

function digits(bytes: Buffer, from: number): number {
  let value = 0;
  for (let at = from; ; at += 1) {
    const digit = (bytes[at] ?? 0) - 48;
    if (digit < 0 || digit > 9) return value;
    value = value * 10 + digit;
  }
}

/** One answer, whole: for a peer that is to send the same bytes. */
export function oneAnswer(port: number, request: Buffer): Promise<string> {
  return new Promise((resolve, reject) => {
    let bytes = Buffer.alloc(0);
    const socket = connect(port, '127.0.0.1', () => socket.write(request));
    socket.on('error', reject);
    socket.on('data', (part) => {
      bytes = Buffer.concat([bytes, part]);
      if (measure(bytes) === undefined) return;
      socket.destroy();
      resolve(bytes.toString('latin1'));
    });
  });
}
