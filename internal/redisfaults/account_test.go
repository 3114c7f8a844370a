package redisfaults

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
	"example.com/idempotency/store/storetest"
)

// What the store needs of a server: permissions and settings.

// operations returns the text of docs/how-to/redis.md.
func operations(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/how-to/redis.md")
	require.NoError(t, err)
	return string(b)
}

// documentedAccount returns the words of the command in docs/how-to/redis.md that creates the
// account.
func documentedAccount(t *testing.T) []string {
	t.Helper()
	var found []string
	for line := range strings.Lines(operations(t)) {
		if strings.HasPrefix(line, "ACL SETUSER ") {
			found = append(found, line)
		}
	}
	require.Len(t, found, 1, "exactly one line makes the account")
	return strings.Fields(found[0])
}

// listing is the purpose in that table that lists all records.
const listing = "`Guard.Reconcile`, `idem stats`, `idem watch`"

// documentedAddition returns the words that the table below that command adds for one
// purpose.
func documentedAddition(t *testing.T, purpose string) []string {
	t.Helper()
	_, row, ok := strings.Cut(operations(t), "\n| "+purpose+" | `")
	require.True(t, ok, purpose)
	row, _, _ = strings.Cut(row, "`")
	return strings.Fields(strings.ReplaceAll(row, `\|`, "|"))
}

// redisAccount creates an account on the servers with such a command and returns a client
// that uses it.
func redisAccount(t testing.TB, servers []*redistest.Server, account []string) redis.UniversalClient {
	t.Helper()
	user := "user-" + guardtest.RedisKey()
	for _, server := range servers {
		words := make([]any, len(account))
		for i, word := range account {
			words[i] = strings.ReplaceAll(word, "PASSWORD", "secret")
		}
		words[2] = user
		server.Do(t, words...)
	}
	addrs := make([]string, len(servers))
	for i, server := range servers {
		addrs[i] = server.Addr
	}
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: addrs, Username: user, Password: "secret", ContextTimeoutEnabled: true, IsClusterMode: len(servers) > 1,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A store passes the whole contract with the account from the documentation. Each case has
// its own account, with its own prefix, on one shared server.
func TestRedisContractUnderTheDocumentedAccount(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	account := append(documentedAccount(t), documentedAddition(t, listing)...)
	storetest.Run(t, storetest.Harness{New: func(t testing.TB) (idempotency.Store, func(time.Duration)) {
		t.Helper()
		prefix := guardtest.RedisKey() + ":"
		own := slices.Clone(account)
		for i, word := range own {
			own[i] = strings.Replace(word, "idem:", prefix, 1)
		}
		client := redisAccount(t, []*redistest.Server{server}, own)
		return guardtest.RedisStore(t, client, idempotency.WithPrefix(prefix)), func(d time.Duration) { server.Advance(t, prefix, d) }
	}})
}

// The account needs each of its permissions. Without one of them some call fails and names
// it.
func TestRedisAccountHasNothingToSpare(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	servers := []*redistest.Server{server}
	account := documentedAccount(t)
	for _, purpose := range []string{"`WithReplicas`", listing} {
		account = append(account, documentedAddition(t, purpose)...)
	}
	require.NoError(t, exerciseAccount(t, redisAccount(t, servers, account)))
	for i, word := range account {
		if strings.ContainsAny(word[:1], "+~&") {
			less := slices.Delete(slices.Clone(account), i, i+1)
			server.Do(t, "SCRIPT", "FLUSH") // or else no script would be sent
			require.Error(t, exerciseAccount(t, redisAccount(t, servers, less)), "%s is not needed", word)
		}
	}
}

// A claim whose record cannot get its expiry leaves none: nobody could read it.
func TestClaimWithoutTheRightToExpireLeavesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	account := slices.DeleteFunc(documentedAccount(t), func(word string) bool { return word == "+pexpire" })
	key, c := guardtest.RedisKey(), guardtest.RedisClaim()
	_, err := guardtest.RedisStore(t, redisAccount(t, []*redistest.Server{server}, account)).Claim(t.Context(), key, c)
	require.Regexp(t, notPermitted, err)
	require.EqualValues(t, 0, server.Do(t, "EXISTS", "idem:"+key))
}

