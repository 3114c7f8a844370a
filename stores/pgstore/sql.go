package pgstore

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"example.com/idempotency/internal/sqlrecord"
	"example.com/idempotency/store"
)

// The statements of a store. Their arguments are text, bytea, int8 and bool only, which every
// mode of the driver sends without asking the server for types.

// The mark is a setting of a run's transaction by which the store knows it. It ends with the transaction,
// however that ends, and is not in one that follows it. It has no effect: it is for transactions that begin
// after it. And PostgreSQL tells clients, unasked, when this setting changes.
const (
	markName = "default_transaction_read_only"
	mark     = "SET LOCAL " + markName + " = on"
	askMark  = "SELECT pg_catalog.current_setting('" + markName + "')"

	// one is 1 in the transaction of a run, and an error in any other, or if the timeline is older than the newest.
	one = `(CASE WHEN {timeline} COLLATE pg_catalog."C" < {newest}::text THEN current_setting('` + behindText + `')
		WHEN ` + marked + ` END)::int8`

	// marked ends a CASE that is '1' in the transaction of a run, and an error in any other.
	marked = `current_setting('` + markName + `') = 'on' THEN '1' ELSE current_setting('` + endedText + `')`

	// lost is an error.
	lost = `current_setting('` + lostText + `')::int8`

	// These are in the errors with which a statement of the store keeps a COMMIT from being reached: that a
	// setting is unknown. PostgreSQL has no function that raises an error of one's own, and the store has none
	// in the database. No setting can have a name without a dot that PostgreSQL does not know.
	lostText   = "idempotency: the run has lost its claim and is rolled back"
	endedText  = "idempotency: the transaction of the run has been ended by itself"
	behindText = "idempotency: the server is on an older timeline than one that the process has met"
)

// statements are the texts for one table.
type statements struct {
	claims map[claimKind]string
	meet, emit, look, lookAnswer, write, takeOver, takeOverTagged, complete, release, fenced, touch, catchUp, lock, isLocked, isOwner, ownsRow,
	step, fencedStep, forget, list, holding, find, sweepable, sweep, sweepTags, openLock, awaitLock, whole, wholeTagged string
}

// A claimKind is what a claim says besides: that it need not be durable at once, that no transaction may be a claim
// of the key, and that it brings tags.
type claimKind struct{ async, free, tagged bool }

const (
	// now is the clock. It is not now(), which stands still in a transaction.
	now = `(extract(epoch FROM clock_timestamp()) * 1000000)::int8`

	// arrived is when the statement came. Unlike the clock it needs no subquery to be the same in all columns. In
	// this century date_part is exact to a quarter of a microsecond, and takes less time than extract.
	arrived = `(date_part('epoch', statement_timestamp()) * 1000000)::int8`

	// hour is the last one whose records are swept.
	hour = now + ` / 3600000000`

	// replicated says that commits wait for a standby.
	replicated = `coalesce(current_setting('synchronous_standby_names', true), '') <> ''`

	// never is the moment that does not come; see sqlrecord.Never.
	never = `9223372036854775807`

	// settled ends a statement whose rows are named done: it announces the record if somebody
	// waits for it, and tells how many rows were written.
	settled = ` SELECT count(*), ` + announced + ` FROM done`

	announced = `count(CASE WHEN watched THEN pg_notify($2, $1)::text END)`

	// values are what a row is written with, and written is what tells of it.
	values = `version = version + 1, state = $4, attempt = $5, owner = $6, fingerprint = $7, hold = $8, hold_ends = $9,
		watched = $10, marks = $11, lease = $12, retention = $13, since = $14, touched = $15, expires = $16, label = $17,
		notes = $18, sealed_key = $19, steps = $20, status = $21, answer = $22`
	written = `RETURNING watched AND state <> 'claimed' AS watched`

	// savesStep appends a step to the row of an owner.
	savesStep = `UPDATE {t} SET version = version + 1, steps = steps || $3, marks = marks & ~2
		WHERE key = $1 AND owner = $2 AND state = 'claimed'` + unexpired
	unexpired = ` AND expires > {now}`

	isOwner = `SELECT count(*) = 1 FROM {t} WHERE key = $1 AND owner = $2 AND state = 'claimed'`

	touch = `UPDATE {t} SET version = version + 1, ` + renewal + `
		WHERE key = (SELECT key FROM {t} WHERE key = $1 AND owner = $2 AND state = 'claimed'` + unexpired + `
			FOR NO KEY UPDATE SKIP LOCKED)`

	// renewal starts the lease of a row anew that is updated.
	renewal = `touched = now, expires = CASE WHEN hold AND NOT hold_ends THEN {never} ELSE now + least(retention, {never} - now) END
		FROM (SELECT {now} AS now) clock`

	// completion completes the row of an owner, if it is in one of the states.
	completion = `clock AS (SELECT {now} AS now), done AS (
		UPDATE {t} SET version = version + 1, state = 'completed', touched = now, expires = now + least($4::int8, {never} - now),
			marks = marks & ~1, status = $5, answer = $6
		FROM clock
		WHERE key = $1 AND owner = $3 AND {in} AND marks & 16 = 0
		RETURNING watched)`
)

