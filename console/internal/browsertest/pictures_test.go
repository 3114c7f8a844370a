package browsertest

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// This file paints the pictures of docs/reference/console.md, and tells when one of them shows what the console showed once.

var paint = flag.Bool("paint", false, "paint the pictures of the docs")

const images = "../../../docs/images"

// digest is short, and long enough for what nobody forges.
func digest(parts ...[]byte) string {
	sum := sha256.Sum256(bytes.Join(parts, nil))
	return fmt.Sprintf("%x", sum[:8])
}

// random are the parts of a page that are made of random numbers. They are the same as long as Go draws them in the same order.
var random = regexp.MustCompile(`[0-9a-f]{16,}`)

// looks are those of a screen that the docs have.
var looks = []string{"light-desk", "dark-desk", "light-phone"}

func picture(screen, look string) string { return "console-" + screen + "-" + look + ".png" }

// TestPictures compares the pages and the style, from which each picture was painted, with those of now, and the pictures with what was
// painted. With -paint it paints them.
func TestPictures(t *testing.T) {
	all, rest := screens(t)
	var style bytes.Buffer
	for _, file := range []string{"/style.css", "/icon.svg"} {
		w := httptest.NewRecorder()
		rest.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, file, nil))
		style.Write(w.Body.Bytes())
	}
	var b *browser
	if *paint {
		b = browse(t)
		old, err := filepath.Glob(images + "/console-*.png")
		require.NoError(t, err)
		for _, file := range old {
			require.NoError(t, os.Remove(file))
		}
	}
	shown := serveScreens(t, all, rest)
	var table strings.Builder
	table.WriteString("# From which page each picture of the console was painted, and its own digest.\n")
	for _, s := range all {
		if b != nil {
			run(b, chromedp.Navigate(shown(s)))
			b.each(func(look string) {
				if look != "dark-phone" {
					require.NoError(t, os.WriteFile(filepath.Join(images, picture(s.name, look)), b.paint(), 0o644))
				}
			})
		}
		for _, look := range looks {
			painted, err := os.ReadFile(filepath.Join(images, picture(s.name, look)))
			require.NoError(t, err)
			fmt.Fprintf(&table, "%s %s %s\n", picture(s.name, look), digest(random.ReplaceAll(s.page, nil), style.Bytes()), digest(painted))
		}
	}
	const list = images + "/console.txt"
	if *paint {
		require.NoError(t, os.WriteFile(list, []byte(table.String()), 0o644))
	}
	known, err := os.ReadFile(list)
	require.NoError(t, err)
	var stale []string
	for line := range strings.Lines(table.String()) {
		if !bytes.Contains(known, []byte(line)) {
			stale = append(stale, strings.Fields(line)[0])
		}
	}
	require.Empty(t, stale, "they show what the console showed once: go test -run TestPictures ./console/internal/browsertest -paint")
	files, err := filepath.Glob(images + "/console-*.png")
	require.NoError(t, err)
	require.Len(t, files, len(all)*len(looks), "there are pictures of no screen")
	page, err := os.ReadFile("../../../docs/reference/console.md")
	require.NoError(t, err)
	for _, file := range files {
		require.Contains(t, string(page), filepath.Base(file), "nobody sees it")
	}
}

// serveScreens serves each screen at an address like that which it was got from, and returns that of a screen.
func serveScreens(t *testing.T, all []screen, rest http.Handler) func(screen) string {
	t.Helper()
	mux := http.NewServeMux()
	for _, s := range all {
		path, _, _ := strings.Cut(s.path, "?")
		mux.Handle("/"+s.name+"/", http.StripPrefix("/"+s.name, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != path {
				rest.ServeHTTP(w, r)
				return
			}
			maps.Copy(w.Header(), s.header)
			w.Header().Del("Content-Length")
			_, _ = w.Write(s.page)
		})))
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return func(s screen) string { return server.URL + "/" + s.name + s.path }
}

// Each screen can be read by everybody.
func TestScreensOfTheDocsCanBeRead(t *testing.T) {
	all, rest := screens(t)
	shown := serveScreens(t, all, rest)
	b := browse(t)
	for _, s := range all {
		run(b, chromedp.Navigate(shown(s)))
		b.requireReadable(s.name)
	}
	require.Empty(t, b.complaints())
}