// notPermitted occurs in what the server says about a forbidden command, inside a script or
// outside.
var notPermitted = regexp.MustCompile("NOPERM|The user executing the script can't|not allowed from script|ACL failure in script")

// exerciseAccount makes every kind of call that a store makes and returns those that the
// server refused.
func exerciseAccount(t *testing.T, client redis.UniversalClient) error {
	t.Helper()
	var denied []error
	try := func(err error) {
		if err != nil && notPermitted.MatchString(err.Error()) {
			denied = append(denied, err)
		}
	}
	s, ctx := guardtest.RedisStore(t, client), t.Context()
	try(s.Check(ctx))
	key, c, waiting := guardtest.RedisKey(), guardtest.RedisClaim(), guardtest.RedisClaim()
	waiting.Watch = true
	claim := func(c store.Claim) {
		_, err := s.Claim(ctx, key, c)
		try(err)
	}
	claim(c)
	_, stop, err := s.Watch(ctx, key)
	try(err)
	if err == nil {
		claim(waiting)
		stop()
	}
	try(s.SaveStep(ctx, key, c.Owner, "a", []byte("1")))
	try(s.Renew(ctx, key, c.Owner))
	try(s.Release(ctx, key, c.Owner, store.Release{}))
	waiting.Watch = false
	claim(waiting)
	try(s.Hold(ctx, key, waiting.Owner, nil))
	try(s.Resolve(ctx, key, guardtest.HeldBy(waiting.Owner, 2), store.Settlement{}))
	_, err = s.List(ctx, store.Query{Holding: true}) // takes the settled claim out
	try(err)
	c = guardtest.RedisClaim()
	claim(c)
	try(s.Complete(ctx, key, c.Owner, store.Completion{Answer: guardtest.LargeAnswer, TTL: time.Hour}))
	// Without this command a large answer goes through the script, and no error says so.
	try(client.HSetNX(ctx, "idem:"+key, "r:", "large").Err())
	claim(waiting)
	_, err = s.Get(ctx, key)
	try(err)
	_, err = s.GetAnswer(ctx, key)
	try(err)
	_, err = s.List(ctx, store.Query{})
	try(err)
	_, err = s.Find(ctx, order, store.Query{})
	try(err)
	try(s.Forget(ctx, key, store.Seen{Owner: c.Owner, Attempt: 3, State: store.Completed}))
	_, err = guardtest.RedisStore(t, client, idempotency.WithReplicas(1, time.Millisecond)).Claim(ctx, guardtest.RedisKey(), guardtest.RedisClaim())
	try(err)
	if denied != nil {
		return errors.Join(denied...) // below, what is denied may be answered by silence
	}
	// The subscription sends these when it has been quiet, and when nobody waits any more.
	sub := client.Subscribe(ctx, "idem:settled")
	defer func() { _ = sub.Close() }()
	for _, send := range []func() error{
		func() error { return sub.Ping(ctx) },
		func() error { return sub.Unsubscribe(ctx, "idem:settled") },
		func() error { return nil },
	} {
		if _, err = sub.ReceiveTimeout(ctx, 10*time.Second); err != nil {
			return err
		}
		require.NoError(t, send())
	}
	return nil
}

