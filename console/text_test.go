package console

import (
	"context"
	"errors"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapter"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
)

// This file lets clients, handlers and operators write what harms whoever reads it.

const (
	script = `"><script>alert(1)</script>&{{.}}'`
	// hidden turns the direction of writing, speaks to a terminal, and has letters that nobody sees.
	hidden = "to\u202eecila\u2066 \x1b[31m\u200b\u00ad\u3164\u2028\x00\xff"
)

// written visits each screen of a console in front of a service with a route, in which everything else is called text, and returns what they
// show, and the record.
func written(t *testing.T, route, text string) (shown []string, i idempotency.RecordInfo) {
	t.Helper()
	key := strings.ReplaceAll(text, "{{.}}", "")
	s := serve(t, idempotency.WithSealer(guardtest.NewSealer(t, 1)), idempotency.WithKeptKeys(true), hold, findable, adapter.WithTraceContext(func(context.Context) event.TraceContext {
		return event.TraceContext{TraceID: [16]byte{1}, SpanID: [8]byte{2}}
	}))
	for _, k := range []string{key, key + "2"} {
		_, _, err := idempotency.Do(t.Context(), s.guard.With(idempotency.WithRoute(route)), idempotency.Key{Scope: text, Value: k},
			func(ctx context.Context) (string, error) {
				_, _ = idempotency.Step(ctx, text, func(context.Context) (string, error) { return "", nil })
				_, _ = idempotency.Step(ctx, text+"2", func(context.Context) (string, error) { return "", errors.New("hangs") }, idempotency.AtMostOnce())
				return "", errors.New("unknown")
			}, idempotency.ForReference(text))
		require.Error(t, err)
	}
	i, err := s.guard.Lookup(t.Context(), idempotency.Key{Scope: text, Value: key})
	require.NoError(t, err)
	b := s.browser(Options{Authorize: as(Actor{Name: text, Decide: true, ReadAnswers: true}), TraceURL: func(event.TraceContext) string { return "javascript:alert(1)" }})
	group := url.Values{"group": {i.Record + " " + i.Seen().String()}, "decision": {"final"}, "reason": {text}, "count": {text}, "body": {text}}
	query := url.QueryEscape(text)
	for _, got := range []*httptest.ResponseRecorder{
		b.get("/"), b.get("/?route=" + query), b.get("/?cursor=" + query), b.get("/records/" + i.Record), b.get("/find?record=" + query), b.get("/find?trace=" + query),
		b.decide(i, "resume", "reason", text), b.decide(i, text, "reason", text), b.decide(i, "final", "status", text, "body", text, "location", text, "content_type", text),
		b.decide(i, "forget", "reason", text, "seen", text), b.get("/group?record=" + query), b.get("/group?record=" + i.Record), b.do(http.MethodPost, "/group", group),
		b.find("q", text), b.find("q", text+"3"), b.find("reference", text), b.find("tenant", text), b.find("trace", text), b.find("tenant", text, "cursor", text), b.find("scope", text, "key", "none"),
		b.get("/find?trace=01" + strings.Repeat("0", 30)), b.erase("tenant", text), b.erase("tenant", text, "seen", text, "decision", "erase", "reason", text),
		b.erase("tenant", text, "decision", text), b.erase("tenant", text, "also_held", "1", "seen", b.countOf(text, "also_held", "1").Seen, "decision", "erase", "reason", text),
	} {
		shown = append(shown, got.Body.String())
	}
	return shown, i
}

// What comes from clients and operators is text, wherever it is shown.
func TestMarkupIsText(t *testing.T) {
	shown, i := written(t, strings.ReplaceAll(script, "{{.}}", ""), script)
	for _, page := range shown {
		require.NotContains(t, page, "<script>")
		require.NotContains(t, page, "javascript:")
	}
	all := strings.Join(shown, "")
	require.Contains(t, all, "&lt;script&gt;alert(1)")
	require.Contains(t, all, i.Trace.String(), "a trace without an address is text")
}

// fields are what a browser sends back, and shows in the fields of a form at most.
var fields = regexp.MustCompile(` value="[^"]*"|<textarea[^>]*>[^<]*</textarea>`)

// What does not show, or makes other text show in another way, is written out wherever it stands.
func TestHiddenCharactersAreShown(t *testing.T) {
	shown, _ := written(t, "POST /a", hidden)
	n := 0
	for _, page := range shown {
		page = fields.ReplaceAllString(page, "")
		n += strings.Count(page, `to\u202eecila\u2066 \x1b[31m\u200b\u00ad\u3164\u2028\x00\xff`)
		for _, r := range page {
			require.True(t, r == '\n' || r == '\t' || unicode.IsPrint(r) && r != '\u3164' && r != unicode.ReplacementChar, "%U in %s", r, page)
		}
	}
	require.Greater(t, n, 30)
}

// What a form has to send back is not written out: a step is ticked, and a tenant is erased, by their names.
func TestHiddenCharactersAreSentBack(t *testing.T) {
	s := serve(t, findable, hold)
	name := strings.ToValidUTF8(hidden, "") // a browser sends no other
	name = strings.ReplaceAll(name, "\x00", "")
	s.order(s.guard, name, "a", "", inDoubt(name))
	s.order(s.guard, name, "b", "", created)
	i, err := s.guard.Lookup(t.Context(), idempotency.Key{Scope: name, Value: "a"})
	require.NoError(t, err)
	b := s.as(ada)
	value := func(page, field string) string {
		_, rest, found := strings.Cut(page, `name="`+field+`" value="`)
		require.True(t, found, field)
		text, _, _ := strings.Cut(rest, `"`)
		return html.UnescapeString(text)
	}
	step := value(b.get("/records/"+i.Record).Body.String(), "not_done")
	require.Equal(t, http.StatusOK, b.decide(i, "resume", "not_done", step).Code)
	page := b.erase("tenant", value(b.find("tenant", name).Body.String(), "tenant")).Body.String()
	require.Contains(t, page, "1 completed key could run again")
	require.Equal(t, http.StatusOK, b.erase("tenant", value(page, "tenant"), "seen", value(page, "seen"), "decision", "erase", "reason", "x").Code)
	names, _ := b.found("tenant", name)
	require.Empty(t, names)
}

// Text in several lines stays that, and the rest of it is written out.
func TestLines(t *testing.T) {
	for text, want := range map[string]string{
		"a\r\nb\tc\n": "a\nb\tc\n", `C:\temp`: `C:\temp`, "a\rb\n\x1b\xff": "a\\rb\n\\x1b\\xff", "": "", "שלום": "שלום", "a\u200fb": `a\u200fb`,
	} {
		require.Equal(t, want, lines(text), "%q", text)
	}
}
