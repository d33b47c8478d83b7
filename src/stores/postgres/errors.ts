import { UnavailableError } from '../../ports/errors.ts';

/**
 * What PostgreSQL itself said no to: a syntax error, a broken constraint, a value out of range. The
 * statement did nothing, and its transaction is gone. Repeating it unchanged says the same again.
 */
export class SqlError extends Error {
  override readonly name = 'SqlError';
  /** SQLSTATE, five characters, or '' where the server gave none. */
  readonly code: string;
  readonly constraint: string | undefined;
  readonly detail: string | undefined;

  constructor(fields: SqlErrorFields) {
    super(fields.message);
    this.code = fields.code ?? '';
    this.constraint = fields.constraint;
    this.detail = fields.detail;
  }
}

/** The part of a server error that crosses threads and drivers. */
export interface SqlErrorFields {
  readonly message: string;
  readonly code?: string | undefined;
  readonly constraint?: string | undefined;
  readonly detail?: string | undefined;
}

/** Serialization failure and deadlock: PostgreSQL asks for the whole transaction again. */
export function asksForRetry(error: unknown): boolean {
  return error instanceof SqlError && (error.code === '40001' || error.code === '40P01');
}

/**
 * SQLSTATEs by which the server says "not now" rather than "never": out of connections or memory,
 * starting up, shutting down, cancelled by its own time limit. Outside of a COMMIT the statement did
 * nothing.
 */
export function saysNotNow(code: string): boolean {
  return (
    code.startsWith('53') || code.startsWith('57') || code.startsWith('08') || code === '55P03'
  );
}

/** The server ends the connection with these words, and may have done the statement before. */
export function endsConnection(code: string | undefined): boolean {
  return code !== undefined && (code.startsWith('57P') || code.startsWith('08'));
}

/** A server error as the ports know it, for a statement that surely did nothing. */
export function toPortError(fields: SqlErrorFields): Error {
  if (saysNotNow(fields.code ?? '')) {
    return new UnavailableError(`database says not now (${fields.code}): ${fields.message}`);
  }
  return new SqlError(fields);
}
