package redisproto

import (
	"bytes"
	"encoding/hex"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/history"
	"example.com/idempotency/store"
)

func texts(notes iter.Seq[[]byte]) (all []string) {
	for note := range notes {
		all = append(all, string(note))
	}
	return all
}

// A connection that has lost its place hands out the reply to another's claim. It must not
// start a run.
func TestRedisReplyOfAnotherClaim(t *testing.T) {
	claim, err := NewClaim(store.Claim{Owner: [16]byte{1}, Lease: time.Second, Retention: time.Hour})
	require.NoError(t, err)
	other := [16]byte{2}
	for _, reply := range [][]string{{"3600000"}, {"3600000", string(other[:])}, {"3600000", ""}} {
		r, _, err := claim.ParseClaim(reply)
		require.Error(t, err)
		require.NotErrorIs(t, err, store.ErrCorrupt, "the record may be sound, and the claim may have been granted")
		require.False(t, r.Mine)
	}
	r, _, err := claim.ParseClaim([]string{"3600000", string(claim.Owner[:])})
	require.NoError(t, err)
	require.True(t, r.Mine)
}

// FuzzRedisReply: whatever a server answers to a claim, it is read as a record that makes
// sense or as an error, and nothing but the claim's own owner makes it the caller's.
func FuzzRedisReply(f *testing.F) {
	claim, err := NewClaim(store.Claim{Owner: [16]byte{1}, Lease: time.Second, Retention: time.Hour})
	if err != nil {
		f.Fatal(err)
	}
	own := string(claim.Encode())
	completed := claim
	completed.State, completed.Owner = store.Completed, [16]byte{2}
	f.Add("3600000")
	f.Add("3600000\n" + string(claim.Owner[:]))
	f.Add("3600000\n" + own + "\n\n\x01n\n\x01h\nstep\nvalue")
	f.Add("3600000\n" + string(completed.Encode()) + "\nanswer")
	f.Add("-1\n" + own + "\n")
	f.Fuzz(func(t *testing.T, lines string) {
		reply := strings.Split(lines, "\n")
		r, detached, err := claim.ParseClaim(reply)
		if err != nil {
			if r.Mine || r.Answer != nil || r.Steps != nil {
				t.Fatalf("%q: %+v with %v", reply, r, err)
			}
			return
		}
		if r.State < store.Claimed || r.State > store.Held || r.Attempt < 1 || r.Lease < 0 || r.Age < 0 || r.TTL < 0 {
			t.Fatalf("%q: impossible record %+v", reply, r)
		}
		if len(reply) == 2 && reply[1] == string(claim.Owner[:]) {
			return // the server has made the record for this claim
		}
		h, err := parseHeader(reply[1])
		require.NoError(t, err)
		if r.Mine && (h.Owner != claim.Owner || h.Fingerprint != claim.Fingerprint || h.State != store.Claimed) {
			t.Fatalf("%q: another's claim is the caller's", reply)
		}
		if (r.Answer != nil || detached != "") && (h.State != store.Completed || h.Fingerprint != claim.Fingerprint) {
			t.Fatalf("%q: an answer of %+v", reply, r)
		}
		if r.Steps != nil && !r.Mine {
			t.Fatalf("%q: steps of another's claim", reply)
		}
	})
}

