package redisstore_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/formtest"
	"example.com/idempotency/internal/redisproto"
	"example.com/idempotency/internal/redisstore"
	"example.com/idempotency/store"
)

var formClaim = store.Claim{
	Owner: store.Owner([]byte("owner of the run")), Fingerprint: store.Fingerprint([]byte("\x01123456789abcdefghijklmnopqrstuv")),
	Lease: 30 * time.Second, Retention: 24 * time.Hour, Label: "POST /charges", Note: []byte("note"), SealedKey: []byte("key"),
}

// large is an answer that has a field of its own.
var large = bytes.Repeat([]byte("x"), 1<<16)

// A formServer is a server with one record, and a store on it.
type formServer struct {
	*redisstore.Store
	redis *miniredis.Miniredis
}

func newFormServer(t *testing.T) formServer {
	t.Helper()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return formServer{redisstore.New(client, redisstore.Config{Prefix: "idem:"}), server}
}

// stored returns the record as text: its expiry, and the fields of the hash. What else is on the server
// follows.
func (s formServer) stored(t *testing.T) []byte {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "expiry=%d\n", s.redis.TTL("idem:key").Milliseconds())
	fields, err := s.redis.HKeys("idem:key")
	require.NoError(t, err)
	slices.Sort(fields)
	for _, f := range fields {
		value, times := s.redis.HGet("idem:key", f), ""
		if len(value) == len(large) {
			value, times = value[:1], fmt.Sprint("*", len(value))
		}
		fmt.Fprintf(&b, "%q=%x%s\n", f, value, times)
	}
	for _, key := range s.redis.Keys() {
		if key != "idem:key" {
			members, err := s.redis.SortedSet(key)
			require.NoError(t, err)
			fmt.Fprintf(&b, "%s: %q\n", key, slices.Sorted(maps.Keys(members)))
		}
	}
	return []byte(b.String())
}

// put puts what stored has returned on the server.
func (s formServer) put(t *testing.T, stored []byte) {
	t.Helper()
	var expiry int64
	for line := range strings.Lines(string(stored)) {
		line = strings.TrimSpace(line)
		if _, err := fmt.Sscanf(line, "expiry=%d", &expiry); err == nil {
			continue
		}
		var field, value string
		if n, _ := fmt.Sscanf(line, "%q=%s", &field, &value); n == 0 {
			continue // the index
		}
		value, times, repeated := strings.Cut(value, "*")
		data, err := hex.DecodeString(value)
		require.NoError(t, err)
		if repeated {
			n, err := strconv.Atoi(times)
			require.NoError(t, err)
			data = bytes.Repeat(data, n)
		}
		s.redis.HSet("idem:key", field, string(data))
	}
	s.redis.SetTTL("idem:key", time.Duration(expiry)*time.Millisecond)
}

