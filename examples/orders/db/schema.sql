-- The tables of the order service, in SQL that PostgreSQL and SQLite both understand. Yours are in
-- your migrations.
CREATE TABLE IF NOT EXISTS orders (
	id       TEXT PRIMARY KEY,
	customer TEXT NOT NULL,
	item     TEXT NOT NULL,
	quantity BIGINT NOT NULL
);

-- A message for the broker is a row, so that it is committed with its order, or not at all.
CREATE TABLE IF NOT EXISTS outbox (
	id        TEXT PRIMARY KEY,
	topic     TEXT NOT NULL,
	payload   TEXT NOT NULL,
	created   BIGINT NOT NULL, -- microseconds since 1970
	published BIGINT           -- the same; NULL until the relay has published it
);

CREATE INDEX IF NOT EXISTS outbox_unpublished ON outbox (created, id) WHERE published IS NULL;
