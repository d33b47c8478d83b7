-- Orders, stock, payments, audit.
--
-- Ids compare by bytes (COLLATE "C"): they are no language, and every index is smaller and faster.
-- Instants are milliseconds since the Unix epoch, UTC; amounts are minor units.

-- One row per SKU on sale. `sold` is the number of units in live orders (pending or paid). The guard
-- against overselling is the conditional update of this row; the CHECK is the last wall behind it.
CREATE TABLE sku_stock (
  activity_id text COLLATE "C" NOT NULL,
  sku_id      text COLLATE "C" NOT NULL,
  name        text    NOT NULL,
  total       integer NOT NULL CHECK (total >= 0),
  sold        integer NOT NULL DEFAULT 0 CHECK (sold >= 0),
  paid        integer NOT NULL DEFAULT 0 CHECK (paid >= 0),
  -- Counts the rebuilds of this SKU's stock in the inventory store; messages of an older one are lost.
  generation  integer NOT NULL,
  -- Orders by state, kept in the same transactions as the orders, so that looking costs nothing.
  pending_orders   integer NOT NULL DEFAULT 0,
  paid_orders      integer NOT NULL DEFAULT 0,
  expired_orders   integer NOT NULL DEFAULT 0,
  cancelled_orders integer NOT NULL DEFAULT 0,
  refunded_orders  integer NOT NULL DEFAULT 0,
  released         integer NOT NULL DEFAULT 0,
  PRIMARY KEY (activity_id, sku_id),
  CONSTRAINT sku_stock_not_oversold CHECK (sold <= total)
) WITH (fillfactor = 50);

-- Operator's changes of `total`, by the id that makes each happen once.
CREATE TABLE stock_adjustments (
  adjustment_id text COLLATE "C" PRIMARY KEY,
  activity_id   text COLLATE "C" NOT NULL,
  sku_id        text COLLATE "C" NOT NULL,
  delta         integer NOT NULL,
  at_ms         bigint  NOT NULL
);

-- The fate of every reservation: one row, whichever way it was decided first. RELEASED is the fate of
-- a reservation that never became an order; every other state is an order's.
CREATE TABLE orders (
  reservation_id text COLLATE "C" PRIMARY KEY,
  order_id       text COLLATE "C" UNIQUE,
  state          text COLLATE "C" NOT NULL,
  activity_id    text COLLATE "C" NOT NULL,
  sku_id         text COLLATE "C" NOT NULL,
  user_id        text COLLATE "C" NOT NULL,
  person_id      text COLLATE "C" NOT NULL,
  request_id     text COLLATE "C" NOT NULL,
  fingerprint    text COLLATE "C" NOT NULL,
  nonce          text COLLATE "C" NOT NULL,
  generation     integer NOT NULL,
  quantity       integer NOT NULL CHECK (quantity > 0),
  amount_minor   bigint  NOT NULL,
  currency       text COLLATE "C" NOT NULL,
  seats          text[],
  created_at_ms  bigint NOT NULL,
  pay_before_ms  bigint NOT NULL,
  paid_at_ms     bigint,
  paid_by        text COLLATE "C",
  closed_at_ms   bigint,
  release_reason text COLLATE "C",
  -- What the inventory store has yet to be told: null, or RELEASE, or RETAKE. The version grows with
  -- each new thing to tell, so that an old "told" does not swallow it.
  stock_due      text COLLATE "C",
  due_at_ms      bigint,
  due_version    integer NOT NULL DEFAULT 0,
  CONSTRAINT orders_state CHECK (state IN
    ('RELEASED', 'PENDING_PAYMENT', 'PAID', 'EXPIRED', 'CANCELLED', 'REFUNDED')),
  CONSTRAINT orders_order_id CHECK ((state = 'RELEASED') = (order_id IS NULL)),
  CONSTRAINT orders_stock_due CHECK (stock_due IN ('RELEASE', 'RETAKE'))
) WITH (fillfactor = 85);

CREATE INDEX orders_of_request ON orders (user_id, request_id);
CREATE INDEX orders_live_of_person ON orders (person_id)
  WHERE state IN ('PENDING_PAYMENT', 'PAID');
