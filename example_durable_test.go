package idempotency_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/event"
)

// A run makes two effects and fails at the third. The retry makes only the third.
func ExampleStep() {
	open := false // the warehouse
	h := guardFor().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := idempotency.Step(r.Context(), "charge", func(context.Context) (string, error) {
			fmt.Println("charging")
			return "ch_1", nil
		})
		if err == nil {
			_, err = idempotency.Step(r.Context(), "ship", func(context.Context) (string, error) {
				if !open {
					return "", errors.New("warehouse is closed")
				}
				fmt.Println("shipping")
				return "sh_1", nil
			})
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, id)
	}))
	send(h, "key-1", "{}")
	open = true
	send(h, "key-1", "{}")
	send(h, "key-1", "{}")
	// Output:
	// charging
	// 502 warehouse is closed
	// shipping
	// 201 ch_1
	// 201 ch_1 (replayed)
}

// A run whose last step fails for good takes back what it did before. The process that does so
// fails once itself; the next attempt finds what was decided, and goes on.
func ExampleStep_undo() {
	attempt := 0
	h := guardFor().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		attempt++
		charge, _ := idempotency.Step(r.Context(), "charge", func(context.Context) (string, error) {
			fmt.Println("charging")
			return "ch_1", nil
		})
		_, err := idempotency.Step(r.Context(), "reserve", func(context.Context) (string, error) {
			fmt.Println("asking the warehouse")
			return "", idempotency.Permanent(errors.New("sold out"))
		})
		if errors.Is(err, idempotency.ErrPermanent) {
			_, failed := idempotency.Step(r.Context(), "refund", func(context.Context) (string, error) {
				if attempt == 1 {
					return "", errors.New("provider is down")
				}
				fmt.Println("refunding", charge)
				return "re_1", nil
			})
			if failed != nil {
				http.Error(w, failed.Error(), http.StatusBadGateway) // not definite: the refund is missing
				return
			}
			http.Error(w, err.Error(), http.StatusConflict)
		}
	}))
	send(h, "key-1", "{}")
	send(h, "key-1", "{}")
	send(h, "key-1", "{}")
	// Output:
	// charging
	// asking the warehouse
	// 502 provider is down
	// refunding ch_1
	// 409 sold out
	// 409 sold out (replayed)
}

// A mail service accepts no idempotency key. After a run that broke off in the middle, nobody
// knows whether the mail was sent, so it is not sent again.
func ExampleAtMostOnce() {
	h := guardFor().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := idempotency.Step(r.Context(), "mail", func(context.Context) (string, error) {
			fmt.Println("sending")
			return "", errors.New("connection reset")
		}, idempotency.AtMostOnce())
		if errors.Is(err, idempotency.ErrUncertain) {
			fmt.Println("somebody has to look")
		}
		w.WriteHeader(http.StatusBadGateway)
	}))
	send(h, "key-1", "{}")
	send(h, "key-1", "{}")
	send(h, "key-1", "{}")
	// Output:
	// sending
	// 502
	// somebody has to look
	// 502
	// 409 outcome-unknown
}

// The provider sees the same key in each attempt, so it charges once.
func ExampleDeriveKey() {
	charged := map[string]bool{} // what the provider knows
	h := guardFor().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := idempotency.DeriveKey(r.Context(), "charge")
		fmt.Println("known to the provider:", charged[key])
		charged[key] = true
		w.WriteHeader(http.StatusBadGateway) // its answer is lost
	}))
	send(h, "key-1", "{}")
	send(h, "key-1", "{}")
	send(h, "key-2", "{}")
	// Output:
	// known to the provider: false
	// 502
	// known to the provider: true
	// 502
	// known to the provider: false
	// 502
}

// A queue delivers a message twice.
func ExampleDo() {
	guard := guardFor()
	for range 2 {
		key := idempotency.Key{Scope: "invoices", Value: "message-17"}
		number, result, err := idempotency.Do(context.Background(), guard, key, func(ctx context.Context) (int, error) {
			fmt.Println("sending the invoice")
			return 1001, nil
		})
		fmt.Println(number, result.Replayed, err)
	}
	// Output:
	// sending the invoice
	// 1001 false <nil>
	// 1001 true <nil>
}