// The account reaches the records and no other data, and it cannot administer the server.
func TestRedisAccountReachesNothingElse(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--acl-pubsub-default", "allchannels") // as up to 6.2
	server.Do(t, "HSET", "session:alice", "m", "secret")
	client := redisAccount(t, []*redistest.Server{server}, documentedAccount(t))
	ctx, key, c := t.Context(), guardtest.RedisKey(), guardtest.RedisClaim()
	_, err := guardtest.RedisStore(t, client).Claim(ctx, key, c)
	require.NoError(t, err)
	require.NoError(t, guardtest.RedisStore(t, client).Check(ctx), "a service that checks its server starts")
	for _, command := range [][]any{
		{"FLUSHALL"},
		{"FLUSHDB"},
		{"KEYS", "*"},
		{"SCAN", "0"},
		{"CONFIG", "GET", "*"},
		{"CONFIG", "SET", "maxmemory", "1"},
		{"ACL", "LIST"},
		{"CLIENT", "LIST"},
		{"SCRIPT", "FLUSH"},
		{"FUNCTION", "FLUSH"},
		{"SHUTDOWN"},
		{"SAVE"},
		{"REPLICAOF", "127.0.0.1", "1"},
		{"MODULE", "LIST"},
		{"MONITOR"},
		{"DBSIZE"},
		{"RENAME", "idem:" + key, "idem:x"},
		{"GET", "idem:" + key},
		{"SET", "idem:" + key, "x"},
		{"HGETALL", "session:alice"},
		{"HSET", "session:alice", "m", "x"},
		{"DEL", "session:alice"},
		{"DEL", "idem:" + key, "session:alice"},
		{"PEXPIRE", "session:alice", "1"},
		{"PUBLISH", "other", "x"},
		{"SUBSCRIBE", "other"},
		{"PSUBSCRIBE", "*"},
		{"EVAL", "return redis.call('HGETALL', KEYS[1])", "1", "session:alice"},
		{"EVAL", "return redis.call('HGETALL', 'session:alice')", "0"},
		{"EVAL", "return redis.call('FLUSHALL')", "0"},
		{"EVAL", "return redis.call('CONFIG', 'GET', '*')", "0"},
		{"EVAL", "return redis.call('PUBLISH', 'other', 'x')", "0"},
	} {
		if command[0] == "FUNCTION" && server.Before(t, "7.0") {
			continue
		}
		err := client.Do(ctx, command...).Err()
		require.Error(t, err, "%v", command)
		require.Regexp(t, notPermitted, err.Error(), "%v", command)
	}
	// A store that may not listen says so and does not wait for ever.
	other := guardtest.RedisStore(t, client, idempotency.WithPrefix("other:"))
	_, err = other.Claim(ctx, key, c)
	require.ErrorContains(t, err, "NOPERM")
	_, _, err = other.Watch(ctx, key)
	require.ErrorContains(t, err, "NOPERM")
	require.Equal(t, "secret", server.Do(t, "HGET", "session:alice", "m"))
}

func TestRedisAccountInACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, false)
	account := append(documentedAccount(t), documentedAddition(t, "a Cluster")...)
	s := guardtest.RedisStore(t, redisAccount(t, cluster.Masters, account))
	ctx := t.Context()
	for range 30 {
		key, c := guardtest.RedisKey(), guardtest.RedisClaim()
		claimed(t, s, key, c)
		require.NoError(t, s.Complete(ctx, key, c.Owner, store.Completion{Answer: guardtest.LargeAnswer, TTL: time.Hour}))
		require.Equal(t, guardtest.LargeAnswer, claimed(t, s, key, guardtest.RedisClaim()).Answer)
	}
	for i, word := range account {
		if slices.Contains(documentedAddition(t, "a Cluster"), word) {
			less := redisAccount(t, cluster.Masters, slices.Delete(slices.Clone(account), i, i+1))
			_, err := guardtest.RedisStore(t, less).Claim(ctx, guardtest.RedisKey(), guardtest.RedisClaim())
			require.Error(t, err, "%s is not needed", word)
		}
	}
}

// What RedisStore.Check says of servers, and by when.

