package idempotency

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A connection that has lost its place hands out the reply to another's claim. It must not
// start a run.
func TestRedisReplyOfAnotherClaim(t *testing.T) {
	t.Parallel()
	claim, err := newRedisHeader(Claim{Owner: Owner{1}, Lease: time.Second, Retention: time.Hour})
	require.NoError(t, err)
	other := Owner{2}
	for _, reply := range [][]string{{"3600000"}, {"3600000", string(other[:])}, {"3600000", ""}} {
		r, _, err := claim.parseClaim(reply)
		require.Error(t, err)
		require.False(t, definite(err), "the claim may have been granted, and is given back")
		require.False(t, r.Mine)
	}
	r, _, err := claim.parseClaim([]string{"3600000", string(claim.owner[:])})
	require.NoError(t, err)
	require.True(t, r.Mine)
}

// FuzzRedisReply: whatever a server answers to a claim, it is read as a record that makes
// sense or as an error, and nothing but the claim's own owner makes it the caller's.
func FuzzRedisReply(f *testing.F) {
	claim, err := newRedisHeader(Claim{Owner: Owner{1}, Lease: time.Second, Retention: time.Hour})
	if err != nil {
		f.Fatal(err)
	}
	own := string(claim.encode())
	completed := claim
	completed.state, completed.owner = StateCompleted, Owner{2}
	f.Add("3600000")
	f.Add("3600000\n" + string(claim.owner[:]))
	f.Add("3600000\n" + own + "\n\n\nstep\nvalue")
	f.Add("3600000\n" + string(completed.encode()) + "\n\nanswer")
	f.Add("-1\n" + own + "\n")
	f.Fuzz(func(t *testing.T, lines string) {
		reply := strings.Split(lines, "\n")
		r, detached, err := claim.parseClaim(reply)
		if err != nil {
			if r.Mine || r.Answer != nil || r.Steps != nil || errors.Is(err, ErrNotOwner) || errors.Is(err, ErrStoreFull) {
				t.Fatalf("%q: %+v with %v", reply, r, err)
			}
			return
		}
		if r.State < StateClaimed || r.State > StateHeld || r.Attempt < 1 || r.Lease < 0 || r.Age < 0 || r.TTL < 0 {
			t.Fatalf("%q: impossible record %+v", reply, r)
		}
		if len(reply) == 2 && reply[1] == string(claim.owner[:]) {
			return // the server has made the record for this claim
		}
		h, err := parseRedisHeader(reply[1])
		if err != nil {
			t.Fatal(err)
		}
		if r.Mine && (h.owner != claim.owner || h.fingerprint != claim.fingerprint || h.state != StateClaimed) {
			t.Fatalf("%q: another's claim is the caller's", reply)
		}
		if (r.Answer != nil || detached != "") && (h.state != StateCompleted || h.fingerprint != claim.fingerprint) {
			t.Fatalf("%q: an answer of %+v", reply, r)
		}
		if r.Steps != nil && !r.Mine {
			t.Fatalf("%q: steps of another's claim", reply)
		}
	})
}
