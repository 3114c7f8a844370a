package browsertest

import (
	"bytes"
	"cmp"
	"context"
	"image"
	"image/color"
	"image/png"
	"log/slog"
	"maps"
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
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/console"
)

// patience is for how long a walk may take on a busy machine.
const patience = 2 * time.Minute

// A service has held keys, and a console in front of it.
type service struct {
	t       *testing.T
	guard   *idempotency.Guard
	address string // of the console
}

func serve(t *testing.T) *service {
	t.Helper()
	guard, err := idempotency.New(idempotency.NewMemoryStore(), scopeOf, idempotency.WithFindableScope(true), idempotency.WithReference(orderOf),
		idempotency.WithLogger(slog.New(slog.DiscardHandler)), idempotency.WithRecovery(idempotency.Hold))
	require.NoError(t, err)
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
	s := &service{t, guard, server.URL + "/console/"}
	s.post("POST /charges", "charge-1", breaks(idempotency.AtMostOnce()))
	for _, key := range []string{"payout-1", "payout-2", "payout-3"} {
		s.post("POST /payouts", key, breaks())
	}
	s.post("POST /orders", "order-1", created)
	return s
}

func created(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", "/orders/77")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write([]byte(`{"id": 77, "total": "19.90 EUR"}`))
}

// scopeOf and orderOf say whose a request is, and about which order, if it says so.
func scopeOf(r *http.Request) (string, error) {
	return cmp.Or(r.Header.Get("X-Tenant"), "shop"), nil
}

func orderOf(r *http.Request, _ []byte) string { return r.Header.Get("X-Order") }

func (s *service) post(route, key string, h http.HandlerFunc) {
	s.t.Helper()
	s.order("", "", route, key, h)
}

// order is post for a tenant, about an order.
func (s *service) order(tenant, number, route, key string, h http.HandlerFunc) {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, "/", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("X-Tenant", tenant)
	r.Header.Set("X-Order", number)
	s.guard.With(idempotency.WithRoute(route)).Handler(h).ServeHTTP(httptest.NewRecorder(), r)
}

// breaks is a handler that books, and then loses its provider.
func breaks(opts ...idempotency.TaskOption) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = idempotency.Step(r.Context(), "ledger", func(context.Context) (string, error) { return "booked", nil })
		_, _ = idempotency.Step(r.Context(), "transfer", func(context.Context) (string, error) { return "", context.DeadlineExceeded }, opts...)
		w.WriteHeader(http.StatusInternalServerError)
	}
}

func (s *service) look(key string) idempotency.RecordInfo {
	s.t.Helper()
	info, err := s.guard.Lookup(s.t.Context(), idempotency.Key{Scope: "shop", Value: key})
	require.NoError(s.t, err)
	return info
}

// A browser runs no scripts of pages.
type browser struct {
	t    *testing.T
	ctx  context.Context
	axe  string // the source of axe-core, if it is installed
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
	if cache, err := os.UserCacheDir(); err == nil {
		axe, _ := os.ReadFile(filepath.Join(cache, "idempotency-tools/axe-core/node_modules/axe-core/axe.min.js"))
		b.axe = string(axe)
	}
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

// An engineer opens the console, reads, decides by mouse, is refused, decides again, and sees what is left.
func TestWalk(t *testing.T) {
	s := serve(t)
	b := browse(t)
	run(b, chromedp.Navigate(s.address))
	first := run(b, chromedp.Text(".sum"))
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
	run(b, chromedp.Navigate(s.address))
	left := run(b, chromedp.Text(".sum"))
	require.Contains(t, first, "4 requests wait for a decision")
	require.Contains(t, refused, "may have happened")
	require.Contains(t, done, "The next request with this key runs as attempt 2.")
	require.Contains(t, done, "the bank has nothing", "the reason was still in the form")
	require.Contains(t, left, "3 requests wait for a decision")
	require.Equal(t, "released", s.look("charge-1").State.String())

	// One of three payouts is settled meanwhile and held again, so that all are looked at again, and decided together.
	run(b, chromedp.Click("article footer a"))
	run(b, chromedp.WaitVisible("#count"))
	b.requireReadable("several")
	settled := s.look("payout-2")
	require.NoError(t, s.guard.Resolve(t.Context(), idempotency.Key{Record: settled.Record}, settled.Seen(), idempotency.Resolution{Outcome: idempotency.Resume}))
	s.post("POST /payouts", "payout-2", breaks())
	run(b, chromedp.Click("#reason"))
	run(b, chromedp.KeyEvent("the bank was down, and has none of them"))
	run(b, chromedp.Click("#count"))
	run(b, chromedp.KeyEvent("3"))
	run(b, chromedp.Click(`button[value="resume"]`))
	changed := run(b, chromedp.Text(`[role="alert"]`))
	b.requireReadable("several-changed")
	require.Equal(t, "held", s.look("payout-3").State.String())
	run(b, chromedp.Click(`button[value="resume"]`))
	run(b, chromedp.WaitVisible(`[role="status"]`))
	together := run(b, chromedp.Text("main"))
	b.requireReadable("decided")
	require.Contains(t, changed, "Changed meanwhile, and nothing was decided.")
	require.Contains(t, together, "3 keys were decided.")
	require.Equal(t, "released", s.look("payout-2").State.String())
	require.Equal(t, "released", s.look("payout-3").State.String())
	for _, complaint := range b.complaints() {
		require.Regexp(t, "422|409", complaint, "only what was refused is an error")
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

// each calls f for the page in the light and in the dark, on a desk and on a phone.
func (b *browser) each(f func(look string)) {
	b.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		for size, width := range map[string]int64{"phone": 360, "desk": 1280} {
			call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
			}})
			run(b, chromedp.EmulateViewport(width, 480)) // as high as the smallest picture
			f(scheme + "-" + size)
		}
	}
	run(b, chromedp.EmulateViewport(1280, 900))
}