func TestRedisCheck(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := redistest.Start(t)
	require.NoError(t, guardtest.RedisStore(t, guardtest.RedisClient(t, server.Addr)).Check(ctx))
	for _, policy := range []string{"allkeys-lru", "volatile-lru", "volatile-ttl", "allkeys-random"} {
		server.Do(t, "CONFIG", "SET", "maxmemory-policy", policy)
		require.ErrorContains(t, guardtest.RedisStore(t, guardtest.RedisClient(t, server.Addr)).Check(ctx), policy)
	}

	cluster := redistest.StartCluster(t, 3, false)
	s := guardtest.RedisStore(t, guardtest.RedisClient(t, cluster.Addrs()...))
	require.NoError(t, s.Check(ctx))
	cluster.Masters[2].Do(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	require.ErrorContains(t, s.Check(ctx), "allkeys-lru")
	faults, err := s.Health(ctx)
	require.NoError(t, err)
	require.Len(t, faults, 1)
	require.ErrorContains(t, faults[0], cluster.Masters[2].Addr+": maxmemory-policy")
	cluster.Masters[1].Do(t, "CONFIG", "SET", "maxmemory", "1gb")
	figures, err := s.Usage(ctx)
	require.NoError(t, err)
	require.Len(t, figures, 2*len(cluster.Masters))
	limits := map[string]int64{}
	for _, f := range figures {
		require.Equal(t, f.Bytes, f.Used > 0, f.Name)
		limits[f.Name] = f.Limit
	}
	require.Equal(t, int64(1<<30), limits["memory of "+cluster.Masters[1].Addr])
	require.Zero(t, limits["memory of "+cluster.Masters[0].Addr])

	server.Kill()
	require.Error(t, guardtest.RedisStore(t, guardtest.RedisClient(t, server.Addr)).Check(ctx))
	_, err = guardtest.RedisStore(t, guardtest.RedisClient(t, server.Addr)).Health(ctx)
	require.Error(t, err)
}

// A replica is not a place for records, whether or not it takes writes. The nodes of a Cluster
// send their clients to the master, so a client that knows the address of a replica is right.
func TestRedisCheckFindsAReplica(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	require.NoError(t, guardtest.RedisStore(t, guardtest.RedisClient(t, master.Addr), idempotency.WithReplicas(1, time.Second)).Check(ctx))
	s := guardtest.RedisStore(t, guardtest.RedisClient(t, replica.Addr))
	_, err := s.Claim(ctx, guardtest.RedisKey(), guardtest.RedisClaim())
	require.Error(t, err)
	require.ErrorContains(t, s.Check(ctx), "is a replica")
	replica.Do(t, "CONFIG", "SET", "replica-read-only", "no")
	require.ErrorContains(t, s.Check(ctx), "is a replica")
	replica.Do(t, "REPLICAOF", "NO", "ONE")
	require.NoError(t, s.Check(ctx))

	cluster := redistest.StartCluster(t, 1, true)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{cluster.Replicas[0].Addr}})
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, guardtest.RedisStore(t, client).Check(ctx))
}

// A replica that evicts forgets records once it is the master. One that is away is no reason to
// refuse the rest.
func TestRedisCheckAsksReplicas(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, true)
	for name, obeys := range map[string]bool{"obeys": true, "does not obey": false} {
		t.Run(name, func(t *testing.T) {
			client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ContextTimeoutEnabled: obeys})
			t.Cleanup(func() { _ = client.Close() })
			s := guardtest.RedisStore(t, client)
			require.NoError(t, s.Check(t.Context()))
			cluster.Replicas[0].Do(t, "ACL", "SETUSER", "default", "-info")
			require.NoError(t, s.Check(t.Context()), "a replica refuses to tell")
			cluster.Replicas[0].Do(t, "ACL", "SETUSER", "default", "+info")
			cluster.Replicas[0].Pause(t)
			require.NoError(t, s.Check(t.Context()), "a replica does not answer")
			// The client may ask any node which nodes there are, and one that stands still delays that.
			cluster.Replicas[0].Resume(t)
			cluster.Replicas[1].Do(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
			require.Eventually(t, func() bool { // a busy replica may be passed over
				err := s.Check(t.Context())
				return err != nil && strings.Contains(err.Error(), "replica "+cluster.Replicas[1].Addr+": maxmemory-policy is \"allkeys-lru\"")
			}, guardtest.Patience, time.Millisecond)
			cluster.Replicas[1].Do(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
		})
	}
}

// Check is called at the start of a program, with a deadline that the client may not know.
func TestRedisCheckReturnsByItsDeadline(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, false)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ReadTimeout: time.Hour, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	s := guardtest.RedisStore(t, client)
	require.NoError(t, s.Check(t.Context()))
	cluster.Masters[1].Pause(t)
	defer cluster.Masters[1].Resume(t)
	for name, ask := range map[string]func(context.Context) error{
		"Check": s.Check, "Health": func(ctx context.Context) error { _, err := s.Health(ctx); return err },
		"Usage": func(ctx context.Context) error { _, err := s.Usage(ctx); return err },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- ask(ctx) }()
			select {
			case err := <-done:
				require.ErrorIs(t, err, context.DeadlineExceeded)
			case <-time.After(guardtest.Patience):
				t.Fatal("it goes on after its deadline")
			}
		})
	}
}
