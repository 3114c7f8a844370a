package browsertest

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapter"
	"example.com/idempotency/console"
	"example.com/idempotency/event"
)

// This file makes the pages of the pictures in docs/reference/console.md. Time and randomness are fake, so each page is the same
// whenever it is made, and it needs no browser.

// A screen is a page, and the address that it was got from.
type screen struct {
	name, path string
	header     http.Header
	page       []byte
}

// A gallery is a service in a night in which somebody is awake.
type gallery struct {
	*service
	console http.Handler
	says    idempotency.Resolution // the resolver
	screens []screen
}

// night is when the first record is made.
var night = time.Date(2026, 11, 26, 21, 4, 0, 0, time.UTC)

// screens are all of them, and what serves the rest of the console.
func screens(t *testing.T) (screens []screen, rest http.Handler) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, 77)
	synctest.Test(t, func(t *testing.T) {
		g := newGallery(t)
		g.fill()
		g.show()
		require.NoError(t, g.guard.Shutdown(t.Context()))
		screens, rest = g.screens, g.console
	})
	return screens, rest
}

func newGallery(t *testing.T) *gallery {
	t.Helper()
	later(time.Until(night))
	g := &gallery{service: &service{t: t}}
	traced := adapter.WithTraceContext(func(context.Context) (c event.TraceContext) {
		c.TraceID, c.SpanID = [16]byte{0x4b, 0xf9, 0x2f, 0x35, 15: byte(time.Now().Minute())}, [8]byte{7: byte(time.Now().Minute())}
		return c
	})
	sealer, err := idempotency.NewSealer(make([]byte, 32))
	require.NoError(t, err)
	g.guard, err = idempotency.New(idempotency.NewMemoryStore(), scopeOf, idempotency.WithFindableScope(true), idempotency.WithReference(orderOf),
		idempotency.WithLogger(slog.New(slog.DiscardHandler)), idempotency.WithRecovery(idempotency.Hold), idempotency.WithSealer(sealer), idempotency.WithKeptKeys(true),
		idempotency.WithTombstones(30*24*time.Hour), traced)
	require.NoError(t, err)
	g.guard.With(idempotency.WithRoute("POST /charges"), idempotency.WithResolver(func(context.Context, idempotency.RecordInfo) (idempotency.Resolution, error) {
		return g.says, nil
	}))
	g.console, err = console.New(g.guard, console.Options{
		Authorize: func(*http.Request) (console.Actor, error) {
			return console.Actor{Name: "ada", Decide: true, ReadAnswers: true}, nil
		},
		TraceURL: func(c event.TraceContext) string { return fmt.Sprintf("https://traces.example/%x", c.TraceID) },
	})
	require.NoError(t, err)
	return g
}

// later lets time go by.
func later(d time.Duration) {
	time.Sleep(d) // of the bubble
}

// fill makes the records of the night.
func (g *gallery) fill() {
	g.post("POST /orders", "order-1", created)
	for _, key := range []string{"a", "b"} {
		g.order("alice", "order 4711", "POST /orders", key, created)
	}
	later(6 * time.Hour)
	g.order("alice", "order 4711", "POST /payouts", "c", breaks())
	later(8 * time.Minute)
	g.post("POST /charges", "charge-1", breaks(idempotency.AtMostOnce()))
	later(21 * time.Minute)
	for _, key := range []string{"payout-1", "payout-2", "payout-3"} {
		g.post("POST /payouts", key, breaks())
		later(time.Second)
	}
	later(3 * time.Minute)
}

// send asks the console, and keeps the page.
func (g *gallery) send(name, method, path string, form url.Values) string {
	g.t.Helper()
	r := httptest.NewRequestWithContext(g.t.Context(), method, path, strings.NewReader(form.Encode()))
	r.Header.Set("Accept", "text/html")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	g.console.ServeHTTP(w, r)
	require.Contains(g.t, w.Header().Get("Content-Type"), "text/html", name)
	page := versions.ReplaceAll(w.Body.Bytes(), []byte("$1<dt><code>example.com/idempotency</code></dt><dd>(devel)</dd>\n<dt><code>go</code></dt><dd>go1.26</dd>\n$2"))
	if name == "found" { // the memory store has them in the order of a hash, which is another one in each process
		page = rows.ReplaceAllFunc(page, func(all []byte) []byte {
			each := bytes.SplitAfter(all, []byte("</tr>\n"))
			slices.SortFunc(each, bytes.Compare)
			return bytes.Join(each, nil)
		})
	}
	g.screens = append(g.screens, screen{name, path, w.Header(), page})
	return string(page)
}

// rows are the records that were found.
var rows = regexp.MustCompile(`(?s)<tr role="row">\n<th scope="row".*</tr>\n`)

// versions is the part of a page that depends on who builds it.
var versions = regexp.MustCompile(`(?s)(<h2 id="versions">[^<]*</h2>\s*<dl[^>]*>).*?(</dl>)`)

