package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"example.com/idempotency"
)

// An order is the body of a request.
type order struct {
	ID     string `json:"id"`
	Amount int64  `json:"amount"`
}

// A receipt is the answer to an order: the provider's ID of each effect.
type receipt struct {
	Charge   string `json:"charge"`
	Shipment string `json:"shipment"`
	Mail     string `json:"mail"`
}

type shop struct{ provider providerClient }

func (s *shop) routes(guard *idempotency.Guard) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /checkout", guard.Handler(http.HandlerFunc(s.checkout)))
	mux.Handle("POST /checkout/plain-mail", guard.Handler(http.HandlerFunc(s.checkoutPlainMail)))
	mux.Handle("GET /checkout", guard.LookupHandler())
	return mux
}

// checkout makes three effects. Each step passes the provider a key that is the same in all
// attempts. If the shop dies after an effect and before its record, the next attempt repeats
// the call, and the provider does not repeat the effect.
func (s *shop) checkout(w http.ResponseWriter, r *http.Request) {
	s.place(w, r, func(ctx context.Context, o order) (string, error) {
		return idempotency.Step(ctx, "mail", func(ctx context.Context) (string, error) {
			return s.provider.act(ctx, "mails", o, idempotency.DeriveKey(ctx, "mail"), withKey)
		})
	})
}

// checkoutPlainMail sends its mail through a service that accepts no idempotency key. Only
// the mark of AtMostOnce prevents a second mail: if nobody knows whether the first one was
// sent, the key is held. The reference serves only to ask afterwards; see resolve.
func (s *shop) checkoutPlainMail(w http.ResponseWriter, r *http.Request) {
	s.place(w, r, func(ctx context.Context, o order) (string, error) {
		return idempotency.Step(ctx, "mail", func(ctx context.Context) (string, error) {
			return s.provider.act(ctx, "mails", o, idempotency.DeriveKey(ctx, "mail"), withoutKey)
		}, idempotency.AtMostOnce())
	})
}

func (s *shop) place(w http.ResponseWriter, r *http.Request, mail func(context.Context, order) (string, error)) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.ID == "" {
		http.Error(w, `the body must look like {"id":"order-1","amount":100}`, http.StatusBadRequest)
		return
	}
	var done receipt
	var err error
	ctx := r.Context()
	done.Charge, err = idempotency.Step(ctx, "charge", func(ctx context.Context) (string, error) {
		return s.provider.act(ctx, "charges", o, idempotency.DeriveKey(ctx, "charge"), withKey)
	})
	if err == nil {
		done.Shipment, err = idempotency.Step(ctx, "ship", func(ctx context.Context) (string, error) {
			return s.provider.act(ctx, "shipments", o, idempotency.DeriveKey(ctx, "ship"), withKey)
		})
	}
	if err == nil {
		done.Mail, err = mail(ctx, o)
	}
	switch {
	case errors.Is(err, idempotency.ErrPermanent): // a definite answer, which the guard records
		http.Error(w, err.Error(), http.StatusPaymentRequired)
	case err != nil: // 500 or above, because nobody knows how far it went
		http.Error(w, "not finished, send it again", http.StatusBadGateway)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(done)
	}
}

// resolve finds out what became of a held checkout. Only its mail can be in doubt. If the mail was
// sent, the checkout is complete; if not, the next attempt goes on after the recorded steps.
func (s *shop) resolve(ctx context.Context, h idempotency.RecordInfo) (idempotency.Resolution, error) {
	var done receipt
	for _, effect := range []struct {
		kind, step string
		id         *string
	}{
		{"mails", "mail", &done.Mail},
		{"charges", "charge", &done.Charge},
		{"shipments", "ship", &done.Shipment},
	} {
		id, found, err := s.provider.find(ctx, effect.kind, h.DeriveKey(effect.step))
		switch {
		case err != nil:
			return idempotency.Resolution{}, err
		case !found && effect.step == "mail":
			return idempotency.Resolution{Outcome: idempotency.Resume, NotDone: []string{"mail"}}, nil
		case !found: // a mail about nothing: somebody has to look
			return idempotency.Resolution{Outcome: idempotency.Unknown}, nil
		}
		*effect.id = id
	}
	body, err := json.Marshal(done)
	return idempotency.Resolution{
		Outcome: idempotency.Final,
		Status:  http.StatusCreated,
		Header:  http.Header{"Content-Type": {"application/json"}},
		Body:    append(body, '\n'),
	}, err
}
