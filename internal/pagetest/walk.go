package pagetest

import (
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

var links = regexp.MustCompile(`(?:href|src|action)="([^"#]+)"`)

// Walk follows all links of HTML pages from the first one, none of which may be broken or lead to another folder. It returns how many
// addresses there are.
func Walk(t testing.TB, h http.Handler, first string) int {
	t.Helper()
	visited, left := map[string]bool{}, []string{first}
	for len(left) > 0 {
		here := left[0]
		if left = left[1:]; visited[here] {
			continue
		}
		visited[here] = true
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, here, nil)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("%s has the status %d", here, w.Code)
		}
		for _, link := range links.FindAllStringSubmatch(w.Body.String(), -1) {
			to, err := r.URL.Parse(html.UnescapeString(link[1]))
			if err != nil || !strings.HasPrefix(to.Path, first) {
				t.Fatalf("%s leads out: %s, %v", here, link[1], err)
			}
			left = append(left, to.RequestURI())
		}
	}
	return len(visited)
}
