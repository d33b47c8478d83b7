import type { FastifyInstance, FastifyReply } from 'fastify';
import type { StandingResult } from '../../pipeline/door.ts';
import type { PageActivity, PagesDeps } from './deps.ts';
import { wantsJson } from './language.ts';
import { messagePage } from './layout.ts';
import { type Form, notFoundPage, refusedPage } from './answers.ts';
import { type PageRequest, type SignedIn, asId, one, readPageRequest } from './request-context.ts';
import { activityPage } from './views/activity.ts';
import { challengePage, vouchedPage } from './views/challenge.ts';
import { homePage } from './views/home.ts';
import { roomPage } from './views/room.ts';

interface WithActivity {
  readonly activityId: string;
}

/** Home, activity, joining, standing, leaving. */
export function registerRoomRoutes(app: FastifyInstance, deps: PagesDeps): void {
  app.get('/', (request, reply) => {
    const page = readPageRequest(deps, request, reply);
    if (wantsJson(request.headers.accept))
      return page.json(200, { activities: deps.activities().map((one) => factsOf(one, page)) });
    return page.page(200, homePage(page.view, deps.activities()));
  });

  app.get<{ Params: WithActivity }>('/a/:activityId', async (request, reply) => {
    const page = readPageRequest(deps, request, reply);
    const sale = findSale(deps, request.params.activityId);
    if (sale === undefined) return notFoundPage(page);
    if (wantsJson(request.headers.accept)) return page.json(200, factsOf(sale, page));
    const joined = standingByCookie(page, sale)?.kind === 'standing';
    const left = joined ? false : await needsSignIn(page);
    return page.page(
      200,
      activityPage(page.view, sale, { joined, ...(left === false ? {} : { signIn: left }) }),
    );
  });

  app.post<{ Params: WithActivity; Body: Form | undefined }>(
    '/a/:activityId/join',
    async (request, reply) => {
      const page = readPageRequest(deps, request, reply);
      const sale = findSale(deps, request.params.activityId);
      if (sale === undefined) return notFoundPage(page);
      const base = `/a/${sale.activity.activityId}`;
      const who = await signIn(page, base);
      if ('sent' in who) return who.sent;
      const asked = (request.body?.sku ?? []).map(asId).filter((id) => id !== undefined);
      const skuIds = asked.length > 0 ? asked : sale.activity.skus.map((sku) => sku.skuId);
      const answer = answerIn(request.body?.challenge?.[0]);
      const result = await deps.join(
        sale.activity.activityId,
        who.person,
        skuIds,
        page.connection,
        answer,
      );
      switch (result.kind) {
        case 'joined':
          page.setCookie('sluice-entry', result.entryToken, entrySeconds(page, sale));
          return page.goTo(`${base}/room`);
        case 'refused':
          return refusedPage(page, result, base);
        case 'challenge':
          return page.page(
            403,
            challengePage(page.view, sale, {
              demand: result.demand,
              skuIds: asked,
              // A first demand refuses nothing; a further one tells why the answer was not taken.
              again: answer !== undefined,
              returnTo: page.absolute(`${base}/join`),
            }),
          );
        case 'held':
          return page.page(
            503,
            messagePage(page.view, page.view.words.heldHeading, page.view.words.heldText, {
              link: base,
              label: page.view.words.back,
            }),
          );
        case 'not_open':
          return page.goTo(base);
        case 'unknown_activity':
          return notFoundPage(page);
        case 'unknown_sku':
          return badForm(page, base);
      }
    },
  );

  app.get<{ Params: WithActivity }>('/a/:activityId/room', async (request, reply) => {
    const page = readPageRequest(deps, request, reply);
    const sale = findSale(deps, request.params.activityId);
    if (sale === undefined) return notFoundPage(page);
    const result = await findStanding(page, sale);
    if (result?.kind !== 'standing') return page.goTo(`/a/${sale.activity.activityId}`);
    if (wantsJson(request.headers.accept)) return page.json(200, result.standing);
    return page.page(200, roomPage(page.view, sale, result.standing));
  });

  // Where a provider sends people back with what it vouched for. The change itself is a form's POST,
  // from a page of ours: a link that somebody else made joins nobody.
  app.get<{ Params: WithActivity; Querystring: { challenge?: unknown; sku?: unknown } }>(
    '/a/:activityId/join',
    (request, reply) => {
      const page = readPageRequest(deps, request, reply);
      const sale = findSale(deps, request.params.activityId);
      if (sale === undefined) return notFoundPage(page);
      const answer = answerIn(one(request.query.challenge));
      if (answer === undefined) return page.goTo(`/a/${sale.activity.activityId}/room`);
      const chosen = asId(request.query.sku);
      return page.page(
        200,
        vouchedPage(page.view, sale, answer, chosen === undefined ? [] : [chosen]),
      );
    },
  );

  // A reload of a page that answered a form asks for the form's address: there is nothing but a way on.
  for (const form of ['leave', 'claim', 'submit'])
    app.get<{ Params: WithActivity }>(`/a/:activityId/${form}`, (request, reply) => {
      const page = readPageRequest(deps, request, reply);
      const sale = findSale(deps, request.params.activityId);
      return sale === undefined
        ? notFoundPage(page)
        : page.goTo(`/a/${sale.activity.activityId}/room`);
    });

  app.post<{ Params: WithActivity }>('/a/:activityId/leave', async (request, reply) => {
    const page = readPageRequest(deps, request, reply);
    const sale = findSale(deps, request.params.activityId);
    if (sale === undefined) return notFoundPage(page);
    const base = `/a/${sale.activity.activityId}`;
    const who = await page.person();
    if (who !== undefined) await deps.leave(sale.activity.activityId, who.person);
    page.setCookie('sluice-entry', '', 0);
    return page.goTo(base);
  });
}