// inCatalog names functions and types as those of PostgreSQL. A transaction of a program may have others of
// that name on its search_path.
var inCatalog = strings.NewReplacer(
	"clock_timestamp(", "pg_catalog.clock_timestamp(", "date_part(", "pg_catalog.date_part(",
	"statement_timestamp(", "pg_catalog.statement_timestamp(", "transaction_timestamp(", "pg_catalog.transaction_timestamp(", "count(", "pg_catalog.count(", "octet_length(", "pg_catalog.octet_length(",
	"pg_is_in_recovery(", "pg_catalog.pg_is_in_recovery(",
	"pg_try_advisory_xact_lock(", "pg_catalog.pg_try_advisory_xact_lock(", "pg_advisory_xact_lock_shared(", "pg_catalog.pg_advisory_xact_lock_shared(", "pg_notify(", "pg_catalog.pg_notify(", "set_config(", "pg_catalog.set_config(",
	"current_setting(", "pg_catalog.current_setting(", "pg_logical_emit_message(", "pg_catalog.pg_logical_emit_message(",
	"::int8", "::pg_catalog.int8", "::text", "::pg_catalog.text", "::bytea", "::pg_catalog.bytea",
)

// statementsFor returns the statements for a table, whose name is quoted and has its schema. The name of the table of
// its tags is empty if the store keeps none. Those of transactions ask for the timeline, if they are told to.
func statementsFor(t, tags string, fenced bool) statements {
	told, file := `NULL::pg_catalog.text`, `''` // older than none
	if fenced {
		told, file = timeline, walFile
	}
	fill := func(sql string) string {
		sql = strings.NewReplacer("{values}", values, "{written}", written).Replace(sql)
		sql = strings.NewReplacer("{t}", t, "{tags}", tags, "{now}", now, "{hour}", hour, "{replicated}", replicated, "{columns}", sqlrecord.Columns, "{never}", never, "{announced}", announced, "{one}", one, "{lost}", lost).Replace(sql)
		return strings.NewReplacer("{timeline}", told, "{file}", file).Replace(inCatalog.Replace(sql))
	}
	// fence says which argument of a statement is the newest timeline.
	fence := func(newest, sql string) string { return strings.ReplaceAll(fill(sql), "{newest}", newest) }
	// A claim reads the answer only for those whose fingerprint it is bound to.
	met := `SELECT {columns}, CASE WHEN state = 'completed' AND fingerprint = $2 THEN answer END, {now}, false, {replicated}
			FROM {t} WHERE key = $1`
	// A key that is new is inserted, and any other record is read, in one trip. The two halves
	// see the same snapshot, so that the second does not see what the first has written. If
	// another transaction has inserted the key since, neither returns a row. The first version of a row
	// is the time: another one of the same key, which was removed meanwhile, has had no such version.
	claim := `WITH clock AS (SELECT {now} AS now{async}), fresh AS (
			INSERT INTO {t} (key, version, state, attempt, owner, fingerprint, hold, hold_ends, watched, marks,
				lease, retention, since, touched, expires, label, notes, sealed_key, steps, status)
			SELECT $1, now, 'claimed', 1, $3, $2, $4, $5, $6, $7, $8, $9, now, now, now + least($10::int8, {never} - now), $11, $12, $13, '', 0
			FROM clock{free}
			ON CONFLICT (key) DO NOTHING
			RETURNING {columns}, NULL::bytea, since, true, false){tagged}
			SELECT * FROM fresh
			UNION ALL
			` + met

	claims := make(map[claimKind]string)
	for i := range 8 {
		kind, async, free, tagged, last := claimKind{i&1 > 0, i&2 > 0, i&4 > 0}, "", "", "", claimArgs
		if kind.async {
			// The setting is that of the statement's own transaction: its commit does not wait for the disk.
			async = `, set_config('synchronous_commit', 'off', true)`
		}
		if kind.tagged {
			tagged = ", " + tagging(last+1, "$2", "fresh")
			last += store.MaxTags
		}
		if kind.free {
			// A transaction that is a claim has the lock.
			free = fmt.Sprintf(` WHERE pg_try_advisory_xact_lock($%d::int8)`, last+1)
		}
		claims[kind] = fill(strings.NewReplacer("{async}", async, "{free}", free, "{tagged}", tagged).Replace(claim))
	}
	takeOver := `WITH done AS (UPDATE {t} SET {values} WHERE key = (
			SELECT key FROM {t} WHERE key = $1 AND version = $3 FOR UPDATE SKIP LOCKED) {written})`
	// It makes the whole record of a run whose claim is its transaction, unless there is one.
	whole := strings.ReplaceAll(`INSERT INTO {t} (key, version, state, attempt, owner, fingerprint, hold, hold_ends, watched, marks,
				lease, retention, since, touched, expires, label, notes, sealed_key, steps, status, answer)
			VALUES ($1, {arrived}, 'completed', (CASE WHEN `+marked+` END)::int8, $3, $2, $4, $5, false, $6,
				$7, $8, {began}, {arrived}, {arrived} + least($9::int8, {never} - {arrived}), $10, $11, $12, '', $13, $14)`, "{arrived}", arrived)
	whole = strings.Replace(whole, "{began}", strings.Replace(arrived, "statement", "transaction", 1), 1)
	forget := `DELETE FROM {t} WHERE key = $1 AND version = $2 RETURNING key`
	// A record that was written since it was looked up may live, or be elsewhere.
	sweep := `DELETE FROM {t} WHERE ctid = ANY (ARRAY(
			SELECT ctid FROM {t} WHERE ctid = ANY ($1::text::pg_catalog.tid[]) AND sweep_hour <= {hour} FOR UPDATE SKIP LOCKED)) RETURNING key`
	remove := func(sql string) string { return fill(`WITH gone AS (` + sql + `) SELECT count(*) FROM gone`) }
	if tags != "" {
		remove = func(sql string) string {
			return fill(`WITH gone AS (` + sql + `), untagged AS (DELETE FROM {tags} WHERE record IN (SELECT key FROM gone)) SELECT count(*) FROM gone`)
		}
	}

	return statements{
		claims: claims,
		// A standby sees the past, and says nothing: a claim is refused there.
		meet: fill(met + ` AND NOT pg_is_in_recovery()`),
		// Its commit makes durable what was committed before, and it touches no row.
		emit: inCatalog.Replace(`SELECT pg_logical_emit_message(true, 'idempotency', '')`),

		look:       fill(`SELECT {columns}, NULL::bytea, {now}, false, {replicated} FROM {t} WHERE key = $1`),
		lookAnswer: fill(`SELECT {columns}, answer, {now}, false, {replicated} FROM {t} WHERE key = $1`),

		// Writes what a look has decided, over the version that it has seen. A claim does not wait
		// for a run whose transaction keeps the row locked.
		write:    fill(`WITH done AS (UPDATE {t} SET {values} WHERE key = $1 AND version = $3 {written})` + settled),
		takeOver: fill(takeOver + settled),
		takeOverTagged: fill(takeOver + `, untagged AS (DELETE FROM {tags} WHERE record = $1 AND tag NOT IN ($23, $24, $25, $26) AND EXISTS (SELECT FROM done)), ` +
			tagging(writeArgs+1, "$7", "done") + settled),

		// The calls of an owner whose row is as it should be. Any other case is decided by a look.
		complete: fill(`WITH ` + strings.Replace(completion, "{in}", "state IN ('claimed', 'held') AND expires > now", 1) + settled),
		// A record is blank (2) until something may have been done under it. $4 says that nothing
		// was done by this run, $5 how long the record is kept then, $6 whether it is unbound (4), and
		// $7 whether it is if the claim has found it so.
		release: fill(`WITH clock AS (SELECT {now} AS now), done AS (
			UPDATE {t} SET version = version + 1, state = 'released', touched = now,
				expires = now + least(retention, CASE WHEN $4 AND marks & 2 = 2 THEN $5::int8 ELSE {never} END, {never} - now),
				marks = CASE WHEN NOT $4 OR marks & 2 = 0 THEN marks & ~6 WHEN $6 THEN marks | 4 WHEN $7 THEN marks ELSE marks & ~4 END
			FROM clock
			WHERE key = $1 AND owner = $3 AND state = 'claimed' AND expires > now AND marks & 17 = 0
			RETURNING watched)` + settled),
		// In a joined transaction it is an error if the row is not as it should be, so that the
		// COMMIT behind it is not reached. What is held became so by lapse (1): an owner that has
		// said Hold was promised that its transaction will not be committed. A record may have
		// expired while its lock kept renewals away: as long as it is there, it is nobody else's.
		fenced: fence("$7", `WITH `+strings.Replace(completion, "{in}", "(state = 'claimed' OR state = 'held' AND marks & 1 = 1)", 1)+` SELECT coalesce({one} * nullif(count(*), 0), {lost}), {announced} FROM done`),
		// It does not wait for a locked row, which would keep a connection from others.
		touch: fill(touch),
		// After a lock that has kept renewals away, the record may have expired.
		catchUp: fill(strings.Replace(touch, unexpired, "", 1)),
		lock:    fill(`SELECT 1 FROM {t} WHERE key = $1 AND owner = $2 AND state = 'claimed' FOR UPDATE`),
		isLocked: fill(`SELECT count(*) = 0 FROM (
			SELECT 1 FROM {t} WHERE key = $1 AND owner = $2 AND state = 'claimed' FOR KEY SHARE SKIP LOCKED) free`),
		isOwner: fill(isOwner + unexpired),
		ownsRow: fill(isOwner),
		step:    fill(savesStep),
		// It is a renewal too: while its transaction has kept the record locked, there was none.
		fencedStep: fence("$4", `WITH done AS (`+strings.Replace(strings.TrimSuffix(savesStep, unexpired), "\n", ", "+renewal+"\n", 1)+` RETURNING 1) SELECT coalesce({one} * nullif(count(*), 0), {lost}) FROM done`),

		// It begins the transaction that is a claim. Without a statement, that lasts no longer than a lease. What it
		// tells of the server holds until the transaction ends.
		openLock: fill(`SELECT pg_try_advisory_xact_lock($1::int8), CASE WHEN pg_is_in_recovery() THEN '` + inRecovery + `' ELSE {file} END,
			set_config('` + markName + `', 'on', true), set_config('idle_in_transaction_session_timeout', $2::text, true)`),
		awaitLock:   inCatalog.Replace(`SELECT pg_advisory_xact_lock_shared($1::int8)`),
		whole:       fill(whole),
		wholeTagged: fill(`WITH made AS (` + whole + ` RETURNING key), ` + tagging(wholeArgs+1, "$2", "made") + ` SELECT FROM made`),

		forget: remove(forget),
		// Of two rows that cannot be told apart by one column, the second decides.
		list: fill(`SELECT key, coalesce(in_doubt, 0), {columns}, {now} FROM {t} WHERE key > $1 ORDER BY key LIMIT $2`),
		holding: fill(`SELECT key, in_doubt, {columns}, {now} FROM {t} WHERE in_doubt IS NOT NULL AND (in_doubt, key) > ($1, $2)
			ORDER BY in_doubt, key LIMIT $3`),
		// A tag is of a record as long as the record is bound to the fingerprint that it was tagged with.
		find: fill(`SELECT key, 0::int8, {columns}, {now} FROM {tags} JOIN {t} ON key = record AND fingerprint = bound_to
			WHERE tag = $1 AND record > $2 ORDER BY record LIMIT $3`),
		sweepable: fill(`SELECT ctid::text, sweep_hour FROM {t} WHERE sweep_hour BETWEEN $1 AND {hour} ORDER BY sweep_hour LIMIT $2`),
		sweep:     remove(sweep),
		// A program of an earlier version leaves the tags of the records that it removes. Those of the last hour may be
		// of a claim that is being made.
		sweepTags: fill(`WITH looked AS (SELECT tag, record FROM {tags} WHERE record > $1 ORDER BY record LIMIT $2),
			gone AS (DELETE FROM {tags} AS tags USING looked WHERE tags.tag = looked.tag AND tags.record = looked.record
				AND tags.tagged < {now} - 3600000000 AND NOT EXISTS (SELECT FROM {t} WHERE key = tags.record))
			SELECT record FROM looked ORDER BY record DESC LIMIT 1`),
	}
}

// The numbers of arguments of the statements that tags may be added to.
const claimArgs, writeArgs, wholeArgs = 13, 22, 14

// tagging is the part of a statement that writes the tags of the record which it has made. The first of them is an
// argument, and so is the fingerprint. Made has a row then.
func tagging(first int, fingerprint, made string) string {
	return fmt.Sprintf(`tagged AS (INSERT INTO {tags} (tag, record, bound_to, tagged)
			SELECT tag, $1, %s, {now} FROM (VALUES ($%d::bytea), ($%d), ($%d), ($%d)) AS brought (tag) WHERE tag <> '' AND EXISTS (SELECT FROM %s)
			ON CONFLICT (tag, record) DO UPDATE SET bound_to = excluded.bound_to, tagged = excluded.tagged)`,
		fingerprint, first, first+1, first+2, first+3, made)
}

// channelFor returns the channel on which the records of a table are announced. A channel has at
// most 63 bytes.
func channelFor(table string) string {
	name := "idempotency:" + table
	if len(name) > 63 {
		sum := sha256.Sum256([]byte(table))
		name = "idempotency:" + hex.EncodeToString(sum[:16])
	}
	return name
}