func TestStoredFormOfARecord(t *testing.T) {
	owner := formClaim.Owner
	var claims []store.Claim
	var flags byte // of all headers
	look := func(s formServer) (store.Record, error) { return s.GetAnswer(t.Context(), "key") }
	of := func(name string, hold bool, change func(s formServer) error, tags ...store.Tag) formtest.Case {
		s, c := newFormServer(t), formClaim
		c.Hold, c.HoldEnds, c.Tags = hold, name == "hold-ends", tags
		claims = append(claims, c)
		_, err := s.Claim(t.Context(), "key", c)
		require.NoError(t, err, name)
		require.NoError(t, change(s), name)
		flags |= s.redis.HGet("idem:key", "m")[2]
		want, err := look(s)
		require.NoError(t, err, name)
		return formtest.Case{
			Name: name, Text: true, Want: want,
			Encode: func() []byte { return s.stored(t) },
			Decode: func(stored []byte) (any, error) {
				s := newFormServer(t)
				s.put(t, stored)
				return look(s)
			},
		}
	}
	again := func(s formServer, change func(c *store.Claim)) error {
		c := formClaim
		c.Owner = store.Owner([]byte("owner of another"))
		change(&c)
		claims = append(claims, c)
		_, err := s.Claim(t.Context(), "key", c)
		return err
	}
	cases := []formtest.Case{
		of("claimed", true, func(s formServer) error {
			require.NoError(t, s.SaveStep(t.Context(), "key", owner, "charge", []byte(`v{"id":1}`)))
			return again(s, func(c *store.Claim) { c.Watch = true })
		}),
		of("completed", false, func(s formServer) error {
			return s.Complete(t.Context(), "key", owner, store.Completion{Answer: []byte("answer"), Status: 201, TTL: time.Hour})
		}),
		of("completed-large", false, func(s formServer) error {
			return s.Complete(t.Context(), "key", owner, store.Completion{Answer: large, Status: 201, TTL: time.Hour})
		}),
		of("released", false, func(s formServer) error {
			return s.Release(t.Context(), "key", owner, store.Release{Undone: true, Unbind: true, Keep: time.Minute})
		}),
		of("held", true, func(s formServer) error { return s.Hold(t.Context(), "key", owner, nil) }),
		of("lapsed", false, func(s formServer) error {
			s.redis.FastForward(time.Minute)
			return again(s, func(c *store.Claim) { c.Hold = true })
		}),
		of("taken-over", false, func(s formServer) error {
			s.redis.FastForward(time.Minute)
			return again(s, func(c *store.Claim) { c.Note, c.Label = []byte("another note"), strings.Repeat("x", 64) })
		}),
		of("by-hand", true, func(s formServer) error {
			require.NoError(t, s.Hold(t.Context(), "key", owner, nil))
			return s.Resolve(t.Context(), "key", store.Seen{Owner: owner, Attempt: 1, State: store.Held}, store.Settlement{})
		}),
		of("decided", true, func(s formServer) error {
			require.NoError(t, s.Hold(t.Context(), "key", owner, nil))
			return s.Resolve(t.Context(), "key", store.Seen{Owner: owner, Attempt: 1, State: store.Held}, store.Settlement{Note: []byte("by ada")})
		}),
		of("tagged", false, func(formServer) error { return nil }, store.Tag([]byte("order number 77.")), store.Tag([]byte("tenant is alice."))),
		of("tagged-before", false, func(s formServer) error {
			s.redis.FastForward(time.Minute)
			return again(s, func(*store.Claim) {})
		}, store.Tag([]byte("order number 77."))),
		of("hold-ends", true, func(formServer) error { return nil }),
	}
	cases[0].Of, cases[0].Unstored = &claims, []string{
		"Claim.MayBeLost", "Claim.Tenant", // which this store does not use
		"Record.Blank", "Record.Lapsed", "Record.Mine", "Record.MayBeLost", // which only a Claim sets
	}
	require.Equal(t, byte(0xff), flags, "each flag is set in one of the cases")
	formtest.Check(t, "record", redisproto.HeaderVersion, cases...)
}

func TestStoredFormOfARedisCursor(t *testing.T) {
	s := newFormServer(t)
	q := store.Query{States: []store.State{store.Held}, Label: "POST /charges"}
	tag, left := store.Tag([]byte("order number 77.")), []string{"key", "other"}
	of := func(name, cursor string, list func(q store.Query) (store.Page, error)) formtest.Case {
		return formtest.Case{
			Name: name, Text: true, Encode: func() []byte { return []byte(cursor + "\n") },
			Decode: func(stored []byte) (any, error) {
				q := q
				q.Cursor = strings.TrimSpace(string(stored))
				page, err := list(q)
				return len(page.Entries), err
			},
			Want: 0,
		}
	}
	formtest.Check(t, "cursor", 1,
		of("left", redisstore.LastCursor(s.Store, &q, left), func(q store.Query) (store.Page, error) { return s.List(t.Context(), q) }),
		of("tagged", redisstore.LastTagCursor(s.Store, &q, tag, left), func(q store.Query) (store.Page, error) {
			return s.Find(t.Context(), tag, q)
		}),
	)
}
