import type { TSchema } from 'typebox';
import { codes } from '../wire/codes.ts';
import { ProblemBody } from '../wire/schemas.ts';
import type { RouteSpec } from './route.ts';

/**
 * The OpenAPI 3.1 document, from the route table: the schemas that validate are the schemas that are
 * published. Problems are one schema for every route, since any route may be limited or shed.
 */
export function openApiDocument(routes: readonly RouteSpec[], version: string): object {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of routes) {
    const item = (paths[route.path] ??= {});
    item[route.method.toLowerCase()] = operation(route);
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Sluice',
      version,
      description: 'A flash sale that stays up, is fair, and never sells one unit twice.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    jsonSchemaDialect: 'https://json-schema.org/draft/2020-12/schema',
    paths,
    components: {
      schemas: { Problem: ProblemBody },
      securitySchemes: {
        user: { type: 'http', scheme: 'bearer', description: 'User token' },
        entry: { type: 'apiKey', in: 'header', name: 'Sluice-Entry' },
        pass: { type: 'apiKey', in: 'header', name: 'Sluice-Pass' },
      },
    },
    'x-codes': Object.entries(codes).map(([code, entry]) => ({
      code,
      status: entry.http,
      next_action: entry.nextAction,
      retryable: entry.retryable,
      title: entry.title,
    })),
  };
}

function operation(route: RouteSpec): object {
  const responses: Record<string, unknown> = {};
  for (const [status, schema] of Object.entries(route.answers)) {
    responses[status] = answer(status, schema, route.media);
  }
  responses['default'] = {
    description: 'Refused: the code says why, and what to do next',
    content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } },
  };
  return {
    operationId: route.operationId,
    summary: route.summary,
    ...security(route),
    parameters: [...parameters(route.params, 'path'), ...parameters(route.query, 'query')],
    ...(route.body === undefined
      ? {}
      : {
          requestBody: {
            required: route.bodyOptional !== true,
            content: { 'application/json': { schema: route.rawBody === true ? {} : route.body } },
          },
        }),
    responses,
  };
}

function security(route: RouteSpec): object {
  if (route.auth === 'none') return {};
  if (route.auth === 'user_or_entry') return { security: [{ entry: [] }, { user: [] }] };
  return { security: [route.operationId === 'submit' ? { user: [], pass: [] } : { user: [] }] };
}

function answer(status: string, schema: TSchema | undefined, media = 'application/json'): object {
  const description = descriptions[status] ?? 'Done';
  if (media !== 'application/json') {
    return { description, content: { [media]: { schema: { type: 'string' } } } };
  }
  return schema === undefined ? { description } : { description, content: { [media]: { schema } } };
}

const descriptions: Readonly<Record<string, string>> = {
  '200': 'Answered',
  '201': 'Made',
  '202': 'Taken in',
  '204': 'Done; nothing to say',
  '304': 'As you know it',
  '503': 'Not ready',
};

function parameters(schema: TSchema | undefined, where: 'path' | 'query'): readonly object[] {
  const { properties = {} } = (schema ?? {}) as { properties?: Record<string, TSchema> };
  return Object.entries(properties).map(([name, one]) => ({
    name,
    in: where,
    required: true,
    schema: one,
  }));
}
