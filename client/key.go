package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"time"

	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/keyheader"
	"example.com/idempotency/internal/stepcall"
)

// This file makes keys, and lets a program choose them.

// NewKey returns a new random key: a UUID of version 4. A [Transport] makes one for each
// request that has none; a caller that wants to keep the key makes it itself and hands it
// on with [WithKey].
func NewKey() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails: crypto/rand ends the program instead
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	var h [2 * len(u)]byte
	hex.Encode(h[:], u[:])
	return string(h[:8]) + "-" + string(h[8:12]) + "-" + string(h[12:16]) + "-" + string(h[16:20]) + "-" + string(h[20:])
}

// IntentFor returns the intent that has an identity of its own, as in
//
//	ctx = client.IntentFor("charge", order.ID).Context(ctx)
//
// A program that intends the same computes the same key, also after a crash, in another
// process and on another machine. So any of them may have sent it before, and the intent is
// Resumed. A program that knows better sets Resumed to false. The parts are told apart, whatever
// is in them: ("ab", "c") and ("a", "bc") have different keys. So have ("charge", id) and
// ("refund", id), and with a further part a second charge on purpose has another key than the
// first.
//
// A repetition is safe only until the server forgets the key: by default 24 hours after the first
// attempt of any process. A later one has its effect again, and the [Transport] cannot tell, because
// the intent does not know when the first attempt was. A program that may come back so late keeps
// when it began, and sets Since to that: a call that comes too late then fails with [ErrKeyExpired],
// and is not sent. Without that time, the program asks the server first what has happened.
//
// The key has 43 characters: base64url of a SHA-256 of the parts, each behind its length.
// It is the same in all versions of this package. It does not hide parts that can be
// guessed.
func IntentFor(purpose string, identity ...string) Intent {
	sum := digest.Intent(append([]string{purpose}, identity...)...)
	return Intent{Key: base64.RawURLEncoding.EncodeToString(sum[:]), Resumed: true}
}

// keyHash is what events, errors and logs show of the value of a header field.
func keyHash(value string) string {
	const bytesOf8Characters = 6
	sum := digest.Key("", bare(value))
	return base64.RawURLEncoding.EncodeToString(sum[:bytesOf8Characters])
}

// bare returns the key in a header field, without its quotes. What is no key stays as it is.
func bare(value string) string {
	if key, err := keyheader.Parse(value, false); err == nil {
		return key
	}
	return value
}

// An Intent is a key with its history. A later request needs it to count as the same one. An
// [*Error] has one, and so has an entry of package journal.
type Intent struct {
	// Key is the key, as the header field has it.
	Key string
	// Since is when the key was made. The zero Time stands for now.
	Since time.Time
	// Expires is when the server forgets the key, as far as it has said. A key that is past it
	// is not sent. The zero Time stands for a time that is not known.
	Expires time.Time
	// Resumed says that the key may have been sent before. An answer that says nothing about
	// that, such as a 401, then ends the call with [ErrOutcomeUnknown].
	Resumed bool
}

// Context returns a context for the one request that carries out the intent. A [Transport]
// sends it with the key, and not at all if the key is older than the server remembers
// ([WithTTL]). What ctx knows of the same key is not forgotten: its Since and Expires stand in for
// those that are zero, and Resumed stays. It holds too if the same key is in the header field.
func (i Intent) Context(ctx context.Context) context.Context {
	known, _ := ctx.Value(historyOf(bare(i.Key))).(Intent)
	i.Since, i.Expires, i.Resumed = cmp.Or(i.Since, known.Since), cmp.Or(i.Expires, known.Expires), i.Resumed || known.Resumed
	ctx = context.WithValue(ctx, historyOf(bare(i.Key)), i)
	return context.WithValue(ctx, stepcall.ChosenKey{}, chosenKey{Intent: i})
}

// A historyOf a key is where a context holds its [Intent].
type historyOf string

// A chosenKey is what the caller has decided about the key of its requests.
type chosenKey struct {
	Intent
	none bool
}

// Chosen implements [stepcall.Chosen].
func (c chosenKey) Chosen() (key string, expires time.Time, none bool) {
	return c.Key, c.Expires, c.none
}

// WithKey returns a context whose request is sent with the given key, whatever its method
// is, unless the method is safe (GET, HEAD, OPTIONS, TRACE). It is for one request: the
// server refuses two different ones with the same key. A key has the form that the header
// field has, abc or "abc"; a key in another form makes the request fail with
// [ErrKeyInvalid].
//
// Of a key that ctx knows, by [Error.Context] or [Intent.Context], the history counts. In a later
// attempt of a step, the key may have been sent before. Any other key counts as a new one that
// was never sent, as one in the header field does. For a key that another call or process may
// have sent, use [IntentFor], or an [Intent] that is Resumed.
func WithKey(ctx context.Context, key string) context.Context {
	return Intent{Key: key}.Context(ctx)
}

// WithoutKey returns a context whose requests get no key. Such a request is sent once,
// unless its method is idempotent.
//
// A request that http.Client sends because of a redirect has the key of the first one, also at
// another host. CheckRedirect can withhold it:
//
//	if req.URL.Host != via[0].URL.Host {
//		*req = *req.WithContext(client.WithoutKey(req.Context()))
//	}
func WithoutKey(ctx context.Context) context.Context {
	return context.WithValue(ctx, stepcall.ChosenKey{}, chosenKey{none: true})
}

// method returns the method of a request. In net/http, the empty one is short for GET.
func method(r *http.Request) string {
	if r.Method == "" {
		return http.MethodGet
	}
	return r.Method
}

// isSafe reports whether a method is a safe one (RFC 9110 section 9.2.1).
func isSafe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// isIdempotent reports whether a request may be repeated by its definition (RFC 9110
// section 9.2.2).
func isIdempotent(method string) bool {
	return isSafe(method) || method == http.MethodPut || method == http.MethodDelete
}
