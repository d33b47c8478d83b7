import type { Dossier } from './dossier.ts';
import { isLive } from './dossier.ts';
import { stage } from './population.ts';
import type { Reply } from './reply-parser.ts';
import { bodyOf, outcomeIn, textIn, thinkMs } from './scene.ts';
import type { CrowdCall, Scene, Task } from './scene.ts';

/** Submits of a forger, paths of a scanner, replays of a replayer: budgets, so that a run ends. */
const forgeries = 10;
const scans = 12;
const replays = 6;
const stolenMax = 64;

/** What scanners ask for; none of it exists on a shop's public port. */
const scanned: readonly (readonly [string, string])[] = [
  ['GET', '/.env'],
  ['GET', '/wp-login.php'],
  ['GET', '/.git/config'],
  ['GET', '/admin'],
  ['GET', '/admin/v1/overview'],
  ['GET', '/metrics'],
  ['GET', '/v1/orders/1'],
  ['GET', '/v1/requests/1'],
  ['POST', '/v1/seckill/0000000000000000/submit'],
  ['PUT', '/v1/activities'],
  ['GET', '/..%2f..%2fetc/passwd'],
  ['GET', '/v1/activities/%00'],
];

const base64url = (text: string): string => Buffer.from(text).toString('base64url');

/**
 * Those who do not play by the rules. `farm`, `rotator` and `ignorer` act as people with other
 * manners and have no code here; `replayer` buys as people do and abuses its pass beside it; `forger`
 * and `scanner` only attack.
 *
 * Every attack has one right answer: a refusal. An attack that reserves is a breach.
 */
export class Bots {
  readonly #scene: Scene;

  constructor(scene: Scene) {
    this.#scene = scene;
  }

  /** Does this one attack in its present stage, rather than act as a person? */
  attacks(person: number): boolean {
    const { people } = this.#scene;
    const kind = people.kind(person);
    if (kind === 'scanner') return true;
    return kind === 'forger' && (people.stage[person] ?? 0) >= stage.waiting;
  }

  wake(person: number): void {
    const scene = this.#scene;
    const { people } = scene;
    people.stage[person] = stage.attacking;
    const number = people.used[person] ?? 0;
    people.used[person] = number + 1;
    if (people.kind(person) === 'scanner') {
      const [method, path] = scanned[number % scanned.length] ?? ['GET', '/'];
      const body = method === 'GET' ? undefined : '{}';
      scene.send('attack', person, number, scene.writer.bare(person, method, path, body));
    } else {
      scene.witness.forged += 1;
      scene.send('attack', person, number, this.#forgery(person, number));
    }
  }

  /** An attack was answered, or not; the next one follows after a moment. */
  over(call: CrowdCall, reply: Reply | undefined): void {
    const { people, witness } = this.#scene;
    const { person } = call;
    const kind = people.kind(person);
    const told = reply === undefined ? undefined : outcomeIn(bodyOf(reply));
    if (told !== undefined && isLive(told.state)) {
      const story = `attack ${call.detail} of a ${kind} was answered ${told.state} (${told.code})`;
      if (kind === 'replayer') witness.breach(3, story);
      else witness.breach(5, story);
    }
    if (kind === 'replayer' || people.stage[person] === stage.done) return;
    const budget = kind === 'scanner' ? scans : forgeries;
    if ((people.used[person] ?? 0) >= budget) people.settle(person, 'rejected');
    else this.#scene.wake(person, thinkMs(this.#scene, person, 20 + call.detail, 250));
  }

  /** A bot has a pass: shares it, and tries what else it opens. */
  hasPass(dossier: Dossier): void {
    const scene = this.#scene;
    const { person } = dossier;
    const kind = scene.people.kind(person);
    if (kind === 'person') return;
    const { pass, nonce, submitPath, skuId } = dossier;
    scene.stolen.push({ pass, nonce, submitPath, person, skuId });
    if (scene.stolen.length > stolenMax) scene.stolen.shift();
    if (kind !== 'replayer' || dossier.firstPass !== undefined) return;
    dossier.firstPass = { pass, nonce, submitPath };
    for (let i = 0; i < replays; i += 1) {
      scene.later(1_500 + i * 1_100, { kind: 'attack', person, detail: i });
    }
  }

  /**
   * A replayer's attack beside its own purchase, which half of them cancel first: a nonce that once
   * served a request serves no other, whatever became of that request.
   */
  task(task: Task): void {
    const scene = this.#scene;
    const { person } = task;
    const dossier = scene.dossiers.get(person);
    const used = dossier?.firstPass;
    // Only a pass that surely reserved proves anything when it is tried again.
    const own = dossier?.requests.find(
      ({ reservationId, nonce, nonceUnsure }) =>
        reservationId !== undefined && !nonceUnsure && nonce === used?.nonce,
    );
    if (dossier === undefined || used === undefined || own === undefined) return;
    const conflict = task.detail === replays - 1;
    if (conflict) scene.witness.conflicts += 1;
    else scene.witness.replays += 1;
    const text = scene.writer.submit(person, {
      path: used.submitPath,
      requestId: conflict
        ? own.id
        : `replay-${scene.seed.toString(36)}-${person.toString(36)}-${task.detail}`,
      skuId: dossier.skuId,
      quantity: conflict ? own.quantity + 1 : own.quantity,
      pass: used.pass,
      device: task.detail,
    });
    scene.send('attack', person, task.detail, text);
  }

  /** A submit that no valid pass stands behind. */
  #forgery(person: number, number: number): string {
    const scene = this.#scene;
    const { people, writer } = scene;
    const theft = scene.stolen[(person + number) % Math.max(1, scene.stolen.length)];
    const guess = ((person * 2654435761) >>> 0).toString(16).padStart(16, '0');
    const skuId = theft?.skuId ?? scene.skuOf(person);
    const send = (pass: string | undefined, userToken?: string): string =>
      writer.submit(person, {
        path: theft?.submitPath ?? `/v1/seckill/${guess}/submit`,
        requestId: `forged-${scene.seed.toString(36)}-${person.toString(36)}-${number}`,
        skuId,
        quantity: 1,
        pass,
        device: 0,
        ...(userToken === undefined ? {} : { userToken }),
      });
    const now = Math.floor(scene.now() / 1000) + 1_000_000_000;
    const claims = { act: 'x', sku: skuId, sub: 'me', qty: 1, jti: guess, nbf: 0, exp: now * 2 };
    const body = base64url(JSON.stringify(claims));
    const head = (alg: string): string =>
      base64url(JSON.stringify({ alg, kid: 'pass-1', typ: 'sluice-pass+jwt' }));
    switch (number % 8) {
      case 0:
        return send(undefined);
      case 1:
        return send(`${head('none')}.${body}.`);
      case 2:
        return send(
          `${head('HS256')}.${body}.${base64url('not the signature of anything at all')}`,
        );
      case 3: {
        // Another's pass with one claim changed under the old signature.
        const [first = head('HS256'), , signature = 'AA'] = theft?.pass.split('.') ?? [];
        return send(`${first}.${body}.${signature}`);
      }
      case 4:
        // Another's pass, whole, under one's own name.
        return send(theft?.person === person ? undefined : theft?.pass);
      case 5:
        return send(`${head('HS256')}.${'A'.repeat(3_000)}.AAAA`);
      case 6:
        return send(people.userToken(person));
      default:
        return send(people.entryToken(person), 'nobody');
    }
  }

  /** How an attack was answered, for the report. */
  static codeOf(reply: Reply): string {
    return textIn(bodyOf(reply), 'code');
  }
}
