import type { LedgerSnapshot, QueueVerdict } from '../../core/ledger/ledger.ts';
import type { Clock, Timers } from '../../ports/clock.ts';
import type { AuditLog } from '../../ports/order-store.ts';
import type { Random } from '../../ports/random.ts';
import type { Principal } from './access.ts';
import type { ConsoleSource, OperatorActions, OrdersDesk, Role, StockRow } from './source.ts';

/** Everything that the admin server needs; composed in `app/`. */
export interface AdminDeps {
  readonly settings: AdminSettings;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  readonly log: AdminLog;
  /** From `ensureAdminToken`. */
  readonly adminToken: string;
  readonly source: ConsoleSource;
  readonly actions?: OperatorActions;
  readonly orders?: OrdersDesk;
  readonly audit: AuditLog;
  /** The audit file of an activity's draw, line by line; throws before there is a draw. */
  readonly drawAudit?: (activityId: string) => AsyncGenerator<string> | undefined;
  /** The flow ledger of this process, and every SKU's units, read from the stores when asked. */
  readonly accounts?: {
    ledger(): LedgerSnapshot;
    /** The queue's part of it, from queue and orders; undefined where nobody counts. */
    queue(): Promise<QueueVerdict | undefined>;
    stock(): Promise<readonly StockRow[]>;
  };
  /** Prometheus text. */
  readonly metrics?: () => Promise<{ readonly contentType: string; readonly body: string }>;
  /** What the command line asks of a running server beyond the routes here. */
  readonly commands?: readonly AdminCommand[];
  /** Folder of the console's bundles (…/web/console); without it there is an API and no page. */
  readonly consoleFolder?: string;
}

export interface AdminSettings {
  /** Loopback unless configured otherwise. */
  readonly host: string;
  /** 0 takes any free port. */
  readonly port: number;
  /** More `Host` values that we answer to, with port where it is not the scheme's own. */
  readonly allowedHosts?: readonly string[];
  /** Set when a proxy in front speaks HTTPS: cookies are Secure then. */
  readonly secure?: boolean;
}

export interface AdminLog {
  warn(event: string, fields: Readonly<Record<string, unknown>>): void;
  error(event: string, fields: Readonly<Record<string, unknown>>): void;
}

/** `POST /admin/v1/commands/{name}`. */
export interface AdminCommand {
  readonly name: string;
  readonly role: Role;
  /** Changes something: needs a reason, and leaves audit rows. */
  readonly changes: boolean;
  /** The answer is sent as it is: already in wire form. RangeError means bad input. */
  run(
    input: unknown,
    context: { readonly principal: Principal; readonly why: string },
  ): Promise<unknown>;
}
