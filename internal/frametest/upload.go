package frametest

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
)

// TemporaryFiles requires that those of a form are gone after its request, whatever the guards have done with it. The
// function returns the URL of a route with the guard, twice, and a handler that lets parse look at its request.
func TemporaryFiles(t *testing.T, serve func(t testing.TB, guard *idempotency.Guard, parse func(*http.Request)) (url string)) {
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile("file", "file")
	require.NoError(t, err)
	_, err = part.Write(make([]byte, 1000))
	require.NoError(t, err)
	require.NoError(t, w.Close())

	files := make(chan string, 1)
	parse := func(r *http.Request) {
		path := ""
		if r.ParseMultipartForm(0) == nil { // no memory for files
			file, err := r.MultipartForm.File["file"][0].Open()
			if f, ok := file.(*os.File); err == nil && ok {
				path = f.Name()
				_ = f.Close()
			}
		}
		files <- path
	}
	for name, opts := range map[string][]idempotency.Option{
		"a run":     nil,
		"no key":    {idempotency.WithHeader("Another-Key")},
		"no method": {idempotency.WithMethods(http.MethodPatch)},
		"shadow":    {idempotency.WithShadow(true)},
	} {
		guard, _ := NewGuard(t, idempotency.SharedScope, opts...)
		url := serve(t, guard, parse)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(form.Bytes()))
		require.NoError(t, err)
		r.Header.Set("Content-Type", w.FormDataContentType())
		r.Header.Set("Idempotency-Key", "k")
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		path := <-files
		require.NotEmpty(t, path, name)
		require.Eventually(t, func() bool {
			_, err := os.Stat(path)
			return os.IsNotExist(err)
		}, time.Minute, time.Millisecond, name)
	}
}
