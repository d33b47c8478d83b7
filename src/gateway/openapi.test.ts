import { Ajv2020 } from 'ajv/dist/2020.js';
import { expect, test } from 'vitest';
import { codes } from '../wire/codes.ts';
import { openApiDocument } from './openapi.ts';
import { routeTable } from './routes/table.ts';

interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly parameters: readonly { name: string; in: string; required: boolean }[];
  readonly responses: Readonly<Record<string, { description: string; content?: object }>>;
  readonly requestBody?: { readonly content: Readonly<Record<string, { schema: object }>> };
}

const document = JSON.parse(JSON.stringify(openApiDocument(routeTable, '1'))) as {
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, object> };
  'x-codes': { code: string }[];
};
const operations = Object.entries(document.paths).flatMap(([path, item]) =>
  Object.entries(item).map(([method, operation]) => ({ path, method, operation })),
);

test('every operation has an id of its own, its path parameters, and described answers', () => {
  const ids = operations.map(({ operation }) => operation.operationId);
  expect(new Set(ids).size).toBe(ids.length);
  for (const { path, operation } of operations) {
    const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
    const declared = operation.parameters.filter((one) => one.in === 'path');
    expect(declared.map(({ name }) => name)).toEqual(inPath);
    expect(operation.responses['default']).toBeDefined();
    for (const answer of Object.values(operation.responses)) {
      expect(answer.description).not.toBe('');
    }
  }
});

test('every schema in it compiles as JSON Schema 2020-12, and every reference leads somewhere', () => {
  const ajv = new Ajv2020({ strict: true, allowUnionTypes: true });
  const schemas: object[] = Object.values(document.components.schemas);
  const look = (value: unknown): void => {
    if (typeof value !== 'object' || value === null) return;
    for (const [key, member] of Object.entries(value)) {
      if (key === '$ref') {
        const name = String(member).replace('#/components/schemas/', '');
        expect(document.components.schemas[name]).toBeDefined();
      } else if (key === 'schema' && !('$ref' in (member as object)))
        schemas.push(member as object);
      look(member);
    }
  };
  look(document.paths);
  expect(schemas.length).toBeGreaterThan(20);
  for (const schema of schemas) expect(() => ajv.compile(schema)).not.toThrow();
});

test('the catalogue of codes comes along', () => {
  expect(document['x-codes'].map(({ code }) => code)).toEqual(Object.keys(codes));
});

test('nothing of the schema builder’s own is published', () => {
  expect(JSON.stringify(document)).not.toMatch(/"~|Symbol/);
});
