import { Ajv2020, type ErrorObject, type ValidateFunction } from 'ajv/dist/2020.js';
import type { Static, TSchema } from 'typebox';
import { idIntegerMax, type FieldError } from '../wire/schemas.ts';

/**
 * Compiled validators over the wire schemas, and the translation of their complaints into
 * `errors: [{path, found, allowed}]`. Both lanes of the server use the same compiled functions.
 */

/** No coercion and no defaults: a wrong type is an error to be named, not to be guessed away. */
const ajv = new Ajv2020({ allErrors: true, verbose: true, allowUnionTypes: true, strict: true });

/** Errors told of one request: enough to repair it, too few to be used as an amplifier. */
const errorsMax = 16;

/** Characters of an offending value that are quoted back. */
const quotedMax = 64;

export type Checked<Value> =
  | { readonly ok: true; readonly value: Value }
  | { readonly ok: false; readonly errors: readonly FieldError[] };

export type Check<Value> = (value: unknown) => Checked<Value>;

const compiled = new WeakMap<object, ValidateFunction>();

/** Compiles once per schema object; O(size of the value) per call. */
export function checkerOf<Schema extends TSchema>(schema: Schema): Check<Static<Schema>> {
  let validate = compiled.get(schema);
  if (validate === undefined) {
    validate = ajv.compile(schema);
    compiled.set(schema, validate);
  }
  const run = validate;
  return (value) =>
    run(value)
      ? { ok: true, value: value as Static<Schema> }
      : { ok: false, errors: explain(run.errors ?? []) };
}

/** One entry per place: the first complaint about it, in the words of the schema's description. */
function explain(errors: readonly ErrorObject[]): readonly FieldError[] {
  const told = new Map<string, FieldError>();
  for (const error of errors) {
    const field = fieldError(error);
    if (!told.has(field.path)) told.set(field.path, field);
    if (told.size >= errorsMax) break;
  }
  return [...told.values()];
}

interface Described {
  readonly description?: string;
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly properties?: Readonly<Record<string, Described>>;
}

function fieldError(error: ErrorObject): FieldError {
  const parent = error.parentSchema as Described | undefined;
  if (error.keyword === 'additionalProperties') {
    const extra = String(error.params['additionalProperty']);
    return {
      path: `${error.instancePath}/${escapePointer(clip(extra))}`,
      found: 'an unknown member',
      allowed: `only ${Object.keys(parent?.properties ?? {}).join(', ') || 'no members'}`,
    };
  }
  if (error.keyword === 'required') {
    const missing = String(error.params['missingProperty']);
    const wanted = parent?.properties?.[missing];
    return {
      path: `${error.instancePath}/${missing}`,
      found: 'nothing',
      allowed: allowedBy(wanted),
    };
  }
  return { path: error.instancePath, found: quote(error.data), allowed: allowedBy(parent) };
}

function allowedBy(schema: Described | undefined): string {
  if (schema?.description !== undefined) return schema.description;
  if (schema?.enum !== undefined) return `one of ${schema.enum.map(String).join(', ')}`;
  if (schema?.type !== undefined) {
    const types = typeof schema.type === 'string' ? [schema.type] : schema.type;
    return `a JSON ${types.join(' or ')}`;
  }
  return 'another value';
}

function escapePointer(name: string): string {
  return name.replaceAll('~', '~0').replaceAll('/', '~1');
}

function clip(text: string): string {
  return text.length <= quotedMax ? text : `${text.slice(0, quotedMax)}…`;
}

/** The offending value as the sender wrote it, short. Containers are named, not copied. */
export function quote(value: unknown): string {
  if (Array.isArray(value)) return `an array of ${value.length}`;
  if (typeof value === 'object' && value !== null) return 'an object';
  return clip(value === undefined ? 'nothing' : JSON.stringify(value));
}

export type ParsedJson =
  | { readonly ok: true; readonly value: unknown; readonly text: string }
  | { readonly ok: false; readonly error: FieldError };

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: false });

/** Strict UTF-8, then JSON. Never throws. O(length). */
export function parseJson(bytes: Uint8Array): ParsedJson {
  let text: string;
  try {
    text = utf8.decode(bytes);
  } catch {
    return bad('bytes that are not UTF-8', 'JSON in UTF-8');
  }
  try {
    return { ok: true, value: JSON.parse(text) as unknown, text };
  } catch {
    return bad(text.length === 0 ? 'an empty body' : quote(text), 'one JSON value');
  }
}

function bad(found: string, allowed: string): ParsedJson {
  return { ok: false, error: { path: '', found, allowed } };
}

/**
 * The decimal text of an id that came as a JSON integer. 2^53 itself is also what 2^53 + 1 parses to,
 * so at that one value the body's text decides.
 */
export function idText(id: string | number, bodyText: string, path: string): string | FieldError {
  if (typeof id === 'string') return id;
  if (id < idIntegerMax || !/9007199254740993(?!\d)/.test(bodyText)) return String(id);
  return { path, found: '9007199254740993', allowed: 'an integer from 0 to 2^53' };
}