/** Longest answer to a challenge, characters; the API takes no longer one either. */
const answerMaxLength = 1024;

function answerIn(text: string | undefined): string | undefined {
  const answer = text?.trim();
  return answer === undefined || answer === '' || answer.length > answerMaxLength
    ? undefined
    : answer;
}

export function findSale(deps: PagesDeps, activityId: string): PageActivity | undefined {
  const id = asId(activityId);
  return id === undefined ? undefined : deps.activity(id);
}

export function badForm(page: PageRequest, back: string): FastifyReply {
  const w = page.view.words;
  return page.page(
    400,
    messagePage(page.view, w.badFormTitle, w.badFormText, { link: back, label: w.back }),
  );
}

/** Life of the entry cookie: until the sale closes and an hour beyond, s. */
function entrySeconds(page: PageRequest, sale: PageActivity): number {
  return Math.max(3600, (sale.activity.closesAtMs - page.nowMs) / 1000 + 3600);
}

function standingByCookie(page: PageRequest, sale: PageActivity): StandingResult | undefined {
  const token = page.cookie('sluice-entry');
  return token === undefined
    ? undefined
    : page.deps.standingByToken(sale.activity.activityId, token);
}

/**
 * By the entry cookie where it serves this activity (no store call); else by who the person is, so
 * that a second device or a cleared browser finds the same place.
 */
export async function findStanding(
  page: PageRequest,
  sale: PageActivity,
): Promise<StandingResult | undefined> {
  const byCookie = standingByCookie(page, sale);
  if (byCookie?.kind === 'standing') return byCookie;
  const who = await page.person();
  return who === undefined
    ? byCookie
    : page.deps.standingByPerson(sale.activity.activityId, who.person);
}

/** Set when people sign in elsewhere and this one has not. Asks for no session: reading costs none. */
async function needsSignIn(page: PageRequest): Promise<false | { readonly url?: string }> {
  const elsewhere = page.deps.signInElsewhere;
  if (elsewhere === undefined || (await page.person()) !== undefined) return false;
  return elsewhere;
}

/** The person behind the cookie, or a new demo person where that is allowed. */
async function signIn(
  page: PageRequest,
  back: string,
): Promise<SignedIn | { readonly sent: FastifyReply }> {
  const known = await page.person();
  if (known !== undefined) return known;
  const reply = await page.deps.session(page.connection);
  switch (reply.kind) {
    case 'session':
      page.setCookie('sluice-user', reply.userToken, (reply.expiresAtMs - page.nowMs) / 1000);
      return { person: reply.person, userToken: reply.userToken };
    case 'sign_in':
      return { sent: page.goTo(back) };
    case 'refused':
      return { sent: refusedPage(page, reply, back) };
  }
}

/** The same facts as the API's, for a caller who asked this address for JSON. */
function factsOf(sale: PageActivity, page: PageRequest): Readonly<Record<string, unknown>> {
  const { activity } = sale;
  const iso = (atMs: number): string => new Date(atMs).toISOString();
  return {
    activity_id: activity.activityId,
    name: activity.name,
    revision: activity.revision,
    phase: sale.phase,
    lobby_opens_at: iso(activity.lobbyOpensAtMs),
    opens_at: iso(activity.opensAtMs),
    closes_at: iso(activity.closesAtMs),
    time_zone: activity.timeZone,
    ...(activity.rehearsalOf === undefined ? {} : { rehearsal_of: activity.rehearsalOf }),
    room: {
      mode: activity.room.mode,
      commitment: sale.commitment,
      ...(sale.beacon === undefined ? {} : { beacon: sale.beacon }),
      ...(sale.checkpoint === undefined ? {} : { checkpoint: sale.checkpoint }),
    },
    skus: activity.skus.map((sku) => ({
      sku_id: sku.skuId,
      name: sku.name,
      price: { amount_minor: sku.price.amountMinor, currency: sku.price.currency },
      max_per_person: sku.maxPerPerson,
      availability: sale.availability(sku.skuId) ?? 'maybe_later',
    })),
    server_time: iso(page.nowMs),
  };
}
