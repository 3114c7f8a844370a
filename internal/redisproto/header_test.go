package redisproto

import (
	"encoding/hex"
	"testing"
	"time"

	"example.com/idempotency/store"
	"github.com/stretchr/testify/require"
)

// The stored form is shared by all processes of all versions that use a server: it
// changes with its version number only.
func TestRedisHeaderForm(t *testing.T) {
	t.Parallel()
	h := Header{
		State: store.Claimed, Flags: flagHold, Attempt: 0x01020304,
		Lease: 0x05060708 * time.Millisecond, Lifetime: 0x090a0b0c0d * time.Millisecond,
	}
	for i := range h.Fingerprint {
		h.Fingerprint[i] = byte(0x20 + i)
	}
	for i := range h.Owner {
		h.Owner[i] = byte(0x40 + i)
	}
	const form = "01" + "01" + "01" + "01020304" + "05060708" + "090a0b0c0d" +
		"202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f" +
		"404142434445464748494a4b4c4d4e4f"
	require.Equal(t, form, hex.EncodeToString(h.Encode()))
	got, err := parseHeader(string(h.Encode()))
	require.NoError(t, err)
	require.Equal(t, h, got)

	h.State, h.Status, h.Size = store.Completed, 0x0304, 0x05060708
	require.Equal(t, "0103"+form[4:]+"0304"+"05060708", hex.EncodeToString(h.Encode()))
	got, err = parseHeader(string(h.Encode()))
	require.NoError(t, err)
	require.Equal(t, h, got)
	_, err = parseHeader(string(h.Encode()[:64]))
	require.ErrorIs(t, err, store.ErrCorrupt, "a completed record tells status and size")

	longest, err := NewClaim(store.Claim{Owner: h.Owner, Lease: maxLease, Retention: maxLifetime})
	require.NoError(t, err)
	got, err = parseHeader(string(longest.Encode()))
	require.NoError(t, err)
	require.Equal(t, longest, got)
}

func TestRedisHeaderRoundsUp(t *testing.T) {
	t.Parallel()
	h, err := NewClaim(store.Claim{Owner: [16]byte{1}, Lease: 1, Retention: time.Millisecond + 1})
	require.NoError(t, err)
	require.Equal(t, time.Millisecond, h.Lease)
	require.Equal(t, 2*time.Millisecond, h.Lifetime)
}

// A clock of the server that is set back makes records live longer. It must not make a
// lease longer than it was, nor end it: a live claim would be taken over.
func TestRedisHeaderClockSetBack(t *testing.T) {
	t.Parallel()
	h := Header{State: store.Claimed, Attempt: 1, Lease: time.Minute, Lifetime: time.Hour}
	r := h.record(2 * time.Hour)
	require.Equal(t, time.Minute, r.Lease)
	require.Zero(t, r.Age)
}

// Whatever is stored, reading it ends in a record that makes sense or in an error.
func FuzzRedisHeader(f *testing.F) {
	h, _ := NewClaim(store.Claim{Owner: [16]byte{1}, Lease: time.Second, Retention: time.Hour})
	f.Add(string(h.Encode()), int64(1000))
	f.Add(string(h.Encode()), int64(-1))
	f.Add("\x02", int64(0))
	f.Fuzz(func(t *testing.T, header string, ms int64) {
		h, err := parseHeader(header)
		if err != nil {
			return
		}
		if again := string(h.Encode()); again != header {
			t.Fatalf("read %x, wrote %x", header, again)
		}
		r := h.record(time.Duration(ms&(1<<40-1)) * time.Millisecond)
		h.holdLapsed(&r)
		if r.Attempt < 1 || r.State < store.Claimed || r.State > store.Held || r.Age < 0 || r.Lease < 0 || r.Lease > h.Lease ||
			(r.Lease > 0 && r.State != store.Claimed) {
			t.Fatalf("%x: impossible record %+v", header, r)
		}
	})
}
