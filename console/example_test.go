package console_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"example.com/idempotency"
	"example.com/idempotency/console"
)

type userKey struct{}

// The middleware that signs people in has put their name into the context. Those on call decide.
func ExampleNew() {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope)
	if err != nil {
		log.Fatal(err)
	}
	onCall := map[string]bool{"ada": true}
	screens, err := console.New(guard, console.Options{
		Authorize: func(r *http.Request) (console.Actor, error) {
			user, ok := r.Context().Value(userKey{}).(string)
			if !ok {
				return console.Actor{}, idempotency.ErrUnauthenticated
			}
			return console.Actor{Name: user, Decide: onCall[user]}, nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/console/", http.StripPrefix("/console", screens))

	r := httptest.NewRequest(http.MethodGet, "/console/", http.NoBody)
	for _, ctx := range []context.Context{r.Context(), context.WithValue(r.Context(), userKey{}, "ada")} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r.WithContext(ctx))
		fmt.Println(w.Code)
	}
	// Output:
	// 401
	// 200
}

// On a machine of one's own, whoever sits there decides.
func ExampleOnThisMachine() {
	authorize := func(r *http.Request) (console.Actor, error) {
		actor, err := console.OnThisMachine(r)
		actor.Name, actor.Decide = "me", true
		return actor, err
	}
	r := httptest.NewRequest(http.MethodGet, "http://localhost:8080/console/", http.NoBody)
	r.RemoteAddr = "127.0.0.1:50000"
	actor, err := authorize(r)
	fmt.Println(actor.Name, err)
	r.RemoteAddr = "192.0.2.1:50000"
	_, err = authorize(r)
	fmt.Println(err)
	// Output:
	// me <nil>
	// console: without Options.Authorize, only a browser on the same machine may look
}
