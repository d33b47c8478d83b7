-- Who leads. One row per thing that is led; the epoch grows with every change of holder.
CREATE TABLE leader_leases (
  name       text COLLATE "C" PRIMARY KEY,
  holder     text        NOT NULL,
  epoch      bigint      NOT NULL CHECK (epoch > 0),
  expires_at timestamptz NOT NULL
);
