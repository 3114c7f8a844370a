package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// This file is what the senders do: it signs events and delivers them, more often than once.

// deliver sends the events 1 to n of a sender in random order, several at once. It delivers
// each event one to four times, and repeats each delivery until it is accepted. It returns
// the number of requests.
func deliver(ctx context.Context, url string, e endpoint, n int, random *rand.Rand) (int, error) {
	var queue []int
	for version := 1; version <= n; version++ {
		for range 1 + random.IntN(4) {
			queue = append(queue, version)
		}
	}
	random.Shuffle(len(queue), func(i, j int) { queue[i], queue[j] = queue[j], queue[i] })

	deliveries := make(chan int)
	var workers sync.WaitGroup
	var mu sync.Mutex
	var failed error
	sent := 0
	for range 8 {
		workers.Go(func() {
			for version := range deliveries {
				tries, err := deliverOne(ctx, url, e, version)
				mu.Lock()
				sent += tries
				if err != nil {
					failed = err
				}
				mu.Unlock()
			}
		})
	}
	for _, version := range queue {
		deliveries <- version
	}
	close(deliveries)
	workers.Wait()
	return sent, failed
}

// deliverOne sends an event until it is accepted. As senders do, it repeats the request after every
// status other than 2xx.
func deliverOne(ctx context.Context, url string, e endpoint, version int) (tries int, err error) {
	for tries = 1; tries <= 1000; tries++ {
		var resp *http.Response
		r, err := delivery(ctx, url, e, version, tries)
		if err == nil {
			resp, err = http.DefaultClient.Do(r)
		}
		if err != nil {
			return tries, err
		}
		resp.Body.Close()
		if resp.StatusCode < 300 {
			return tries, nil
		}
	}
	return tries, fmt.Errorf("event %d of %s is never accepted", version, e.path)
}

// delivery returns one attempt to deliver an event. All senders number their events alike.
func delivery(ctx context.Context, url string, e endpoint, version, try int) (*http.Request, error) {
	event := event{
		ID: fmt.Sprintf("evt_%d", version), Pending: 1000 - try,
		Amount: version, Plan: fmt.Sprintf("plan-%d", version), Version: version,
	}
	body, err := json.Marshal(event)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+e.path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	e.sign(r.Header, e.secret, event.ID, body)
	return r, nil
}

func mac(secret []byte, format string, args ...any) []byte {
	h := hmac.New(sha256.New, secret)
	fmt.Fprintf(h, format, args...)
	return h.Sum(nil)
}

func signStripe(h http.Header, secret, _ string, body []byte) {
	at := time.Now().Unix()
	h.Set("Stripe-Signature", fmt.Sprintf("t=%d,v1=%x", at, mac([]byte(secret), "%d.%s", at, body)))
}

func signGitHub(h http.Header, secret, name string, body []byte) {
	h.Set("X-Github-Delivery", name)
	h.Set("X-Hub-Signature-256", fmt.Sprintf("sha256=%x", mac([]byte(secret), "%s", body)))
}

func signStandard(h http.Header, secret, name string, body []byte) {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	at := time.Now().Unix()
	h.Set("Webhook-Id", name)
	h.Set("Webhook-Timestamp", strconv.FormatInt(at, 10))
	h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac(key, "%s.%d.%s", name, at, body)))
}
