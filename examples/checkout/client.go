package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"example.com/idempotency"
)

// A providerClient sends the shop's requests to the provider.
type providerClient struct {
	url  string
	http *http.Client
}

// The values of keyed: whether the provider gets the reference as idempotency key.
const (
	withKey    = true
	withoutKey = false
)

// act makes one effect, which the provider remembers by the reference. A refusal is
// permanent, because the same card will be declined again.
func (c providerClient) act(ctx context.Context, kind string, o order, reference string, keyed bool) (string, error) {
	body, err := json.Marshal(instruction{o.ID, o.Amount, reference})
	if err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/"+kind, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	if keyed {
		r.Header.Set("Idempotency-Key", reference)
	}
	done, status, err := c.send(r)
	if status == http.StatusPaymentRequired {
		return "", idempotency.Permanent(errors.New("declined"))
	}
	return done.ID, err
}

// find asks the provider for the effect with a reference.
func (c providerClient) find(ctx context.Context, kind, reference string) (id string, found bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/"+kind+"/"+reference, http.NoBody)
	if err != nil {
		return "", false, err
	}
	done, status, err := c.send(r)
	if status == http.StatusNotFound {
		return "", false, nil
	}
	return done.ID, err == nil, err
}

func (c providerClient) send(r *http.Request) (effect, int, error) {
	var done effect
	resp, err := c.http.Do(r)
	if err != nil {
		return done, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return done, resp.StatusCode, fmt.Errorf("provider: status %d", resp.StatusCode)
	}
	return done, resp.StatusCode, json.NewDecoder(resp.Body).Decode(&done)
}
