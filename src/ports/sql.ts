/** The little that repositories need of a database: PGlite in its thread, or a PostgreSQL pool. */
export interface Sql {
  query<Row extends object>(text: string, values?: readonly unknown[]): Promise<readonly Row[]>;
  /** Runs `work` in one transaction; its rejection rolls back. A lost commit is OutcomeUnknownError. */
  transaction<Result>(work: (sql: SqlQueries) => Promise<Result>): Promise<Result>;
  close(): Promise<void>;
}

export type SqlQueries = Pick<Sql, 'query'>;
