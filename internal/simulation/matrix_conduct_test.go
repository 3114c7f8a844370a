package simulation

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// A faultRun is a run of the handler of a world.
type faultRun struct {
	*faultWorld
	ctx context.Context
	op  *idempotency.Operation
}

// A conduct is what the handler of a world does. run counts from 1.
type conduct struct {
	name string
	run  func(w *faultRun, rw http.ResponseWriter, run int)
	// takes is the time of all runs together.
	takes time.Duration
	// ends says how the first run ends. A run after it is fast and definite.
	ends idempotency.Outcome
	// again says that the second run ends like the first.
	again bool
	// lost says that the first run loses its lease.
	lost bool
	// sent says that the answer is sent before it is whole.
	sent bool
	// refuses says that the first run loses its lease, comes back after the second has had its
	// effect and failed, and then refuses. If there is no second run, the refusal is final.
	refuses bool
	// limit is how long requests may take until a run has begun. Whoever stands around the guard has set it.
	limit time.Duration
	// bulky says that the answer may be kept and the stores, which are healthy, are too slow.
	bulky bool
}

const keptBody = 200 // bytes of an answer that are kept

var conducts = []conduct{
	{name: "fast", ends: idempotency.Final, run: func(w *faultRun, rw http.ResponseWriter, run int) {
		w.effect()
		w.answer(rw, run)
	}},
	{name: "slow", ends: idempotency.Final, takes: 7 * guardtest.LeaseTime / 2, run: func(w *faultRun, rw http.ResponseWriter, run int) {
		w.effect()
		time.Sleep(7 * guardtest.LeaseTime / 2)
		w.answer(rw, run)
	}},
	{name: "large", ends: idempotency.Final, sent: true, run: func(w *faultRun, rw http.ResponseWriter, run int) {
		w.effect()
		w.answer(rw, run)
		_, _ = io.WriteString(rw, strings.Repeat("!", keptBody))
	}},
	{name: "bulky", ends: idempotency.Final, bulky: true, takes: guardtest.LeaseTime / 2, run: func(w *faultRun, rw http.ResponseWriter, run int) {
		w.effect()
		w.answer(rw, run)
		_, _ = io.WriteString(rw, strings.Repeat("!", bulkyBody))
	}},
	{name: "streaming", ends: idempotency.Final, sent: true, takes: guardtest.LeaseTime, run: func(w *faultRun, rw http.ResponseWriter, run int) {
		w.effect()
		w.answer(rw, run)
		_ = http.NewResponseController(rw).Flush()
		time.Sleep(guardtest.LeaseTime - 100*time.Millisecond) // a renewal falls into the settling
		_, _ = io.WriteString(rw, ", and that was all")
	}},
	{name: "turned away", ends: idempotency.NotExecuted, run: atFirst(func(_ *faultRun, rw http.ResponseWriter) {
		rw.WriteHeader(http.StatusTooManyRequests)
	})},
	{name: "failing", ends: idempotency.Unknown, run: atFirst(func(w *faultRun, rw http.ResponseWriter) {
		w.effect()
		rw.WriteHeader(http.StatusBadGateway)
	})},
	{name: "stopped by a connection", ends: idempotency.Unknown, takes: 7 * guardtest.LeaseTime / 2, limit: 7 * guardtest.LeaseTime / 2, run: atFirst(func(w *faultRun, rw http.ResponseWriter) {
		w.effect()
		if deadline, ok := w.ctx.Deadline(); ok { // which it has handed on
			time.Sleep(time.Until(deadline))
		}
		rw.WriteHeader(http.StatusTooManyRequests)
	})},
	{name: "failing twice", ends: idempotency.Unknown, again: true, run: func(w *faultRun, rw http.ResponseWriter, run int) {
		w.effect()
		if run <= 2 {
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		w.answer(rw, run)
	}},
	{name: "panicking", ends: idempotency.Unknown, run: atFirst(func(w *faultRun, _ http.ResponseWriter) {
		w.effect()
		panic(guardtest.Boom)
	})},
	{name: "exiting", ends: idempotency.Unknown, run: atFirst(func(w *faultRun, _ http.ResponseWriter) {
		w.effect()
		runtime.Goexit()
	})},
	{name: "cut off", ends: idempotency.Final, takes: 2 * guardtest.LeaseTime, lost: true, run: atFirst(func(w *faultRun, rw http.ResponseWriter) {
		w.effect()
		w.cutOff(2 * guardtest.LeaseTime)
		w.answer(rw, 1)
	})},
	{name: "overtaken and refusing", ends: idempotency.Final, takes: 2 * guardtest.LeaseTime, lost: true, refuses: true, run: func(w *faultRun, rw http.ResponseWriter, run int) {
		switch run {
		case 1:
			w.cutOffUntil(w.failed, 2*guardtest.LeaseTime)
			w.op.SetOutcome(idempotency.Final) // it insists, and does not look at its context
			rw.WriteHeader(http.StatusUnprocessableEntity)
		case 2:
			w.effect()
			rw.WriteHeader(http.StatusBadGateway)
			time.AfterFunc(10*time.Millisecond, func() { close(w.failed) })
		default:
			w.effect()
			w.answer(rw, run)
		}
	}},
}

func atFirst(f func(w *faultRun, rw http.ResponseWriter)) func(*faultRun, http.ResponseWriter, int) {
	return func(w *faultRun, rw http.ResponseWriter, run int) {
		if run == 1 {
			f(w, rw)
			return
		}
		w.effect()
		w.answer(rw, run)
	}
}
