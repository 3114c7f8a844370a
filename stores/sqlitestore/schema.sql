-- The table of idempotency records. Moments are microseconds since 1970:
-- datetime(touched / 1e6, 'unixepoch') shows one. Durations are microseconds. The greatest integer
-- stands for a record that is kept until somebody resolves or forgets it.
CREATE TABLE IF NOT EXISTS idempotency_records (
	key         TEXT PRIMARY KEY,  -- a digest of scope and key: never the client's own
	version     INTEGER NOT NULL,  -- counts the changes of the row
	state       TEXT NOT NULL,     -- claimed, released, completed or held
	attempt     INTEGER NOT NULL,
	owner       BLOB NOT NULL,     -- the random token of the last claim
	fingerprint BLOB NOT NULL,     -- of the payload that the key is bound to
	hold        INTEGER NOT NULL,  -- held when its lease ends, and not taken over
	hold_ends   INTEGER NOT NULL,  -- ends with its retention even while it is held
	watched     INTEGER NOT NULL,  -- somebody waits for it to settle
	marks       INTEGER NOT NULL,  -- 1 held by lapse, 2 blank, 4 unbound, 8 taken over, 16 by hand
	lease       INTEGER NOT NULL,
	retention   INTEGER NOT NULL,
	since       INTEGER NOT NULL,  -- when the last claim was granted, or it became held
	touched     INTEGER NOT NULL,  -- when it was last claimed, renewed or settled
	expires     INTEGER NOT NULL,
	label       TEXT NOT NULL,     -- the route
	notes       BLOB NOT NULL,     -- of the last 16 runs and 8 decisions
	sealed_key  BLOB NOT NULL,     -- the client's key, where the route keeps it
	steps       BLOB NOT NULL,
	status      INTEGER NOT NULL,
	answer      BLOB,
	in_doubt    INTEGER GENERATED ALWAYS AS (
		CASE WHEN state = 'held' OR state = 'claimed' AND hold THEN since END) VIRTUAL
) STRICT;

CREATE INDEX IF NOT EXISTS idempotency_records_expires ON idempotency_records (expires);
CREATE INDEX IF NOT EXISTS idempotency_records_in_doubt ON idempotency_records (in_doubt, key) WHERE in_doubt IS NOT NULL;
