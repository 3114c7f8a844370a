package fiberidempotency_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapters/fiberidempotency"
)

// fasthttp takes what nobody has read of a body for the next request on the connection. A refusal that comes before
// the body was read ends the connection; an answer to a body that was read keeps it.
func TestRestOfAStreamIsNoRequest(t *testing.T) {
	t.Parallel()
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope, idempotency.WithRequired(true))
	require.NoError(t, err)
	app := fiber.New(fiber.Config{StreamRequestBody: true})
	app.Post("/charges", fiberidempotency.Middleware(guard), func(c fiber.Ctx) error {
		return c.Status(fiber.StatusCreated).SendString(fmt.Sprint(len(c.Body())))
	})
	app.Get("/next", func(c fiber.Ctx) error { return c.SendString("next") })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() { _ = app.Shutdown() })

	next := "GET /next HTTP/1.1\r\nHost: test\r\n\r\n"
	for key, status := range map[string]int{"a b": http.StatusBadRequest, "": http.StatusBadRequest, "%d": http.StatusCreated} {
		for pad := 8 << 10; pad < 9<<10; pad += 64 {
			body := strings.Repeat("\r\n", pad/2) + next
			for _, length := range []string{
				fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body),
				fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body),
			} {
				conn, err := net.Dial("tcp", l.Addr().String())
				require.NoError(t, err)
				require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
				field := ""
				if key != "" {
					field = "Idempotency-Key: " + strings.Replace(key, "%d", fmt.Sprint("k", len(length)), 1) + "\r\n"
				}
				_, err = io.WriteString(conn, "POST /charges HTTP/1.1\r\nHost: test\r\nContent-Type: text/plain\r\n"+field+length)
				require.NoError(t, err)
				answers := bufio.NewReader(conn)
				got, _, err := readAnswer(answers)
				require.NoError(t, err)
				require.Equal(t, status, got)
				if status == http.StatusCreated {
					_, err = io.WriteString(conn, next)
					require.NoError(t, err)
				}
				_, second, err := readAnswer(answers)
				require.Equal(t, status == http.StatusCreated, err == nil, "key %q, %d bytes: %q %v", key, len(body), second, err)
				if err == nil {
					require.Equal(t, "next", second)
				}
				require.NoError(t, conn.Close())
			}
		}
	}
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
