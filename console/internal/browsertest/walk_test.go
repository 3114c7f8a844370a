package browsertest

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/console"
)

// patience is for how long a walk may take on a busy machine.
const patience = 2 * time.Minute

// serve starts a service with held keys, and a console in front of it. It returns the address of the console.
func serve(t *testing.T) (*idempotency.Guard, string) {
	t.Helper()
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope,
		idempotency.WithLogger(slog.New(slog.DiscardHandler)), idempotency.WithRecovery(idempotency.Hold))
	require.NoError(t, err)
	post := func(route, key string, h http.HandlerFunc) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", key)
		guard.With(idempotency.WithRoute(route)).Handler(h).ServeHTTP(httptest.NewRecorder(), r)
	}
	broken := func(w http.ResponseWriter, r *http.Request) {
		_, _ = idempotency.Step(r.Context(), "charge the card", func(context.Context) (string, error) { return "", context.DeadlineExceeded }, idempotency.AtMostOnce())
		w.WriteHeader(http.StatusInternalServerError)
	}
	post("POST /charges", "charge-1", broken)
	post("POST /a/route/with/a/name/that/does/not/end/before/column/sixty4", "charge-2", broken)
	post("POST /orders", "order-1", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	screens, err := console.New(guard, console.Options{Authorize: func(r *http.Request) (console.Actor, error) {
		actor, err := console.OnThisMachine(r)
		actor.Name, actor.Decide, actor.ReadAnswers = "ada", true, true
		return actor, err
	}})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/console/", http.StripPrefix("/console", screens))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return guard, server.URL + "/console/"
}

// A browser runs no scripts of pages.
type browser struct {
	t    *testing.T
	ctx  context.Context
	mu   sync.Mutex
	said []string
}

// complaints are what the browser has found wrong with pages.
func (b *browser) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.said)
}

func browse(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "google-chrome", "chromium-browser"} { // that of Ubuntu may be a stub
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		t.Skip("Chromium is not installed")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx); cancel() })
	b := &browser{t: t, ctx: ctx}
	require.NoError(t, chromedp.Listen(ctx, func(ev any) {
		if e, ok := ev.(*log.EventEntryAdded); ok {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.said = append(b.said, e.Entry.Text+" "+e.Entry.URL)
		}
	}))
	call(b, log.Enable, cdp.Empty{})
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	return b
}

func call[P any](b *browser, cmd cdp.Command[P, cdp.Empty], params P) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, cmd, params)
	require.NoError(b.t, err)
}

func run[T any](b *browser, a chromedp.Action[T]) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, a)
	require.NoError(b.t, err)
	return value
}

// An engineer opens the console, reads, decides by keyboard and mouse, and sees what is left.
func TestWalk(t *testing.T) {
	t.Parallel()
	guard, address := serve(t)
	b := browse(t)
	run(b, chromedp.Navigate(address))
	first := run(b, chromedp.Text(".sum"))
	run(b, chromedp.KeyEvent(kb.Tab))
	skip := run(b, chromedp.Text(":focus"))
	run(b, chromedp.Click("article:first-of-type tbody a"))
	run(b, chromedp.WaitVisible("#reason"))
	run(b, chromedp.Click("#reason"))
	run(b, chromedp.KeyEvent("the bank has nothing"))
	run(b, chromedp.Click(`button[value="resume"]`))
	refused := run(b, chromedp.Text(`[role="alert"]`))
	run(b, chromedp.Click(`input[name="not_done"]`))
	run(b, chromedp.Click(`button[value="resume"]`))
	run(b, chromedp.WaitVisible(`[role="status"]`))
	done := run(b, chromedp.Text("main"))
	run(b, chromedp.Navigate(address))
	left := run(b, chromedp.Text(".sum"))
	require.Contains(t, first, "2 requests wait for a decision")
	require.Equal(t, "To the content", skip)
	require.Contains(t, refused, "may have happened")
	require.Contains(t, done, "The next request with this key runs as attempt 2.")
	require.Contains(t, done, "the bank has nothing", "the reason was still in the form")
	require.Contains(t, left, "1 request has waited for a decision")
	info, err := guard.Lookup(t.Context(), idempotency.Key{Scope: idempotency.Shared, Value: "charge-1"})
	require.NoError(t, err)
	require.Equal(t, "released", info.State.String())
	for _, complaint := range b.complaints() {
		require.Contains(t, complaint, "422", "only the refused decision is an error")
	}
}

// unreadable returns the texts of a page with less contrast than 4.5, and whether the page is wider than the window.
const unreadable = `(() => {
	const parse = c => { const m = c.match(/[\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m };
	const light = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
	const back = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c } return [255, 255, 255] };
	const bad = [];
	for (const e of document.querySelectorAll("body *")) {
		if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) || !e.checkVisibility()) continue;
		const [a, b] = [light(parse(getComputedStyle(e).color)), light(back(e))].sort((x, y) => y - x);
		if ((a + .05) / (b + .05) < 4.5) bad.push(e.tagName + "." + e.className + ": " + e.textContent.trim().slice(0, 40));
	}
	if (document.documentElement.scrollWidth > innerWidth) bad.push("wider than the window: " + document.documentElement.scrollWidth);
	for (const e of document.querySelectorAll("input:not([type=hidden]), textarea"))
		if (!e.labels.length) bad.push("without a label: " + e.name);
	if (document.querySelectorAll("h1").length !== 1 || document.querySelectorAll("main").length !== 1) bad.push("not one h1 and one main");
	return bad;
})()`

// Each screen can be read in the light and in the dark, on a desk and on a phone. With SHOTS, a folder, it is
// painted there.
func TestScreensCanBeRead(t *testing.T) {
	t.Parallel()
	guard, address := serve(t)
	b := browse(t)
	name := func(key string) string {
		info, err := guard.Lookup(t.Context(), idempotency.Key{Scope: idempotency.Shared, Value: key})
		require.NoError(t, err)
		return "records/" + info.Record
	}
	for page, path := range map[string]string{
		"now": "", "find": "find", "store": "store", "held": name("charge-1"), "long": name("charge-2"), "answer": name("order-1") + "?answer=1", "none": "find?record=x",
	} {
		for _, scheme := range []string{"light", "dark"} {
			for size, width := range map[string]int64{"desk": 1280, "phone": 360} {
				call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
				run(b, chromedp.EmulateViewport(width, 900))
				run(b, chromedp.Navigate(address+path))
				require.Empty(t, run(b, chromedp.Evaluate[[]string](unreadable)), "%s, %s, %s", page, scheme, size)
				if dir := os.Getenv("SHOTS"); dir != "" {
					shot := run(b, chromedp.FullScreenshot(100))
					require.NoError(t, os.WriteFile(filepath.Join(dir, page+"-"+scheme+"-"+size+".png"), shot, 0o644))
				}
			}
		}
	}
	for _, complaint := range b.complaints() {
		require.Contains(t, complaint, "404", "only the record that is not there is an error")
	}
}
