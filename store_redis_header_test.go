package idempotency

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// The stored form is shared by all processes of all versions that use a server: it
// changes with its version number only.
func TestRedisHeaderForm(t *testing.T) {
	t.Parallel()
	h := redisHeader{
		state: StateClaimed, hold: true, attempt: 0x01020304,
		lease: 0x05060708 * time.Millisecond, lifetime: 0x090a0b0c0d * time.Millisecond,
	}
	for i := range h.fingerprint {
		h.fingerprint[i] = byte(0x20 + i)
	}
	for i := range h.owner {
		h.owner[i] = byte(0x40 + i)
	}
	const form = "01" + "01" + "01" + "01020304" + "05060708" + "090a0b0c0d" +
		"202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f" +
		"404142434445464748494a4b4c4d4e4f"
	require.Equal(t, form, hex.EncodeToString(h.encode()))
	got, err := parseRedisHeader(string(h.encode()))
	require.NoError(t, err)
	require.Equal(t, h, got)

	longest, err := newRedisHeader(Claim{Owner: h.owner, Lease: redisMaxLease, Retention: redisMaxLifetime})
	require.NoError(t, err)
	got, err = parseRedisHeader(string(longest.encode()))
	require.NoError(t, err)
	require.Equal(t, longest, got)
}

func TestRedisHeaderRoundsUp(t *testing.T) {
	t.Parallel()
	h, err := newRedisHeader(Claim{Owner: Owner{1}, Lease: 1, Retention: time.Millisecond + 1})
	require.NoError(t, err)
	require.Equal(t, time.Millisecond, h.lease)
	require.Equal(t, 2*time.Millisecond, h.lifetime)
}

// A clock of the server that is set back makes records live longer. It must not make a
// lease longer than it was, nor end it: a live claim would be taken over.
func TestRedisHeaderClockSetBack(t *testing.T) {
	t.Parallel()
	h := redisHeader{state: StateClaimed, attempt: 1, lease: time.Minute, lifetime: time.Hour}
	r, err := h.record(2*time.Hour, "")
	require.NoError(t, err)
	require.Equal(t, time.Minute, r.Lease)
	require.Zero(t, r.Age)
}

func TestRedisObeysContext(t *testing.T) {
	t.Parallel()
	for _, obeys := range []bool{false, true} {
		for _, cluster := range []bool{false, true} {
			client := redis.NewUniversalClient(&redis.UniversalOptions{
				Addrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: obeys, IsClusterMode: cluster,
			})
			t.Cleanup(func() { _ = client.Close() })
			require.Equal(t, obeys, NewRedisStore(client).ObeysContext())
		}
	}
}

func TestRedisCheckReadsInfo(t *testing.T) {
	t.Parallel()
	for version, ok := range map[string]bool{
		"6.2.0": true, "6.2.14": true, "7.0.15": true, "8.0.1": true, "10.1.0": true,
		"6.0.16": false, "5.0.7": false, "": false, "unstable": false,
	} {
		err := checkRedisVersion("# Server\r\nredis_version:" + version + "\r\nredis_mode:standalone\r\n")
		require.Equal(t, ok, err == nil, "%s: %v", version, err)
	}
	require.NoError(t, checkRedisPolicy("# Memory\r\nmaxmemory_policy:noeviction\r\n"))
	require.Error(t, checkRedisPolicy("# Memory\r\nmaxmemory_policy:volatile-ttl\r\n"))
	require.Error(t, checkRedisPolicy("# Memory\r\n"))
}

// Whatever is stored, reading it ends in a record that makes sense or in an error.
func FuzzRedisHeader(f *testing.F) {
	h, _ := newRedisHeader(Claim{Owner: Owner{1}, Lease: time.Second, Retention: time.Hour})
	f.Add(string(h.encode()), "", int64(1000))
	f.Add(string(h.encode()), "0123456789abcdef", int64(-1))
	f.Add("\x02", "", int64(0))
	f.Fuzz(func(t *testing.T, header, origin string, ms int64) {
		h, err := parseRedisHeader(header)
		if err != nil {
			return
		}
		if again := string(h.encode()); again != header {
			t.Fatalf("read %x, wrote %x", header, again)
		}
		r, err := h.record(time.Duration(ms&(1<<40-1))*time.Millisecond, origin)
		if err != nil {
			return
		}
		h.holdLapsed(&r)
		if r.Attempt < 1 || r.State < StateClaimed || r.State > StateHeld || r.Age < 0 || r.Lease < 0 || r.Lease > h.lease ||
			(r.Lease > 0 && r.State != StateClaimed) {
			t.Fatalf("%x: impossible record %+v", header, r)
		}
	})
}
