import { Type } from 'typebox';
import {
  AcceptedLaterBody,
  OutcomeBody,
  PathParams,
  RequestParams,
  RequestQuery,
  SubmitRequest,
  WaitingRoomBody,
} from '../../wire/schemas.ts';
import type { RouteSpec } from '../route.ts';
import { factsRoutes } from './facts.ts';
import { orderRoutes } from './orders.ts';
import { roomRoutes } from './room.ts';
import { serviceRoutes } from './service.ts';

/** Served by the hot lane; here for the document and for the methods that they allow. */
const hotRoutes: readonly RouteSpec[] = [
  {
    method: 'POST',
    path: '/v1/seckill/{path_id}/submit',
    operationId: 'submit',
    summary: 'Submit with a pass; every retry reuses the request id',
    limits: 'submit',
    priority: 1,
    params: PathParams,
    body: SubmitRequest,
    auth: 'user',
    answers: {
      200: OutcomeBody,
      202: Type.Union([OutcomeBody, WaitingRoomBody, AcceptedLaterBody]),
    },
  },
  {
    method: 'GET',
    path: '/v1/requests/{request_id}',
    operationId: 'getRequest',
    summary: 'What became of a request id',
    limits: 'status',
    priority: 0,
    params: RequestParams,
    query: RequestQuery,
    auth: 'user',
    answers: { 200: OutcomeBody },
  },
];

/** Every public JSON route. */
export const routeTable: readonly RouteSpec[] = [
  ...serviceRoutes,
  ...factsRoutes,
  ...roomRoutes,
  ...hotRoutes,
  ...orderRoutes,
];