// The key is bound to the content of the message.
func ExampleWithPayload() {
	guard := guardFor()
	for _, message := range []string{"pay 100", "pay 100", "pay 999"} {
		key := idempotency.Key{Scope: "payouts", Value: "message-17"}
		_, _, err := idempotency.Do(context.Background(), guard, key, func(ctx context.Context) (string, error) {
			return "paid", nil
		}, idempotency.WithPayload([]byte(message)))
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// <nil>
	// idempotency: key was used with another payload
}

// gobCodec keeps values that JSON cannot encode.
type gobCodec struct{}

func (gobCodec) Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(v)
	return b.Bytes(), err
}

func (gobCodec) Unmarshal(data []byte, v any) error {
	return gob.NewDecoder(bytes.NewReader(data)).Decode(v)
}

func ExampleWithCodec() {
	key := idempotency.Key{Scope: "signals", Value: "sample-1"}
	value, _, err := idempotency.Do(context.Background(), guardFor(), key, func(context.Context) (complex128, error) {
		return 1 + 2i, nil // which JSON cannot say
	}, idempotency.WithCodec(gobCodec{}))
	fmt.Println(value, err)
	// Output:
	// (1+2i) <nil>
}

// A declined card will be declined again. That is a result, and Step records it.
func ExamplePermanent() {
	guard := guardFor()
	for range 2 {
		key := idempotency.Key{Scope: "charges", Value: "order-1"}
		_, result, err := idempotency.Do(context.Background(), guard, key, func(context.Context) (string, error) {
			fmt.Println("charging")
			return "", idempotency.Permanent(errors.New("card declined"))
		})
		fmt.Println(err, result.Replayed, errors.Is(err, idempotency.ErrPermanent))
	}
	// Output:
	// charging
	// card declined false true
	// card declined true true
}

// The answer to a transfer never came. The resolver asks the bank what became of it.
func ExampleWithResolver() {
	bank := map[string]string{} // transfers by reference
	guard := guardFor(
		idempotency.WithRecovery(idempotency.Hold),
		idempotency.WithResolver(func(_ context.Context, h idempotency.RecordInfo) (idempotency.Resolution, error) {
			id, ok := bank[h.DeriveKey("transfer")]
			if !ok {
				return idempotency.Resolution{Outcome: idempotency.NotExecuted}, nil
			}
			return idempotency.Resolution{Outcome: idempotency.Final, Status: http.StatusCreated, Body: []byte(id)}, nil
		}),
	)
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bank[idempotency.DeriveKey(r.Context(), "transfer")] = "tr_1"
		w.WriteHeader(http.StatusGatewayTimeout) // it went through all the same
	}))
	send(h, "key-1", "{}")
	send(h, "key-1", "{}")
	// Output:
	// 504
	// 201 tr_1 (replayed)
}

// A run has charged the card, and died before it wrote to the ledger. The next attempt goes on: it takes the
// charge that is recorded, and makes the entry.
func ExampleGuard_Resolve_resume() {
	guard := guardFor(idempotency.WithRecovery(idempotency.Hold))
	broken := true
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = idempotency.Step(r.Context(), "charge", func(context.Context) (string, error) {
			fmt.Println("charging")
			return "ch_1", nil
		})
		if broken {
			panic(http.ErrAbortHandler)
		}
		_, _ = idempotency.Step(r.Context(), "ledger", func(context.Context) (string, error) {
			fmt.Println("writing to the ledger")
			return "entry 1", nil
		})
		w.WriteHeader(http.StatusCreated)
	}))
	func() {
		defer func() { _ = recover() }()
		send(h, "key-1", "{}")
	}()

	ctx, key := context.Background(), idempotency.Key{Scope: "customer-1", Value: "key-1"}
	info, err := guard.Lookup(ctx, key)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.State, info.Steps)
	by := idempotency.Decision{Actor: "ada", Reason: "the process was killed; every effect has a derived key"}
	err = guard.Resolve(ctx, key, info.Seen(), idempotency.Resolution{Outcome: idempotency.NotExecuted, Decision: by})
	fmt.Println(errors.Is(err, idempotency.ErrStepsRecorded)) // it has charged
	err = guard.Resolve(ctx, key, info.Seen(), idempotency.Resolution{Outcome: idempotency.Resume, Decision: by})
	if err != nil {
		log.Fatal(err)
	}
	broken = false
	send(h, "key-1", "{}")
	// Output:
	// charging
	// held [charge]
	// true
	// writing to the ledger
	// 201
}

