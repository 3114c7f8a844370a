package idempotency

import (
	"net/http"
	"time"
)

// What is left of a run that has done nothing: for how long its record is kept, and whether the
// key stays bound to its request.

// notExecuted is the verdict for a run that is known to have had no effect. If it has begun a
// step, it is remembered all the same: only the outcome says that nothing was done.
func (u *run) notExecuted(t task) verdict {
	v := verdict{outcome: NotExecuted}
	if u.op.effects.Load() == 0 {
		v.release = u.lease.undone(u.guard.set.rebinding || t.redirected())
	}
	return v
}

// lateClaims is how long a claim may take to arrive whose reply was lost, or that the client
// library has sent twice: longer than a system keeps sending what its process has given up.
const lateClaims = 15 * time.Minute

// undone is what the store is told about a claim under which nothing was done. All that the
// record is for from then on is its owner, whose claim must not be granted if it arrives
// again. Under Rerun a claim that comes later than that blocks the key for a lease, but under
// Hold it would hold the key.
func (l *lease) undone(unbind bool) Release {
	keep := minRetentionInLeases * l.claim.Lease
	if l.claim.Hold {
		keep = max(keep, lateClaims)
	}
	return Release{Undone: true, Keep: keep, Unbind: unbind}
}

// redirected implements [task]. The key goes to the other place with the request, which has
// another path there, and so another fingerprint.
func (h *handlerRun) redirected() bool { return keepsMethod(h.rec.Status()) }

func (j *job) redirected() bool { return false }

// keepsMethod reports whether a status tells the client to make the same request elsewhere.
func keepsMethod(status int) bool {
	return status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
}
