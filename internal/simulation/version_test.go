package simulation

import (
	"net/http"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// A deployment is under way in a mixed world: one process has other settings than the rest, and
// they have one store. Clients retry at any of them.

// otherVersion draws the settings of the new process from those of the others.
func (w *simulation) otherVersion(v simVersion) simVersion {
	d := w.dice(ofVersion)
	v.lease -= d.upTo(v.lease / 2)
	v.recovery = []idempotency.Recovery{idempotency.Rerun, idempotency.Hold}[d.IntN(2)]
	if d.oneIn(2) {
		v.kept *= 4
	}
	v.options = []idempotency.Option{idempotency.WithTTL(time.Duration(2+d.IntN(30)) * time.Hour)}
	if w.sealed() {
		v.options = append(v.options, idempotency.WithSealer(guardtest.NewSealer(w.t, 2, 1)))
		return v
	}
	switch d.IntN(3) {
	case 0:
		v.options = append(v.options, idempotency.WithFingerprint(idempotency.JSONFingerprint))
	case 1:
		v.options = append(v.options, idempotency.WithFingerprint(amountFingerprint, formerFingerprint))
	}
	return v
}

// formerOptions are those of the processes that are still to be replaced.
func (w *simulation) formerOptions() []idempotency.Option {
	if w.sealed() {
		return []idempotency.Option{idempotency.WithSealer(guardtest.NewSealer(w.t, 1))}
	}
	if w.dice(ofVersion, 1).oneIn(2) {
		return []idempotency.Option{idempotency.WithFingerprint(formerFingerprint)}
	}
	return nil
}

// sealed reports whether the versions seal with different keys. Then the others cannot open what the
// new process has sealed.
func (w *simulation) sealed() bool { return w.kind == mixed && w.dice(ofVersion, 2).oneIn(3) }

// Each of these counts the whole body, and makes a fingerprint that the other does not know.
func formerFingerprint(_ *http.Request, body []byte) (idempotency.Fingerprint, error) {
	return idempotency.NewFingerprint(1, body), nil
}

func amountFingerprint(_ *http.Request, body []byte) (idempotency.Fingerprint, error) {
	return idempotency.NewFingerprint(2, []byte("body"), body), nil
}
