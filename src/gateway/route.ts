import type { IncomingMessage } from 'node:http';
import type { Static, TSchema } from 'typebox';
import type { Refusal } from '../core/decision.ts';
import type { Priority } from '../core/overload/priority.ts';
import type { KnownPerson } from '../pipeline/identity.ts';
import type { RouteName } from '../pipeline/limits.ts';
import type { GatewayContext } from './context.ts';
import type { Credentials } from './credentials.ts';

/**
 * One row of the route table: it serves the request, checks it, and describes it in `/openapi.json`.
 * Handlers get checked values and give back values; how both travel is the lane's business.
 */
export interface RouteSpec {
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** With `{name}` for parameters, as people write it. */
  readonly path: string;
  readonly operationId: string;
  readonly summary: string;
  readonly limits: RouteName;
  /** Undefined is never shed: probes must tell the truth. */
  readonly priority: Priority | undefined;
  readonly params?: TSchema;
  readonly query?: TSchema;
  readonly body?: TSchema;
  /** The body may be left out, and is then `{}`. */
  readonly bodyOptional?: boolean;
  /** The body is signed bytes of somebody else's format: bounded, and not looked into. */
  readonly rawBody?: boolean;
  readonly auth: 'none' | 'user' | 'user_or_entry';
  readonly answers: Readonly<Record<number, TSchema | undefined>>;
  /** Answer media type where it is not JSON. */
  readonly media?: string;
  /** Undefined where the hot lane serves it. */
  readonly handle?: Handler;
}

export interface Call {
  readonly context: GatewayContext;
  readonly request: IncomingMessage;
  readonly credentials: Credentials;
  readonly nowMs: number;
  readonly nowUs: number;
  readonly address: string;
  /** The rule for which the cheaper answer is due, where the route has one. */
  readonly degradedBy: string | undefined;
  readonly params: Readonly<Record<string, string>>;
  readonly body: unknown;
  readonly bodyText: string;
  readonly rawBody: Uint8Array;
  /** Set where `auth` is `user`. */
  readonly person?: KnownPerson;
}

/** A JSON body with its status, a refusal, or a stream that takes over the connection. */
export type RouteReply =
  | Refusal
  | {
      readonly status: number;
      readonly body: object | undefined;
      readonly headers?: readonly string[];
      readonly cookies?: readonly string[];
    }
  | { readonly stream: (open: StreamTarget) => void };

export interface StreamTarget {
  /** Writes the head of an event stream. */
  start(): void;
  write(text: string): void;
  /** Bytes that the other side has not taken yet. */
  readonly pending: number;
  end(): void;
  onClose(run: () => void): void;
}

export type Handler = (call: Call) => RouteReply | Promise<RouteReply>;

/** The checked body of a route whose spec names `schema`; the lane has checked it. */
export function bodyOf<Schema extends TSchema>(call: Call, _schema: Schema): Static<Schema> {
  return call.body as Static<Schema>;
}

export function personOf(call: Call): KnownPerson {
  if (call.person === undefined) throw new Error('this route asked for no user');
  return call.person;
}

export function param(call: Call, name: string): string {
  const value = call.params[name];
  if (value === undefined) throw new Error(`this route has no parameter ${name}`);
  return value;
}
