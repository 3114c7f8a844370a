package webhook

import (
	"net/http"
	"time"

	"example.com/idempotency"
)

// What a sender is. Each has a file of its own, with the addresses of the documentation that it was
// written from. senders.go lists them.

// A Sender says how one sender of webhooks names its events and signs its deliveries. The
// functions of this package, such as [Stripe], return the senders that it knows. A program may
// change what they return, and make a Sender of its own: it needs a Name and a Key, and
// [VerifyWith].
type Sender struct {
	// Name tells the sender from others. It becomes the [Scope] of its deliveries. Where two
	// endpoints get the same events, each needs a Name of its own: otherwise the second
	// endpoint gets the answer of the first, and its handler does not run.
	Name string
	// Key finds the name of the event. All deliveries of one event have the same name.
	Key idempotency.KeyFunc
	// Fingerprint counts what all deliveries of one event have in common. Nil is the default of
	// the guard, which counts the whole body.
	Fingerprint idempotency.FingerprintFunc
	// Methods are those by which the sender delivers. None is POST. [Verify] refuses the others: a
	// guard would let them pass unprotected, so a captured delivery could run again by another method.
	Methods []string
	// TTL outlasts the last redelivery that the sender makes by itself, and those that its users
	// can ask for as far as they are documented. Zero is the default of the guard.
	TTL time.Duration

	// signing is nil if this package cannot check the signature.
	signing *scheme
}

// Options returns the options of a guard, for [idempotency.Guard.With]: by which methods deliveries
// come, where the key is, what counts in a mismatch, and for how long answers are kept. A delivery
// without a name is refused. A guard without these options finds no key, and protects nothing.
func (s Sender) Options() []idempotency.Option {
	opts := []idempotency.Option{
		idempotency.WithMethods(s.methods()...),
		idempotency.WithKeyFunc(s.Key),
		idempotency.WithRequired(true),
	}
	if s.Fingerprint != nil {
		opts = append(opts, idempotency.WithFingerprint(s.Fingerprint))
	}
	if s.TTL != 0 {
		opts = append(opts, idempotency.WithTTL(s.TTL))
	}
	return opts
}

func (s Sender) methods() []string {
	if len(s.Methods) == 0 {
		return []string{http.MethodPost}
	}
	return s.Methods
}

const day = 24 * time.Hour
