package client

import (
	"net/http"

	"example.com/idempotency/client/profile"
)

// Remembered returns how many routes and budgets a transport remembers.
func Remembered(t *Transport) (routes, budgets int) {
	return len(t.routes.known), len(t.budgets.known)
}

// Ruling names what becomes of a request after an answer, as docs/reference/client.md does.
func Ruling(resp *http.Response, server profile.Server, key string, declared, doubt bool) (string, error) {
	a, err := readAnswer(resp, &server)
	a.echoes, a.declared = server.Echoes(resp, key), declared
	names := map[ruling]string{accept: "answer", again: "again", ask: "ask", wait: "wait", unknown: "unknown"}
	return names[rule(&a, key != "", doubt)], err
}

// GivesUpWhenConnected reports whether an attempt is given up when it gets its connection. While the process
// is suspended, no timer does that.
func GivesUpWhenConnected(tooLate bool) (gaveUp bool) {
	e := &evidence{tooLate: func() bool { return tooLate }, giveUp: func() { gaveUp = true }}
	e.connected()
	return gaveUp
}
