//go:build unix || windows

package journal_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"example.com/idempotency/client"
	"example.com/idempotency/client/journal"
	"example.com/idempotency/client/profile"
)

// An intent is noted with its key before it is sent, and found again by the process that is
// started after this one was killed.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	defer server.Close()
	dir, err := os.MkdirTemp("", "journal")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	transport, err := client.New(nil, client.WithServer(profile.Guard(), "127.0.0.1"))
	if err != nil {
		log.Fatal(err)
	}
	c := &http.Client{Transport: transport, CheckRedirect: client.CheckRedirect}
	ctx := context.Background()

	j, err := journal.Open(filepath.Join(dir, "intents"))
	if err != nil {
		log.Fatal(err)
	}
	defer j.Close()
	keep := func(_ context.Context, e journal.Entry, answer *http.Response) ([]byte, error) {
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			return nil, err // the intent stays pending
		}
		fmt.Println(e.Name, "->", string(body)) // keep the answer where the program finds it
		return body, nil
	}

	// At the start: what the process before this one has not finished.
	if err := j.Resume(ctx, c, keep); err != nil {
		log.Fatal(err)
	}
	// And then what is new. The second time, it is known.
	charge := journal.Request{Method: http.MethodPost, URL: server.URL, ContentType: "application/json", Body: []byte(`{"amount":100}`)}
	for range 2 {
		e, err := j.Do(ctx, c, "charge order-17", charge, keep)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("known:", string(e.Result))
	}
	// Output:
	// charge order-17 -> {"amount":100}
	// known: {"amount":100}
	// known: {"amount":100}
}
