package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/internal/pgserver"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore"
)

// This file takes rights from the role of a service.

// The role of docs/how-to/postgres-schema.md can do all, and one that lacks something is found out.
func TestDoctorOfARole(t *testing.T) {
	t.Parallel()
	server := pgserver.Start(t, "fsync=on")
	admin, err := pgxpool.New(t.Context(), server.DSN)
	require.NoError(t, err)
	t.Cleanup(admin.Close)
	require.NoError(t, pgstore.Migrate(t.Context(), admin))
	do := func(statements string) {
		for one := range strings.SplitSeq(statements, ";") {
			_, err := admin.Exec(t.Context(), one)
			require.NoError(t, err, one)
		}
	}
	find := func(role string) check {
		t.Helper()
		d := newDoctor(t, place{}, 0)
		d.account, d.source = role, &source{pool: admin, target: target{table: "idempotency_records"}}
		require.NoError(t, d.role(t.Context()))
		return d.checks(t)["rights"]
	}
	do("CREATE ROLE shop LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_records, idempotency_records_tags TO shop")
	require.Equal(t, check{"check", "rights", ok, "shop may do all that the service does", ""}, find("shop"))
	require.Equal(t, "postgres may do all that the service does", find("").Found)
	require.Equal(t, "there is no role nobody", checks(t, inspect.ExitUnhealthy, "--postgres", server.DSN, "--timeout", "1h", "--account", "nobody")["rights"].Found)

	type plant struct{ spoil, mend, says, result string }
	plants := []plant{
		{"ALTER ROLE shop NOLOGIN", "ALTER ROLE shop LOGIN", "LOGIN: the service does not start", fail},
		{"REVOKE CONNECT ON DATABASE postgres FROM PUBLIC", "GRANT CONNECT ON DATABASE postgres TO PUBLIC", "CONNECT to the database: the service", fail},
		{"REVOKE USAGE ON SCHEMA public FROM PUBLIC", "GRANT USAGE ON SCHEMA public TO PUBLIC", "USAGE of the schema: the service", fail},
		{"ALTER ROLE shop SET search_path TO shop", "ALTER ROLE shop RESET search_path", "find the table, by its search_path: the service", fail},
		{"ALTER TABLE idempotency_records ENABLE ROW LEVEL SECURITY", "ALTER TABLE idempotency_records DISABLE ROW LEVEL SECURITY", "see all rows, because of row security: requests", fail},
		{"ALTER ROLE shop SET default_transaction_read_only TO on", "ALTER ROLE shop RESET ALL", "write, by default_transaction_read_only: requests", fail},
		{"ALTER ROLE shop IN DATABASE postgres SET synchronous_commit TO off", "ALTER ROLE shop IN DATABASE postgres RESET ALL", "count on commits, by synchronous_commit: after", fail},
	}
	for right, without := range map[string]string{"SELECT": with503, "INSERT": with503, "UPDATE": with503, "DELETE": "Sweep and Forget fail, and the table grows"} {
		plants = append(
			plants,
			plant{fmt.Sprintf("REVOKE %s ON idempotency_records FROM shop", right), fmt.Sprintf("GRANT %s ON idempotency_records TO shop", right), right + ": " + without, fail},
			plant{fmt.Sprintf("REVOKE %s ON idempotency_records_tags FROM shop", right), fmt.Sprintf("GRANT %s ON idempotency_records_tags TO shop", right), right + " tags: routes with WithReference", warn},
		)
	}
	for function, c := range map[string]struct{ says, result string }{
		"pg_notify(text, text)":                        {"no answer is recorded", fail},
		"pg_logical_emit_message(boolean, text, text)": {"requests get 503 under WithAsyncClaims, and where commits wait for a standby", warn},
		"pg_try_advisory_xact_lock(bigint)":            {"requests get 503 under WithOneCommit", warn},
		"pg_advisory_xact_lock_shared(bigint)":         {"requests get 503 under WithOneCommit", warn},
	} {
		name, _, _ := strings.Cut(function, "(")
		plants = append(plants, plant{"REVOKE EXECUTE ON FUNCTION " + function + " FROM PUBLIC", "GRANT EXECUTE ON FUNCTION " + function + " TO PUBLIC", "EXECUTE " + name + ": " + c.says, c.result})
	}
	for _, p := range plants {
		do(p.spoil)
		got := find("shop")
		require.Equal(t, p.result, got.Result, p.spoil)
		require.True(t, strings.HasPrefix(got.Found, "shop may not "+p.says), "%s: %s", p.spoil, got.Found)
		do(p.mend)
	}

	// What is set for the role counts before what is set for all, and a search_path may name the role.
	do("ALTER DATABASE postgres SET default_transaction_read_only TO on;ALTER ROLE shop SET default_transaction_read_only TO off")
	do(`ALTER ROLE shop SET search_path TO "$user", public;ALTER ROLE postgres SET default_transaction_read_only TO off`)
	require.Equal(t, ok, find("shop").Result)
	do("CREATE ROLE batch LOGIN; GRANT shop TO batch")
	require.Equal(t, "batch may not write, by default_transaction_read_only: requests with a key get 503", find("batch").Found)
}

// What the doctor says of a role without pg_notify is so.
func TestNoAnswerIsRecordedWithoutNotify(t *testing.T) {
	t.Parallel()
	server := pgserver.Start(t)
	p := postgresPlace(t, server.DSN)
	admin, err := pgxpool.New(t.Context(), server.DSN)
	require.NoError(t, err)
	t.Cleanup(admin.Close)
	for _, sql := range []string{
		"CREATE ROLE shop LOGIN", "GRANT SELECT, INSERT, UPDATE, DELETE ON " + p.flags[3] + ", " + p.flags[3] + "_tags TO shop", "REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC",
	} {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	pool, err := pgxpool.New(t.Context(), strings.Replace(server.DSN, "postgres@", "shop@", 1))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	st, err := pgstore.New(t.Context(), pool, pgstore.WithTable(p.flags[3]))
	require.NoError(t, err)
	t.Cleanup(st.Close)
	one := store.Claim{Owner: store.Owner{1}, Lease: time.Minute, Retention: time.Hour}
	guardtest.Claim(t, st, "k", one)
	require.ErrorContains(t, st.Complete(t.Context(), "k", one.Owner, store.Completion{Status: http.StatusCreated, TTL: time.Hour}), "pg_notify")
}
