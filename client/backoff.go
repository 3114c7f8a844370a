package client

import (
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// This file says how long the client waits between attempts.

// A backoff is the bounds of the pauses of a Transport.
type backoff struct{ first, longest time.Duration }

// pause returns how long to wait before the retry with the given number, from 1. It is
// random over the whole range, because clients that failed together would otherwise come
// back together. The server may ask for a least pause, and the random one is added to it.
func (b backoff) pause(retry int, resp *http.Response) time.Duration {
	bound := b.longest
	if doublings := retry - 1; doublings < 32 && b.first <= b.longest>>doublings {
		bound = b.first << doublings
	}
	pause := rand.N(bound)
	if floor := retryAfter(resp); floor < math.MaxInt64-pause {
		return floor + pause
	}
	return math.MaxInt64
}

// retryAfter returns what the field Retry-After of an answer asks for: a number of
// seconds, or a time, which is compared with the server's own clock where it tells it.
func retryAfter(resp *http.Response) time.Duration {
	if resp == nil {
		return 0
	}
	value := strings.TrimSpace(resp.Header.Get("Retry-After"))
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(math.MaxInt64/time.Second) {
			return math.MaxInt64
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(0, at.Sub(now))
}
