package ginidempotency_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapters/ginidempotency"
	"example.com/idempotency/internal/frametest"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	os.Exit(m.Run())
}

// TestFrame sends the requests of frametest. The guard protects a route, or a group of them.
func TestFrame(t *testing.T) {
	frametest.Run(t, frametest.Framework{
		Serve: func(t testing.TB, app *frametest.App, guard *idempotency.Guard) string {
			return frametest.ServeHTTP(t, engine(app, func(opts ...idempotency.Option) gin.HandlerFunc {
				if guard == nil {
					return func(*gin.Context) {}
				}
				return ginidempotency.Middleware(guard.With(opts...))
			}, func(c *gin.Context) {
				c.Header("X-Request-Id", app.RequestID())
				c.Header("Vary", "Origin")
				c.Request = c.Request.WithContext(frametest.WithOuter(c.Request.Context(), c.Writer.Header().Add))
				c.Set("tenant", c.GetHeader(frametest.TenantHeader))
			}, gin.RecoveryWithWriter(io.Discard)))
		},
		FailsLate: true,
		Scope:     ginidempotency.Scope(func(c *gin.Context) (string, error) { return c.GetString("tenant"), nil }),
		Route:     "POST /reply/:name",
		Differs:   frametest.HalfAnswers("gin.Recovery"),
	})
}

// TestFrameAroundTheEngine sends them to an engine that knows nothing of the guard around it.
func TestFrameAroundTheEngine(t *testing.T) {
	frametest.Run(t, frametest.Around(func(app *frametest.App) http.Handler {
		return engine(app, func(...idempotency.Option) gin.HandlerFunc { return func(*gin.Context) {} })
	}))
}

// engine has the routes of frametest, with middleware outside the guards.
func engine(app *frametest.App, protect func(...idempotency.Option) gin.HandlerFunc, outside ...gin.HandlerFunc) http.Handler {
	e := gin.New()
	e.HandleMethodNotAllowed = true
	e.Use(outside...)

	reply := func(c *gin.Context) {
		r := app.Begin(c.Request.Context(), c.Param("name"))
		maps.Copy(c.Writer.Header(), r.Header)
		switch location := r.Header.Get("Location"); {
		case location != "" && r.Status/100 == 3:
			c.Redirect(r.Status, location)
		case r.Body == "" || r.Trailer != nil:
			c.Status(r.Status)
			_, _ = c.Writer.WriteString(r.Body)
		default:
			c.Data(r.Status, r.Header.Get("Content-Type"), []byte(r.Body))
		}
		maps.Copy(c.Writer.Header(), r.Trailer)
	}
	replies := e.Group("/reply", protect())
	replies.POST("/:name", reply)
	replies.PATCH("/:name", reply)
	replies.GET("/:name", reply)
	e.POST("/held/:name", protect(idempotency.WithRecovery(idempotency.Hold)), reply)
	e.POST("/required/:name", protect(idempotency.WithRequired(true)), reply)

	e.POST("/error/:name", protect(), answerErrors, func(c *gin.Context) {
		r := app.Begin(c.Request.Context(), c.Param("name"))
		if r.Status == 0 {
			_ = c.Error(errors.New(r.Body))
			return
		}
		_ = c.AbortWithError(r.Status, errors.New(r.Body))
	})
	e.POST("/panic/:name", protect(), func(c *gin.Context) {
		r := app.Begin(c.Request.Context(), c.Param("name"))
		if r.Body != "" {
			_, _ = c.Writer.WriteString(r.Body)
		}
		panic(r.Panic)
	})
	e.POST("/stream/:name", protect(), func(c *gin.Context) {
		r := app.Begin(c.Request.Context(), c.Param("name"))
		maps.Copy(c.Writer.Header(), r.Header)
		i := 0
		c.Stream(func(w io.Writer) bool {
			if i > 0 { // gin has flushed
				r.Pause()
			}
			_, _ = io.WriteString(w, r.Chunks[i])
			i++
			return i < len(r.Chunks)
		})
		r.Pause()
		if r.Status != 0 {
			_ = c.AbortWithError(r.Status, errors.New("too late"))
		}
	})
	e.POST("/request/:name", protect(), func(c *gin.Context) {
		app.Begin(c.Request.Context(), c.Param("name"))
		body, _ := c.GetRawData()
		cookie, _ := c.Cookie("session")
		r := c.Request
		c.JSON(http.StatusOK, frametest.Seen{
			Method: r.Method, Path: r.URL.Path, Name: c.Param("name"), Query: r.URL.RawQuery, Cookie: cookie,
			Type: c.ContentType(), Agent: r.UserAgent(), Many: r.Header["X-Many"], Length: r.ContentLength, Body: string(body),
		})
	})
	e.POST("/form", protect(), func(c *gin.Context) {
		app.Begin(c.Request.Context(), "form")
		content := []byte(nil)
		if header, err := c.FormFile("f"); err == nil {
			f, _ := header.Open()
			content, _ = io.ReadAll(f)
			_ = f.Close()
		}
		c.String(http.StatusOK, "%s,%s,%s", c.PostForm("a"), c.PostForm("b"), content)
	})
	e.POST("/bind", protect(), func(c *gin.Context) {
		app.Begin(c.Request.Context(), "bind")
		var order struct {
			Amount int `json:"amount"`
		}
		if err := c.BindJSON(&order); err != nil { // it answers 400 itself
			return
		}
		c.JSON(http.StatusCreated, order)
	})
	return e
}

