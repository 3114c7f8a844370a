package fiberidempotency_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapters/fiberidempotency"
)

// What nobody has read of a body is not the next request on its connection, whatever the guard has answered:
// fasthttp reads it, or ends the connection.
func TestRestOfAStreamIsNoRequest(t *testing.T) {
	t.Parallel()
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope, idempotency.WithRequired(true))
	require.NoError(t, err)
	app := fiber.New(fiber.Config{StreamRequestBody: true})
	app.Get("/:name", func(c fiber.Ctx) error { return c.SendString(c.Params("name")) })
	url := serve(t, app, fiberidempotency.Middleware(guard), func(c fiber.Ctx) error {
		return c.Status(fiber.StatusCreated).SendString(fmt.Sprint(len(c.Body())))
	})

	const inside, after = "GET /inside HTTP/1.1\r\nHost: test\r\n\r\n", "GET /after HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
	for key, status := range map[string]int{"a b": http.StatusBadRequest, "": http.StatusBadRequest, "%d": http.StatusCreated} {
		for pad := 8 << 10; pad < 9<<10; pad += 64 {
			body := strings.Repeat("\r\n", pad/2) + inside
			for _, framed := range []string{declared(len(body), body), chunked(body) + "0\r\n\r\n"} {
				field := ""
				if key != "" {
					field = "Idempotency-Key: " + strings.Replace(key, "%d", fmt.Sprint("k", len(framed)), 1) + "\r\n"
				}
				answers := dial(t, url, field+framed)
				got, _, err := readAnswer(answers.from)
				require.NoError(t, err)
				require.Equal(t, status, got)
				_, err = io.WriteString(answers.conn, after)
				require.NoError(t, err)
				_, second, err := readAnswer(answers.from)
				require.NoError(t, err)
				require.Equal(t, "after", second, "key %q, %d bytes", key, len(body))
			}
		}
	}
}

func declared(length int, body string) string {
	return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", length, body)
}

// chunked is a body in one chunk, without the last one, which ends it.
func chunked(body string) string {
	return fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(body), body)
}

// A dialed is a connection to a server, and what comes from there.
type dialed struct {
	conn *net.TCPConn
	from *bufio.Reader
}

// dial sends a POST, of which rest is the last fields and the body.
func dial(t testing.TB, to, rest string) dialed {
	u, err := url.Parse(to)
	require.NoError(t, err)
	conn, err := net.Dial("tcp", u.Host)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = io.WriteString(conn, "POST "+u.Path+" HTTP/1.1\r\nHost: test\r\nX-Tenant: tenant\r\nContent-Type: text/plain\r\n"+rest)
	require.NoError(t, err)
	return dialed{conn.(*net.TCPConn), bufio.NewReader(conn)}
}

// readAnswer reads the next answer on a connection.
func readAnswer(from *bufio.Reader) (status int, body string, err error) {
	answer, err := http.ReadResponse(from, nil)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	all, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(all), err
}
