package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"example.com/idempotency/internal/sqlrecord"
	"example.com/idempotency/store"
)

// This file is about what a store tells an operator of its table and of the server.

// Health asks the server what is wrong with it now: that it is a standby, only reads, or was replaced by another primary; that
// the table is not as the store needs it, or the role lacks rights; that a tenth of the connections is left, or less; and that
// transaction IDs run out. The error err says that it cannot be asked.
func (s *Store) Health(ctx context.Context) (faults []error, err error) {
	v, err := viewFrom(ctx, s.pool.QueryRow, s.table, true)
	switch {
	case errors.Is(err, errBehind):
		return []error{err}, nil
	case err != nil:
		return nil, calls.Wrap("Health", err)
	}
	if fault := cmp.Or(v.fits(), v.serves()); fault != nil {
		faults = append(faults, fmt.Errorf("pgstore: the table %s: %w", s.table, fault))
	}
	var l load
	if err := s.pool.QueryRow(ctx, loadSQL).Scan(&l.conns, &l.maxConns, &l.age); err != nil {
		return nil, calls.Wrap("Health", err)
	}
	return append(faults, l.faults()...), nil
}

// loadSQL tells how much of what is finite a server has used up. Some connections are only for superusers.
const loadSQL = `SELECT
	(SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity WHERE usesysid IS NOT NULL AND datid IS NOT NULL),
	pg_catalog.current_setting('max_connections')::pg_catalog.int8 - pg_catalog.current_setting('superuser_reserved_connections')::pg_catalog.int8
		- coalesce(pg_catalog.current_setting('reserved_connections', true), '0')::pg_catalog.int8,
	(SELECT pg_catalog.max(pg_catalog.age(datfrozenxid)) FROM pg_catalog.pg_database)::pg_catalog.int8`

// A load is that. The age is how many transactions ago the oldest one was whose ID is not frozen, in any database.
type load struct{ conns, maxConns, age int64 }

const (
	// lastID is the age at which a server begins to refuse transactions that write.
	lastID = 1<<31 - 3_000_000
	// fewIDs are so few that a server has long vacuumed as fast as it can, and in vain.
	fewIDs = 500_000_000
)

// faults returns what runs out.
func (l *load) faults() (faults []error) {
	if 10*l.conns >= 9*l.maxConns {
		faults = append(faults, fmt.Errorf("pgstore: %d of %d connections of the server are in use, and without one requests get 503: "+
			"raise max_connections, or give pools fewer", l.conns, l.maxConns))
	}
	if left := lastID - l.age; left < fewIDs {
		faults = append(faults, fmt.Errorf("pgstore: the server takes %d more transactions and then refuses all that write, because old transaction IDs are not frozen: "+
			"end old transactions, prepared transactions and replication slots, and VACUUM", max(0, left)))
	}
	return faults
}

// usageSQL tells how large the tables of the quoted names $1 and $2 are, with their indexes.
const usageSQL = `SELECT coalesce(pg_catalog.pg_total_relation_size(t.oid), 0), coalesce(pg_catalog.pg_total_relation_size(t.tags), 0),
	coalesce(pg_catalog.pg_stat_get_live_tuples(t.oid), 0), coalesce(pg_catalog.pg_stat_get_dead_tuples(t.oid), 0)
	FROM (SELECT pg_catalog.to_regclass($1) AS oid, pg_catalog.to_regclass(nullif($2::pg_catalog.text, '')) AS tags) AS t`

// Usage implements [store.Gauge]: the bytes of the table, with its indexes and that of tags, its rows as the statistics of the
// server have them, and the connections of the server.
func (s *Store) Usage(ctx context.Context) ([]store.Figure, error) {
	var bytes, tags, live, dead int64
	if err := s.pool.QueryRow(ctx, usageSQL, s.table, s.tags).Scan(&bytes, &tags, &live, &dead); err != nil {
		return nil, calls.Wrap("Usage", err)
	}
	var l load
	if err := s.pool.QueryRow(ctx, loadSQL).Scan(&l.conns, &l.maxConns, &l.age); err != nil {
		return nil, calls.Wrap("Usage", err)
	}
	return []store.Figure{
		{Name: "table with indexes", Used: bytes, Bytes: true},
		{Name: "table of tags", Used: tags, Bytes: true},
		{Name: "rows, as the statistics have it", Used: live},
		{Name: "dead rows", Used: dead},
		{Name: "connections of the server", Used: l.conns, Limit: l.maxConns},
	}, nil
}

// Forms implements [store.Gauge].
func (s *Store) Forms() []store.Form {
	return []store.Form{store.FormOf("row", sqlrecord.Form), store.FormOf("schema", version())}
}