// answerErrors answers for handlers that leave their error in the context.
func answerErrors(c *gin.Context) {
	c.Next()
	if err := c.Errors.Last(); err != nil {
		status := c.Writer.Status()
		if status == http.StatusOK {
			status = http.StatusInternalServerError
		}
		c.JSON(status, gin.H{"error": err.Error()})
	}
}

func ExampleMiddleware() {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), ginidempotency.Scope(ginidempotency.User))
	if err != nil {
		fmt.Println(err)
		return
	}
	r := gin.New()
	r.Use(gin.Recovery(), gin.BasicAuth(gin.Accounts{"alice": "alice's password"}))
	r.POST("/charges", ginidempotency.Middleware(guard), func(c *gin.Context) {
		op, _ := idempotency.FromContext(c.Request.Context())
		c.JSON(http.StatusCreated, gin.H{"attempt": op.Attempt()})
	})
	payouts := r.Group("/payouts", ginidempotency.Middleware(guard.With(idempotency.WithRecovery(idempotency.Hold))))
	payouts.POST("", func(c *gin.Context) { c.Status(http.StatusAccepted) })

	for range 2 {
		fmt.Println(frametest.Alice(r, "/charges"))
	}
	// Output:
	// 201 {"attempt":1} replayed: false
	// 201 {"attempt":1} replayed: true
}

// A recovery inside the guard answers 500 after the first byte. The outcome of the run is unknown.
func TestRecoveryBehindTheFirstByte(t *testing.T) {
	frametest.RequireHeld(t, func(guard *idempotency.Guard) http.Handler {
		engine := gin.New()
		engine.POST("/", ginidempotency.Middleware(guard), gin.RecoveryWithWriter(io.Discard), func(c *gin.Context) {
			c.String(http.StatusCreated, "half an ans")
			panic("the other half")
		})
		return engine
	})
}

// gin reads a body by its type, and a type in upper case as a form, so that the query decides who is paid.
func TestTypeInUpperCaseIsAnotherPayload(t *testing.T) {
	guarded, _ := newGuard(t, idempotency.WithFingerprint(idempotency.JSONFingerprint))
	url := serve(t, guarded, func(c *gin.Context) {
		var o struct {
			To string `form:"to" json:"to"`
		}
		_ = c.ShouldBind(&o)
		c.String(http.StatusCreated, o.To)
	})
	pay := func(contentType string) frametest.Answer {
		got, _ := frametest.PostBody(t, url+"?to=mallory", `{"to":"bob"}`, map[string]string{"Content-Type": contentType})
		return got
	}
	require.Equal(t, frametest.Answer{Status: http.StatusCreated, Body: "bob"}, pay("application/json"))
	require.Equal(t, http.StatusConflict, pay("Application/JSON").Status)
}
