-- Each version adds to the one before: pgstore.Migrate, and pgstore.MigrationSQL, begin where a table is.

-- Version 1: the table.
-- The table of idempotency records. Moments are microseconds since 1970 by the clock of the
-- server: to_timestamp(touched / 1e6) shows one. Durations are microseconds. The greatest int8
-- stands for a record that is kept until somebody resolves or forgets it.
CREATE TABLE idempotency_records (
	key         text COLLATE "C" PRIMARY KEY, -- a digest of scope and key: never the client's own
	version     int8 NOT NULL,                -- grows with each change; at first the time
	state       text COLLATE "C" NOT NULL,    -- claimed, released, completed or held
	attempt     int8 NOT NULL,
	owner       bytea NOT NULL,               -- the random token of the last claim
	fingerprint bytea NOT NULL,               -- of the payload that the key is bound to
	hold        bool NOT NULL,                -- held when its lease ends, and not taken over
	hold_ends   bool NOT NULL,                -- ends with its retention even while it is held
	watched     bool NOT NULL,                -- somebody waits for it to settle
	marks       int8 NOT NULL,                -- 1 held by lapse, 2 blank, 4 unbound, 8 taken over, 16 by hand
	lease       int8 NOT NULL,
	retention   int8 NOT NULL,
	since       int8 NOT NULL,                -- when the last claim was granted, or it became held
	touched     int8 NOT NULL,                -- when it was last claimed, renewed or settled
	expires     int8 NOT NULL,
	label       text NOT NULL,                -- the route
	notes       bytea NOT NULL,               -- of the last 16 runs and 8 decisions
	sealed_key  bytea NOT NULL,               -- the client's key, where the route keeps it
	steps       bytea NOT NULL,
	status      int8 NOT NULL,
	answer      bytea,

	-- The only index on the life of a record changes once an hour at most, so most updates touch
	-- no index (HOT) if their page has room. What is in doubt is indexed apart, and costs nothing
	-- where nothing is.
	sweep_hour  int8 GENERATED ALWAYS AS (expires / 3600000000 + 1) STORED,
	in_doubt    int8 GENERATED ALWAYS AS (
		CASE WHEN state = 'held' OR state = 'claimed' AND hold THEN since END) STORED
)
-- A claim is small and becomes large when it is completed, by another connection. On full pages,
-- claims took the room of those before them, and one update of ten found its page.
WITH (fillfactor = 80);

CREATE INDEX idempotency_records_sweep ON idempotency_records (sweep_hour);
CREATE INDEX idempotency_records_in_doubt ON idempotency_records (in_doubt, key) WHERE in_doubt IS NOT NULL;

-- Version 2: what a person may read. It has no token, no payload, no answer and no key of a client, so a role
-- may have SELECT on it that may not read the table.
CREATE OR REPLACE VIEW idempotency_keys AS
SELECT key, label AS route,
	CASE
		WHEN expires <= clock.now THEN 'expired'
		WHEN state <> 'claimed' THEN state
		WHEN clock.now - touched < lease THEN 'running'
		WHEN hold THEN 'held'
		ELSE 'lapsed'
	END AS state,
	attempt,
	nullif(status, 0) AS status, -- that of the answer
	to_timestamp(since / 1e6) AS since,
	to_timestamp(touched / 1e6) AS touched,
	CASE WHEN state = 'claimed' THEN to_timestamp((touched / 1e6) + (lease / 1e6)) END AS lease_ends,
	CASE WHEN expires < 9223372036854775807 THEN to_timestamp(expires / 1e6) END AS expires,
	watched,
	octet_length(answer) AS answer_bytes,
	octet_length(steps) AS steps_bytes,
	pg_column_size(r) AS stored_bytes
FROM idempotency_records AS r
CROSS JOIN (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8 AS now) AS clock;

COMMENT ON TABLE idempotency_records IS 'idempotency: schema 2, for programs of schema 1 or later';

-- Version 3: the index of tags, which are digests by which records are found. A record without tags has no row in it.
CREATE TABLE IF NOT EXISTS idempotency_records_tags (
	tag      bytea NOT NULL,
	record   text COLLATE "C" NOT NULL, -- its key
	bound_to bytea NOT NULL,            -- its fingerprint: another request may have the key since
	tagged   int8 NOT NULL,             -- when
	PRIMARY KEY (tag, record)
);

CREATE INDEX IF NOT EXISTS idempotency_records_tags_key ON idempotency_records_tags (record);

COMMENT ON TABLE idempotency_records IS 'idempotency: schema 3, for programs of schema 1 or later';
