package browsertest

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
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

// browse starts a browser that runs no scripts of pages. complaints are what it has found wrong with them.
func browse(t *testing.T) (ctx context.Context, complaints func() []string) {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed")
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
	var mu sync.Mutex
	var said []string
	require.NoError(t, chromedp.Listen(ctx, func(ev any) {
		if e, ok := ev.(*log.EventEntryAdded); ok {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, e.Entry.Text+" "+e.Entry.URL)
		}
	}))
	call(t, ctx, log.Enable, cdp.Empty{})
	call(t, ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	return ctx, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string{}, said...)
	}
}

func call[P any](t *testing.T, ctx context.Context, cmd cdp.Command[P, cdp.Empty], params P) {
	t.Helper()
	_, err := chromedp.Call(ctx, cmd, params)
	require.NoError(t, err)
}

func run[T any](t *testing.T, ctx context.Context, a chromedp.Action[T]) T {
	t.Helper()
	value, err := chromedp.Run(ctx, a)
	require.NoError(t, err)
	return value
}

// An engineer opens the console, reads, decides by keyboard and mouse, and sees what is left.
func TestWalk(t *testing.T) {
	t.Parallel()
	guard, address := serve(t)
	ctx, complaints := browse(t)
	run(t, ctx, chromedp.Navigate(address))
	first := run(t, ctx, chromedp.Text(".sum"))
	run(t, ctx, chromedp.KeyEvent(kb.Tab))
	skip := run(t, ctx, chromedp.Text(":focus"))
	run(t, ctx, chromedp.Click("article:first-of-type tbody a"))
	run(t, ctx, chromedp.WaitVisible("#reason"))
	run(t, ctx, chromedp.Click("#reason"))
	run(t, ctx, chromedp.KeyEvent("the bank has nothing"))
	run(t, ctx, chromedp.Click(`button[value="resume"]`))
	refused := run(t, ctx, chromedp.Text(`[role="alert"]`))
	run(t, ctx, chromedp.Click(`input[name="not_done"]`))
	run(t, ctx, chromedp.Click(`button[value="resume"]`))
	run(t, ctx, chromedp.WaitVisible(`[role="status"]`))
	done := run(t, ctx, chromedp.Text("main"))
	run(t, ctx, chromedp.Navigate(address))
	left := run(t, ctx, chromedp.Text(".sum"))
	require.Contains(t, first, "2 requests wait for a decision")
	require.Equal(t, "To the content", skip)
	require.Contains(t, refused, "may have happened")
	require.Contains(t, done, "The next request with this key runs as attempt 2.")
	require.Contains(t, done, "the bank has nothing", "the reason was still in the form")
	require.Contains(t, left, "1 request has waited for a decision")
	info, err := guard.Lookup(t.Context(), idempotency.Key{Scope: idempotency.Shared, Value: "charge-1"})
	require.NoError(t, err)
	require.Equal(t, "released", info.State.String())
	for _, complaint := range complaints() {
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
	ctx, complaints := browse(t)
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
				call(t, ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
				run(t, ctx, chromedp.EmulateViewport(width, 900))
				run(t, ctx, chromedp.Navigate(address+path))
				require.Empty(t, run(t, ctx, chromedp.Evaluate[[]string](unreadable)), "%s, %s, %s", page, scheme, size)
				if dir := os.Getenv("SHOTS"); dir != "" {
					shot := run(t, ctx, chromedp.FullScreenshot(100))
					require.NoError(t, os.WriteFile(filepath.Join(dir, page+"-"+scheme+"-"+size+".png"), shot, 0o644))
				}
			}
		}
	}
	for _, complaint := range complaints() {
		require.Contains(t, complaint, "404", "only the record that is not there is an error")
	}
}