// requireReadable looks at the page in each way.
func (b *browser) requireReadable(page string) {
	b.t.Helper()
	b.each(func(look string) {
		require.Empty(b.t, run(b, chromedp.Evaluate[[]string](unreadable)), "%s, %s", page, look)
		b.requireAccessible(page + ", " + look)
	})
}

// paint returns a picture of the page, as small as a PNG gets.
func (b *browser) paint() []byte {
	b.t.Helper()
	shot, err := png.Decode(bytes.NewReader(run(b, chromedp.FullScreenshot(100))))
	require.NoError(b.t, err)
	var small bytes.Buffer
	require.NoError(b.t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, paletted(shot)))
	return small.Bytes()
}

// paletted returns a picture with the colours that most of it has: those of letters' edges are many and rare.
func paletted(shot image.Image) *image.Paletted {
	seen, all := map[color.Color]int{}, shot.Bounds()
	for y := all.Min.Y; y < all.Max.Y; y++ {
		for x := all.Min.X; x < all.Max.X; x++ {
			seen[shot.At(x, y)]++
		}
	}
	number := func(c color.Color) uint32 { r, g, b, _ := c.RGBA(); return r>>8<<16 | g>>8<<8 | b>>8 }
	colours := slices.SortedFunc(maps.Keys(seen), func(a, b color.Color) int {
		return cmp.Or(seen[b]-seen[a], cmp.Compare(number(a), number(b))) // the same picture from the same page
	})
	few := image.NewPaletted(all, colours[:min(len(colours), 64)])
	nearest := map[color.Color]uint8{}
	for c := range seen {
		nearest[c] = uint8(few.Palette.Index(c))
	}
	for y := all.Min.Y; y < all.Max.Y; y++ {
		for x := all.Min.X; x < all.Max.X; x++ {
			few.SetColorIndex(x, y, nearest[shot.At(x, y)])
		}
	}
	return few
}

// requireAccessible lets axe-core look at the page, if scripts/axe.sh has installed it. Only for that, scripts run.
func (b *browser) requireAccessible(page string) {
	b.t.Helper()
	if b.axe == "" {
		return
	}
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: false})
	run(b, chromedp.Evaluate[any](b.axe+"; null"))
	found := run(b, chromedp.Evaluate[[]string](`axe.run().then(r => r.violations.map(v => v.id + ": " + v.nodes.map(n => n.html).join(" ")))`, chromedp.EvalAwaitPromise))
	require.Empty(b.t, found, page)
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
}

// Screens that no picture shows can be read by everybody, too.
func TestScreensCanBeRead(t *testing.T) {
	s := serve(t)
	b := browse(t)
	see := func(page, path string) {
		run(b, chromedp.Navigate(s.address+path))
		b.requireReadable(page)
	}
	see("erase-first", "erase")
	s.post("POST /a/route/with/a/name/that/does/not/end/before/column/sixty4", "long", breaks())
	see("long-now", "")
	see("long-key", "records/"+s.look("long").Record)
	require.Empty(t, b.complaints())
}

// What axe-core finds is seen.
func TestAxeFindsWhatIsWrong(t *testing.T) {
	b := browse(t)
	if b.axe == "" {
		t.Skip("axe-core is not installed: scripts/axe.sh does it")
	}
	run(b, chromedp.Navigate("data:text/html,<title>a</title><img src=x>"))
	run(b, chromedp.Evaluate[any](b.axe+"; null"))
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: false})
	found := run(b, chromedp.Evaluate[[]string](`axe.run().then(r => r.violations.map(v => v.id))`, chromedp.EvalAwaitPromise))
	require.Contains(t, found, "image-alt")
}
