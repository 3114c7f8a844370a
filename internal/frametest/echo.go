package frametest

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"

	"example.com/idempotency"
)

// The handlers of a program with echo, whose versions differ in their types alone.

// An EchoContext is the context of a version of echo, as far as handlers use it.
type EchoContext interface {
	Request() *http.Request
	SetRequest(*http.Request)
	Set(name string, value any)
	Get(name string) any
	Param(name string) string
	QueryString() string
	FormValue(name string) string
	FormFile(name string) (*multipart.FileHeader, error)
	Cookie(name string) (*http.Cookie, error)
	Bind(any) error
	NoContent(status int) error
	String(status int, text string) error
	JSON(status int, value any) error
	Blob(status int, mediaType string, body []byte) error
	Redirect(status int, location string) error
}

// echoRoutes adds the routes of app.go to an echo. The writer is that of a context, and fail makes an error that echo
// answers with a status.
func echoRoutes[C EchoContext](
	app *App, writer func(C) http.ResponseWriter, fail func(status int, text string) error,
	handle func(method, path string, h func(C) error, opts ...idempotency.Option),
) {
	begin := func(c C) Reply { return app.Begin(c.Request().Context(), c.Param("name")) }
	reply := func(c C) error {
		r := begin(c)
		maps.Copy(writer(c).Header(), r.Header)
		defer func() { maps.Copy(writer(c).Header(), r.Trailer) }()
		switch location := r.Header.Get("Location"); {
		case location != "" && r.Status/100 == 3:
			return c.Redirect(r.Status, location)
		case r.Body == "":
			return c.NoContent(r.Status)
		case r.Header.Get("Content-Type") == "":
			writer(c).WriteHeader(r.Status)
			_, err := io.WriteString(writer(c), r.Body)
			return err
		default:
			return c.Blob(r.Status, r.Header.Get("Content-Type"), []byte(r.Body))
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPatch, http.MethodGet} {
		handle(method, "/reply/:name", reply)
	}
	handle(http.MethodPost, "/held/:name", reply, idempotency.WithRecovery(idempotency.Hold))
	handle(http.MethodPost, "/required/:name", reply, idempotency.WithRequired(true))
	handle(http.MethodPost, "/error/:name", func(c C) error {
		r := begin(c)
		if r.Status == 0 {
			return errors.New(r.Body)
		}
		return fail(r.Status, r.Body)
	})
	handle(http.MethodPost, "/panic/:name", func(c C) error {
		r := begin(c)
		if r.Body != "" {
			_, _ = io.WriteString(writer(c), r.Body)
		}
		panic(r.Panic)
	})
	handle(http.MethodPost, "/stream/:name", func(c C) error {
		r := begin(c)
		maps.Copy(writer(c).Header(), r.Header)
		for _, chunk := range r.Chunks {
			_, _ = io.WriteString(writer(c), chunk)
			_ = http.NewResponseController(writer(c)).Flush()
			r.Pause()
		}
		if r.Status != 0 {
			return fail(r.Status, "too late")
		}
		return nil
	})
	handle(http.MethodPost, "/request/:name", func(c C) error {
		begin(c)
		r := c.Request()
		body, _ := io.ReadAll(r.Body)
		session := ""
		if cookie, err := c.Cookie("session"); err == nil {
			session = cookie.Value
		}
		return c.JSON(http.StatusOK, Seen{
			Method: r.Method, Path: r.URL.Path, Name: c.Param("name"), Query: c.QueryString(), Cookie: session,
			Type: r.Header.Get("Content-Type"), Agent: r.UserAgent(), Many: r.Header["X-Many"], Length: r.ContentLength, Body: string(body),
		})
	})
	handle(http.MethodPost, "/form", func(c C) error {
		app.Begin(c.Request().Context(), "form")
		content := []byte(nil)
		if header, err := c.FormFile("f"); err == nil {
			f, _ := header.Open()
			content, _ = io.ReadAll(f)
			_ = f.Close()
		}
		return c.String(http.StatusOK, fmt.Sprintf("%s,%s,%s", c.FormValue("a"), c.FormValue("b"), content))
	})
	handle(http.MethodPost, "/bind", func(c C) error {
		app.Begin(c.Request().Context(), "bind")
		var order struct {
			Amount int `json:"amount"`
		}
		if err := c.Bind(&order); err != nil {
			return err
		}
		return c.JSON(http.StatusCreated, order)
	})
}