CREATE INDEX orders_deadline ON orders (pay_before_ms) WHERE state = 'PENDING_PAYMENT';
CREATE INDEX orders_stock_due ON orders (due_at_ms, reservation_id) WHERE stock_due IS NOT NULL;

-- Live units of one person in one SKU: the guard of the purchase limit.
CREATE TABLE person_units (
  activity_id text COLLATE "C" NOT NULL,
  sku_id      text COLLATE "C" NOT NULL,
  person_id   text COLLATE "C" NOT NULL,
  units       integer NOT NULL CHECK (units >= 0),
  -- The limit that the newest order was made under; late money is judged by it.
  unit_limit  integer NOT NULL,
  -- The person first: it alone tells most keys apart, and all keys of a sale share the rest.
  PRIMARY KEY (person_id, sku_id, activity_id)
) WITH (fillfactor = 85);

-- One live hold per seat.
CREATE TABLE seat_holds (
  activity_id    text COLLATE "C" NOT NULL,
  sku_id         text COLLATE "C" NOT NULL,
  seat           text COLLATE "C" NOT NULL,
  reservation_id text COLLATE "C" NOT NULL,
  PRIMARY KEY (activity_id, sku_id, seat)
);
CREATE INDEX seat_holds_of_reservation ON seat_holds (reservation_id);

CREATE TABLE payments (
  payment_id    text COLLATE "C" PRIMARY KEY,
  order_id      text COLLATE "C" NOT NULL REFERENCES orders (order_id),
  provider      text COLLATE "C" NOT NULL,
  intent_id     text COLLATE "C" NOT NULL DEFAULT '',
  amount_minor  bigint NOT NULL,
  currency      text COLLATE "C" NOT NULL,
  state         text COLLATE "C" NOT NULL,
  reason        text NOT NULL DEFAULT '',
  attempts      integer NOT NULL DEFAULT 0,
  created_at_ms bigint NOT NULL,
  updated_at_ms bigint NOT NULL,
  CONSTRAINT payments_state CHECK (state IN
    ('CREATED', 'PROCESSING', 'CONFIRMED', 'FAILED', 'UNKNOWN', 'REFUND_DUE', 'REFUNDED', 'HELD'))
) WITH (fillfactor = 85);
CREATE INDEX payments_of_order ON payments (order_id);
-- One open intent per order and provider, however often somebody clicks.
CREATE UNIQUE INDEX payments_one_open ON payments (order_id, provider)
  WHERE state IN ('CREATED', 'PROCESSING', 'UNKNOWN');
CREATE UNIQUE INDEX payments_of_intent ON payments (provider, intent_id) WHERE intent_id <> '';
CREATE INDEX payments_unfinished ON payments (updated_at_ms)
  WHERE state IN ('CREATED', 'PROCESSING', 'UNKNOWN', 'REFUND_DUE', 'HELD');

-- Every event a provider sent, once. One that found no order stays unapplied, for the operator, and
-- is tried again when it comes again.
CREATE TABLE payment_events (
  provider     text COLLATE "C" NOT NULL,
  event_id     text COLLATE "C" NOT NULL,
  intent_id    text COLLATE "C" NOT NULL,
  order_id     text COLLATE "C" NOT NULL,
  outcome      text COLLATE "C" NOT NULL,
  amount_minor bigint NOT NULL,
  currency     text COLLATE "C" NOT NULL,
  effect       text COLLATE "C" NOT NULL DEFAULT '',
  applied      boolean NOT NULL,
  at_ms        bigint NOT NULL,
  PRIMARY KEY (provider, event_id)
);
CREATE INDEX payment_events_unmatched ON payment_events (at_ms) WHERE NOT applied;

CREATE TABLE audit_log (
  id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at_ms   bigint NOT NULL,
  who     text NOT NULL,
  what    text NOT NULL,
  why     text NOT NULL,
  subject text COLLATE "C" NOT NULL,
  detail  jsonb
);
CREATE INDEX audit_log_subject ON audit_log (subject, id);

-- Ends a statement, and with it all that the statement did, when a guard did not hold: somebody was
-- faster, and the caller reads and decides anew. SL001 is ours.
CREATE FUNCTION sluice_require(holds boolean, guard text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF holds THEN
    RETURN true;
  END IF;
  RAISE EXCEPTION 'guard missed: %', guard USING ERRCODE = 'SL001';
END
$$;
