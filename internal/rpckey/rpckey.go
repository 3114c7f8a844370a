// Package rpckey finds the key of a call, for the clients of RPC frameworks. It is to them what
// key.go of package client is to an http.RoundTripper.
package rpckey

import (
	"context"
	"fmt"
	"time"

	"example.com/idempotency/client"
	"example.com/idempotency/internal/keyheader"
	"example.com/idempotency/internal/stepcall"
)

// Field is the name under which clients send keys, in the metadata of a call.
const Field = "idempotency-key"

// For returns the key of a call, or nothing if the program wants none. The program's own choice
// comes first, then the step that ctx belongs to; any other call gets a new key. The caller calls
// end when the call has ended.
func For(ctx context.Context) (key string, end func(), err error) {
	end = func() {}
	if c, ok := ctx.Value(stepcall.ChosenKey{}).(stepcall.Chosen); ok {
		key, expires, none := c.Chosen()
		if none {
			return "", end, nil
		}
		if _, err := keyheader.Parse(key, false); err != nil {
			return "", end, fmt.Errorf("%w: %w", client.ErrKeyInvalid, err)
		}
		if !expires.IsZero() && !time.Now().Before(expires) {
			return "", end, client.ErrKeyExpired
		}
		return key, end, nil
	}
	step, ok := stepcall.From(ctx)
	if !ok {
		return client.NewKey(), end, nil
	}
	key, err = step.BeginCall()
	if err != nil {
		return "", end, err
	}
	return key, step.EndCall, nil
}