func (g *gallery) get(name, path string) string { return g.send(name, http.MethodGet, path, nil) }

func (g *gallery) decide(name, key, decision string, more url.Values) string {
	i := g.look(key)
	form := url.Values{"seen": {i.Seen().String()}, "decision": {decision}, "reason": {"the bank has nothing"}}
	maps.Copy(form, more)
	return g.send(name, http.MethodPost, "/records/"+i.Record, form)
}

// show makes each screen, and says what must stand there.
func (g *gallery) show() {
	t, must := g.t, func(page, text string) { g.t.Helper(); require.Contains(g.t, page, text) }
	first := g.get("now", "/")
	must(first, "5 requests wait for a decision")
	must(g.get("answer", "/records/"+g.look("order-1").Record+"?answer=1"), "19.90 EUR")
	g.get("find", "/find")
	must(g.send("found", http.MethodPost, "/find", url.Values{"reference": {"order 4711"}}), "3 records have this reference.")
	must(g.send("nothing", http.MethodPost, "/find", url.Values{"reference": {"order 4712"}}), "its record has ended")
	g.get("store", "/store")
	must(g.get("problem", "/records/"+strings.Repeat("A", 43)), "Not Found")

	charge := g.look("charge-1")
	g.get("key", "/records/"+charge.Record)
	must(g.decide("refused", "charge-1", "resume", nil), "may have happened")
	g.says = idempotency.Resolution{Outcome: idempotency.NotExecuted, Decision: idempotency.Decision{Reason: "the bank has no charge for this order"}}
	must(g.decide("word", "charge-1", "ask", nil), "The resolver says")
	must(g.decide("done", "charge-1", "resume", url.Values{"not_done": {"transfer"}}), "The next request with this key runs as attempt 2.")
	later(4 * time.Minute)
	g.post("POST /charges", "charge-1", func(w http.ResponseWriter, r *http.Request) {
		_, _ = idempotency.Step(r.Context(), "transfer", func(context.Context) (string, error) { return "moved", nil }, idempotency.AtMostOnce())
		created(w, r)
	})
	later(2 * time.Minute)
	must(g.get("timeline", "/records/"+charge.Record), "Decided: resume")

	link := regexp.MustCompile(`href="(?:\./)?(group\?[^"]*)"`).FindStringSubmatch(first)
	require.NotNil(t, link)
	group := "/" + html.UnescapeString(link[1])
	page := g.get("several", group)
	all := func(page, count string) url.Values {
		form := url.Values{"count": {count}, "decision": {"resume"}, "reason": {"the bank was down, and has none of them"}}
		for _, hidden := range regexp.MustCompile(`name="(route|minute|seen)" value="([^"]*)"`).FindAllStringSubmatch(page, -1) {
			form.Set(hidden[1], html.UnescapeString(hidden[2]))
		}
		return form
	}
	second := g.look("payout-2")
	colleague := idempotency.Resolution{Outcome: idempotency.Resume, Decision: idempotency.Decision{Actor: "bob", Reason: "ticket 4711"}}
	require.NoError(t, g.guard.Resolve(t.Context(), idempotency.Key{Record: second.Record}, second.Seen(), colleague))
	later(time.Minute)
	g.post("POST /payouts", "payout-2", breaks())
	later(time.Minute)
	must(g.send("changed", http.MethodPost, "/records/"+second.Record, url.Values{
		"seen": {second.Seen().String()}, "decision": {"resume"}, "reason": {"the bank has nothing"},
	}), "Changed meanwhile")
	page = g.send("several-changed", http.MethodPost, "/group", all(page, "3"))
	must(page, "Changed meanwhile, and nothing was decided.")
	must(g.send("decided", http.MethodPost, "/group", all(page, "2")), "2 keys were decided.")

	later(11 * time.Minute)
	gone := g.look("payout-2")
	require.NoError(t, g.guard.Forget(t.Context(), idempotency.Key{Record: gone.Record}, gone.Seen(), idempotency.Decision{Actor: "bob", Reason: "paid by hand, ticket 4711"}))
	later(7 * time.Minute)
	must(g.get("forgotten", "/records/"+gone.Record), "ticket 4711")
	_, err := g.guard.Lookup(t.Context(), idempotency.Key{Record: gone.Record})
	require.ErrorIs(t, err, idempotency.ErrNotFound)

	page = g.send("erase", http.MethodPost, "/erase", url.Values{"tenant": {"alice"}})
	must(page, "2 completed keys could run again")
	seen := regexp.MustCompile(`name="seen" value="([^"]*)"`).FindStringSubmatch(page)
	require.NotNil(t, seen)
	must(g.send("erased", http.MethodPost, "/erase", url.Values{
		"tenant": {"alice"}, "decision": {"erase"}, "seen": {html.UnescapeString(seen[1])}, "reason": {"contract ended, ticket 4712"},
	}), "Erased 2 completed")
}
