// Command payer charges for an order at the API of examples/payments. It survives lost
// answers, and it can be run again: the same order has the same key, so the API charges once.
//
//	go run ./examples/payments
//	go run ./examples/payer -order order-17 -amount 100
//
// It exits with status 2 if it cannot tell whether the charge was made. Then run the same
// command again, within the 24 hours for which the API keeps the key, counted from the first
// time; do not change the order. After that, look at the API for the charge: the same command
// would charge again. A program that keeps when it began sets Since of the intent, as
// client.IntentFor says.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"

	"example.com/idempotency/client"
	"example.com/idempotency/client/profile"
)

func main() {
	var p payer
	api := flag.String("api", "http://127.0.0.1:8080", "`URL` of the API")
	flag.StringVar(&p.token, "token", "token-of-alice", "the caller's `token`")
	flag.StringVar(&p.order, "order", "order-1", "`number` of the order to charge for")
	flag.Int64Var(&p.amount, "amount", 100, "`cents` to charge")
	flag.Parse()

	// The transport bounds the time of the call. A Timeout of the http.Client would hide its errors.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	answer, err := "", p.connect(*api)
	if err == nil {
		answer, err = p.pay(ctx)
	}
	message, status := report(answer, err)
	fmt.Println(message)
	os.Exit(status)
}

// A payer charges for one order.
type payer struct {
	api    *url.URL
	http   *http.Client
	token  string
	order  string
	amount int64
}

// connect makes the client, which sends one key with every attempt. WithServer says that the
// host honours keys: only there may a request be sent again that may have been executed.
func (p *payer) connect(api string) error {
	var err error
	if p.api, err = url.Parse(api); err != nil {
		return err
	}
	transport, err := client.New(nil, client.WithServer(profile.Guard(), p.api.Hostname()))
	p.http = &http.Client{Transport: transport, CheckRedirect: client.CheckRedirect}
	return err
}

// pay returns the API's answer.
func (p *payer) pay(ctx context.Context) (string, error) {
	body, err := json.Marshal(map[string]any{"amount": p.amount, "currency": "eur"})
	if err != nil {
		return "", err
	}
	// Every process that charges for this order uses this key, and an earlier one may have charged.
	ctx = client.IntentFor("charge", p.order).Context(ctx)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.api.JoinPath("charges").String(), bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Authorization", "Bearer "+p.token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := p.http.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusCreated {
		return "", fmt.Errorf("status %d: %s", resp.StatusCode, answer)
	}
	return fmt.Sprintf("replayed: %v, %s", client.Replayed(resp), answer), nil
}

// report says what became of the charge, and returns the exit status for that.
func report(answer string, err error) (string, int) {
	switch {
	case err == nil:
		return "charged, " + answer, 0
	case errors.Is(err, client.ErrKeyReused):
		return "this amount is not charged, the order was sent before with another one: " + err.Error(), 1
	case errors.Is(err, client.ErrOutcomeUnknown):
		return "unknown, run the same command again within 24 hours of the first time: " + err.Error(), 2
	case errors.Is(err, client.ErrAnswerLost):
		return "charged, but the answer was not kept: " + err.Error(), 0
	default:
		return "not charged: " + err.Error(), 1
	}
}