// The process died in the middle of a transfer, and the client does not come back. The key is
// settled all the same: it was kept, so the resolver is asked about it.
func ExampleGuard_Reconcile() {
	sealer, err := idempotency.NewSealer([]byte("0123456789abcdef0123456789abcdef")) // from your secret store
	if err != nil {
		log.Fatal(err)
	}
	settled := make(chan event.Event, 1)
	guard := guardFor(
		idempotency.WithRoute("POST /transfers"),
		idempotency.WithRecovery(idempotency.Hold),
		idempotency.WithSealer(sealer),
		idempotency.WithKeptKeys(true),
		idempotency.WithResolver(func(_ context.Context, h idempotency.RecordInfo) (idempotency.Resolution, error) {
			fmt.Println("the bank is asked about", h.Key.Value)
			return idempotency.Resolution{
				Outcome: idempotency.Final, Status: http.StatusCreated, Body: []byte("tr_1"),
				Decision: idempotency.Decision{Reason: "the bank has the transfer"},
			}, nil
		}),
		idempotency.WithObserver(func(_ context.Context, e event.Event) {
			if e.Kind == event.Resolved {
				settled <- e
			}
		}),
	)
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusGatewayTimeout)
	}))
	send(h, "key-1", "{}")

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		if err := guard.Reconcile(ctx, time.Minute); err != nil {
			log.Fatal(err)
		}
	}()
	e := <-settled
	fmt.Println(e.Outcome, "by", e.Actor, "because", e.Reason)
	send(h, "key-1", "{}")
	// Output:
	// 504
	// the bank is asked about key-1
	// final by resolver because the bank has the transfer
	// 201 tr_1 (replayed)
}

// A client that has lost track looks up its key before it sends the request again.
func ExampleGuard_LookupHandler() {
	guard := guardFor()
	mux := http.NewServeMux()
	mux.Handle("POST /charges", guard.Handler(http.HandlerFunc(charge)))
	mux.Handle("GET /charges/status", guard.LookupHandler())
	look := func() {
		r := httptest.NewRequest(http.MethodGet, "/charges/status", http.NoBody)
		r.Header.Set("Idempotency-Key", "key-1")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		var told struct {
			State  string
			Status int
		}
		if err := json.Unmarshal(w.Body.Bytes(), &told); err != nil {
			log.Fatal(err)
		}
		fmt.Println(w.Code, told.State, told.Status)
	}
	send(mux, "key-1", "{}")
	look()
	// Output:
	// 201 charged
	// 200 completed 201
}

// An operator looks at a key.
func ExampleGuard_Lookup() {
	guard := guardFor(idempotency.WithRecovery(idempotency.Hold))
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = idempotency.Step(r.Context(), "charge", func(context.Context) (string, error) { return "ch_1", nil })
		w.WriteHeader(http.StatusInternalServerError)
	}))
	send(h, "key-1", "{}")
	key := idempotency.Key{Scope: "customer-1", Value: "key-1"}
	info, err := guard.Lookup(context.Background(), key)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.State, info.Attempt, info.Steps)

	key.Value = "key-2"
	_, err = guard.Lookup(context.Background(), key)
	fmt.Println(errors.Is(err, idempotency.ErrNotFound))
	// Output:
	// 500
	// held 1 [charge]
	// true
}

// A request that fails each time is not repeated without end.
func ExampleHoldAfter() {
	h := guardFor(
		idempotency.WithRecovery(idempotency.HoldAfter(2)),
		idempotency.WithLogger(slog.New(slog.DiscardHandler)),
	).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "the ledger does not balance", http.StatusInternalServerError)
	}))
	for range 3 {
		send(h, "key-1", "{}")
	}
	// Output:
	// 500 the ledger does not balance
	// 500 the ledger does not balance
	// 409 outcome-unknown
}

// In the shadow phase handlers run as before, and the guard tells what it would do.
func ExampleWithShadow() {
	reports := make(chan event.Event)
	h := guardFor(
		idempotency.WithShadow(true),
		idempotency.WithLogger(slog.New(slog.DiscardHandler)),
		idempotency.WithObserver(func(_ context.Context, e event.Event) { reports <- e }), // from the background
	).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		amount, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "charged %s", amount)
	}))
	for _, amount := range []string{"10 EUR", "10 EUR", "20 EUR"} {
		send(h, "key-1", amount)
		e := <-reports
		fmt.Printf("  a live guard: %s, code %q\n", e.Would, e.Code)
	}
	// Output:
	// 200 charged 10 EUR
	//   a live guard: run, code ""
	// 200 charged 10 EUR
	//   a live guard: replay, code ""
	// 200 charged 20 EUR
	//   a live guard: refused, code "key-reused"
}
