import type { FastifyInstance } from 'fastify';
import type { PagesDeps } from './deps.ts';
import { notFoundPage, refusedPage } from './answers.ts';
import { asId, readPageRequest } from './request-context.ts';
import { orderPage } from './views/order.ts';

interface WithOrder {
  readonly orderId: string;
}

/** A payment that takes longer than this is no longer waited for, s. */
const payingSeconds = 90;

/** An order, its payment and its cancellation. */
export function registerOrderRoutes(app: FastifyInstance, deps: PagesDeps): void {
  app.get<{ Params: WithOrder }>('/orders/:orderId', async (request, reply) => {
    const page = readPageRequest(deps, request, reply);
    const orderId = asId(request.params.orderId);
    const who = orderId === undefined ? undefined : await page.person();
    if (orderId === undefined || who === undefined) return notFoundPage(page);
    const order = await deps.order(who.person, orderId);
    if (order === undefined) return notFoundPage(page);
    const sale = deps.activity(order.activityId);
    const rehearsal = sale?.activity.rehearsalOf !== undefined;
    return page.page(
      200,
      orderPage({ ...page.view, rehearsal }, sale, order, {
        demoPayments: deps.demoPayments,
        paying: page.cookie('sluice-paying') === orderId,
      }),
    );
  });

  for (const change of ['pay', 'cancel'] as const) {
    app.get<{ Params: WithOrder }>(`/orders/:orderId/${change}`, (request, reply) => {
      const page = readPageRequest(deps, request, reply);
      const orderId = asId(request.params.orderId);
      return orderId === undefined ? notFoundPage(page) : page.goTo(`/orders/${orderId}`);
    });
    app.post<{ Params: WithOrder }>(`/orders/:orderId/${change}`, async (request, reply) => {
      const page = readPageRequest(deps, request, reply);
      const orderId = asId(request.params.orderId);
      const who = orderId === undefined ? undefined : await page.person();
      if (orderId === undefined || who === undefined) return notFoundPage(page);
      if (change === 'pay' && !deps.demoPayments) return notFoundPage(page);
      const result = await deps[change](who.person, orderId, page.connection);
      switch (result.kind) {
        case 'done':
          // Many providers confirm a moment later: until then the order's page asks again quickly.
          if (change === 'pay' && result.order.state === 'PENDING_PAYMENT')
            page.setCookie('sluice-paying', orderId, payingSeconds);
          return page.goTo(`/orders/${orderId}`);
        case 'unknown':
          return notFoundPage(page);
        case 'refused':
          if ('code' in result) return refusedPage(page, result, `/orders/${orderId}`);
          return page.page(
            409,
            orderPage(
              { ...page.view, path: `/orders/${orderId}` },
              deps.activity(result.order.activityId),
              result.order,
              { demoPayments: deps.demoPayments, refused: change },
            ),
          );
      }
    });
  }
}