// What is read without the answer is what is read with it, and what is damaged is neither
// absent nor a record.
func TestRedisRecords(t *testing.T) {
	h, err := NewClaim(store.Claim{Owner: [16]byte{1}, Fingerprint: [32]byte{2}, Hold: true, HoldEnds: true, Lease: time.Second, Retention: time.Hour})
	require.NoError(t, err)
	claimed := map[string]string{"m": string(h.Encode()), "s:charge": "paid", "s:": "nameless", "w": ""}
	r, err := ParseRecord(time.Hour, claimed)
	require.NoError(t, err)
	require.Equal(t, map[string][]byte{"charge": []byte("paid"), "": []byte("nameless")}, r.Steps)
	r.Steps = nil
	summary, err := ParseSummary(time.Hour, []any{claimed["m"]})
	require.NoError(t, err)
	require.Equal(t, summary, r)
	require.Equal(t, time.Second, r.Lease)

	lapsed, err := ParseSummary(time.Minute, []any{claimed["m"]})
	require.NoError(t, err)
	require.Equal(t, store.Held, lapsed.State)

	h.State = store.Completed
	whole := string(h.Encode())
	h.Flags |= flagDetached
	detached := string(h.Encode())
	for name, fields := range map[string]map[string]string{
		"in the record": {"m": whole, "r": "answer", "r:" + string(h.Owner[:]): "of a call that came too late"},
		"detached":      {"m": detached, "r": "of an earlier owner", "r:" + string(h.Owner[:]): "answer"},
	} {
		r, err := ParseRecord(time.Minute, fields)
		require.NoError(t, err, name)
		require.Equal(t, "answer", string(r.Answer), name)
	}

	for name, fields := range map[string]map[string]string{
		"no header":          {"r": "answer"},
		"a header cut off":   {"m": whole[:63], "r": "answer"},
		"no answer":          {"m": whole},
		"no detached answer": {"m": detached, "r": "answer"},
	} {
		_, err := ParseRecord(time.Minute, fields)
		require.ErrorIs(t, err, store.ErrCorrupt, name)
	}
	// The reply of a lookup tells the same, without the answer.
	h.Status, h.Size = 201, 6
	whole = string(h.Encode())
	r, header, err := ParseGet([]string{"60000", whole, "1", "\x04notelabel", "\x05first", "", "sealed", "\x04ada.", "charge", "paid"})
	require.NoError(t, err)
	require.Equal(t, whole, header)
	require.Equal(t, h.Status, r.Status)
	require.Equal(t, h.Size, r.Size)
	require.Equal(t, []string{"first", "note"}, texts(store.EachNote(r.Notes)))
	require.Equal(t, []string{"ada."}, texts(store.EachDecision(r.Notes)))
	require.Equal(t, "label", r.Label)
	require.Equal(t, "sealed", string(r.SealedKey))
	require.Equal(t, map[string][]byte{"charge": []byte("paid")}, r.Steps)
	require.Nil(t, r.Answer)
	for name, reply := range map[string][]string{
		"no header": {"60000", "", "1"}, "no answer": {"60000", whole, ""}, "no expiry": {"-1", whole, "1"}, "no number": {"x", whole, "1"},
	} {
		_, header, err := ParseGet(append(reply, "", "", "", "", ""))
		require.ErrorIs(t, err, store.ErrCorrupt, name)
		require.Equal(t, reply[1], header, name)
	}
	_, _, err = ParseGet([]string{"-1", "\x02 and more", "", "", "", "", "", ""})
	require.ErrorIs(t, err, store.ErrUnreadableHere)
	_, _, err = ParseGet([]string{"-2"})
	require.ErrorIs(t, err, store.ErrNotFound)
	_, _, err = ParseGet(nil)
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrNotFound, "nothing has come, which is not the same")
	_, _, err = ParseGet([]string{"60000", whole})
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrCorrupt, "the record may be sound")

	_, err = ParseRecord(-1, claimed)
	require.ErrorIs(t, err, store.ErrCorrupt, "a record that never expires is not ours")
	_, err = ParseRecord(time.Hour, map[string]string{"m": "\x02 and more"})
	require.ErrorIs(t, err, store.ErrUnreadableHere)
	require.NotErrorIs(t, err, store.ErrCorrupt)
}

// A claim's note and label are read as they were written, wherever there was room for them. Notes
// that are damaged are no reason to refuse a record.
func TestRedisNotes(t *testing.T) {
	h, err := NewClaim(store.Claim{Owner: [16]byte{1}, Lease: time.Second, Retention: time.Hour})
	require.NoError(t, err)
	for _, size := range []int{0, 1, 17, 46, MaxNote} {
		for _, label := range []string{"", "POST /charges", strings.Repeat("x", MaxNote)} {
			note := bytes.Repeat([]byte("n"), size)
			sealed := bytes.Repeat([]byte("k"), 3*(size%2))
			args := h.Claim("name", false, note, label, sealed, nil).ByDigest()[4:]
			fields := map[string]string{"m": string(args[0].([]byte))}
			for i := 4; i < len(args); i += 2 {
				value, ok := args[i].(string)
				if !ok {
					value = string(args[i].([]byte))
				}
				fields[args[i-1].(string)] = value
			}
			require.Equal(t, string(h.Encode()), fields["m"])
			r, err := ParseRecord(time.Hour, fields)
			require.NoError(t, err)
			require.Equal(t, label, r.Label)
			require.Equal(t, string(sealed), string(r.SealedKey))
			if size == 0 {
				require.Nil(t, r.Notes)
			} else {
				require.Equal(t, note, history.Last(r.Notes))
				require.Equal(t, 1, history.Len(r.Notes))
			}
			if size < 43 {
				require.LessOrEqual(t, len(fields["n"]), headerSize)
			}
			require.LessOrEqual(t, len(fields["l"]), headerSize)
		}
	}
	r, err := ParseRecord(time.Hour, map[string]string{"m": string(h.Encode()), "n": "\x01cl", "h": "\x01a\x00\x02bb"})
	require.NoError(t, err)
	require.Equal(t, "\x01a\x02bb\x01c", string(r.Notes))
	require.Equal(t, "l", r.Label)
	for name, fields := range map[string]map[string]string{
		"cut":      {"n": "\x05c"},
		"cut off":  {"h": "\x01"},
		"too many": {"h": strings.Repeat("\x01a", 17)},
	} {
		fields["m"] = string(h.Encode())
		r, err := ParseRecord(time.Hour, fields)
		require.NoError(t, err, name)
		if name == "too many" {
			require.Equal(t, history.MaxNotes, history.Len(r.Notes))
		} else {
			require.Nil(t, r.Notes, name)
		}
	}
}

// The stored form is shared by all processes of all versions that use a server: it
// changes with its version number only.
func TestRedisHeaderForm(t *testing.T) {
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
	h, err := NewClaim(store.Claim{Owner: [16]byte{1}, Lease: 1, Retention: time.Millisecond + 1})
	require.NoError(t, err)
	require.Equal(t, time.Millisecond, h.Lease)
	require.Equal(t, 2*time.Millisecond, h.Lifetime)
}

// A clock of the server that is set back makes records live longer. It must not make a
// lease longer than it was, nor end it: a live claim would be taken over.
func TestRedisHeaderClockSetBack(t *testing.T) {
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
