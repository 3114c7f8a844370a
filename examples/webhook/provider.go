package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
)

// deliver sends the events 1 to n of a provider in random order, several at once. It delivers
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

// deliverOne sends an event until it is accepted. As providers do, it repeats the request
// after every status other than 2xx, including the refusal of an event that is in flight.
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

// delivery returns one attempt to deliver an event. All providers number their events alike.
func delivery(ctx context.Context, url string, e endpoint, version, try int) (*http.Request, error) {
	header := http.Header{"Content-Type": {"application/json"}}
	event := event{ID: fmt.Sprintf("evt_%d", version), Amount: version, Version: version}
	e.name(header, &event)
	body, err := json.Marshal(event)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+e.path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = header
	timestamp := strconv.Itoa(try) // differs in each attempt
	header.Set("Webhook-Timestamp", timestamp)
	header.Set("Webhook-Signature", sign(timestamp, body))
	return r, nil
}
