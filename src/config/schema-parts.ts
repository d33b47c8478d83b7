import { Type } from 'typebox';
import type { TSchemaOptions } from 'typebox';
import { kinds } from './values.ts';
import type { Kind, KindName } from './values.ts';

/** What the schema is written with. */

export const text = (kind: KindName, description: string, more: TSchemaOptions = {}) => {
  const { pattern }: Kind = kinds[kind];
  return Type.String({
    description,
    'x-kind': kind,
    ...(pattern === undefined ? {} : { pattern }),
    ...more,
  });
};

export const choice = <const Value extends string>(
  values: readonly Value[],
  description: string,
  fallback: NoInfer<Value>,
) => Type.Unsafe<Value>({ type: 'string', enum: values, description, default: fallback });

export const port = (description: string, fallback: number) =>
  Type.Integer({ minimum: 0, maximum: 65_535, description, default: fallback });

export const closed = { additionalProperties: false } as const;
