package client

import (
	"context"
	"maps"
	"net/http"
	"time"

	"example.com/idempotency/client/internal/truncate"
	"example.com/idempotency/client/profile"
)

// This file makes one attempt, and receives as much of its answer as the verdict needs.

// A result is what an attempt has brought.
type result struct {
	resp    *http.Response
	answer  answer
	err     error
	verdict Verdict
	ruling  ruling // on the answer
	held    bool   // the body is in memory
	timer   *time.Timer
	cancel  context.CancelCauseFunc
}

// newResult begins an attempt, and returns its context: it ends with ctx, and when the limit is
// over.
func newResult(ctx context.Context, limit time.Duration) (*result, context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	return &result{cancel: cancel, timer: time.AfterFunc(limit, func() { cancel(errAttemptTimeout) })}, ctx
}

// exchange sends a request and receives the answer.
func (t *Transport) exchange(req *http.Request, server *profile.Server, r *result) {
	packed := wantsGzip(req, t.base)
	if packed {
		req.Header = maps.Clone(req.Header) // that of the call is shown to the caller
		setField(req, "Accept-Encoding", "gzip")
	}
	r.resp, r.err = roundTrip(req, t.base, t.set.breaker) //nolint:bodyclose // drop closes it, or the caller
	if r.err == nil {
		r.held, r.err = hold(r.resp, t.set.maxBody)
	}
	if r.err == nil && packed {
		unpack(r.resp)
	}
	if r.err == nil {
		r.answer, r.err = readAnswer(r.resp, server)
	}
	r.err = truncate.Error(r.err)
}

// setField sets a header field, also where there is no header yet.
func setField(r *http.Request, name, value string) {
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	r.Header.Set(name, value)
}

// status returns the status of the answer; 0 if there was none.
func (r *result) status() int {
	if r.resp == nil {
		return 0
	}
	return r.resp.StatusCode
}

// drop gives up the answer. A server that sends it slowly is not waited for.
func (r *result) drop() {
	const patience = time.Second
	r.timer.Reset(patience)
	discard(r.resp)
	r.timer.Stop()
	r.cancel(nil)
}
