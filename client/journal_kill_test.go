//go:build unix

package client_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/client"
)

// The environment of the client process that the tests kill: the URL of the server, the
// file of the journal, and the moment at which the process kills itself.
const (
	payingClient  = "CLIENT_TEST_URL"
	payingJournal = "CLIENT_TEST_JOURNAL"
	payingDies    = "CLIENT_TEST_DIES"
)

// pay is the program of the client process. It resumes what is pending, or else begins
// something new, and prints the answer.
func pay(url string) {
	die := func(moment string) {
		if os.Getenv(payingDies) == moment {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	check := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	ctx := context.Background()
	journal, err := client.OpenJournal(os.Getenv(payingJournal))
	check(err)
	die("opened")
	pending, err := journal.Pending(ctx)
	check(err)
	var e client.Entry
	if len(pending) > 0 {
		e = pending[0]
	} else {
		// Nobody could make these bytes again.
		e, err = journal.Begin(ctx, "charge order 17", []byte(`{"amount":100,"at":"`+client.NewKey()+`"}`))
		check(err)
	}
	die("begun")
	transport, err := client.New(nil)
	check(err)
	resp, err := transport.RoundTrip(post(e.Context(ctx), url, string(e.Payload)))
	check(err)
	body, err := io.ReadAll(resp.Body)
	check(err)
	check(resp.Body.Close())
	die("answered")
	check(journal.Done(ctx, e.Name))
	die("done")
	fmt.Printf("%d %s resumed=%t", resp.StatusCode, body, e.Resumed)
}

// A killer is a server that kills its client at a moment of the first request.
type killer struct {
	guard  http.Handler
	moment string

	mu     sync.Mutex
	client *os.Process
	got    []sent
}

func (k *killer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	k.mu.Lock()
	k.got = append(k.got, sent{method: r.Method, body: string(body), key: r.Header[keyField]})
	first, process := len(k.got) == 1, k.client
	k.mu.Unlock()
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	if !first || k.moment != "sent" && k.moment != "executed" {
		k.guard.ServeHTTP(w, r)
		return
	}
	if k.moment == "executed" {
		k.guard.ServeHTTP(deaf{make(http.Header)}, r)
	}
	_ = process.Kill()
	panic(http.ErrAbortHandler)
}

func TestClientIsKilledAndResumes(t *testing.T) {
	t.Parallel()
	for moment, c := range map[string]struct {
		requests int
		resumed  bool
	}{
		"opened":   {1, false},
		"begun":    {1, true},
		"sent":     {2, true},
		"executed": {2, true},
		"answered": {2, true},
		"done":     {2, false}, // the second is another intent
	} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			effects := 0
			k := &killer{moment: moment, guard: newGuard(t, idempotency.NewMemoryStore()).Handler(
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					effects++
					w.WriteHeader(http.StatusCreated)
					_, _ = fmt.Fprintf(w, "charge %d", effects)
				}))}
			s := serve(t, k)
			journal := filepath.Join(t.TempDir(), "journal")
			run := func(dies string) (string, *os.ProcessState) {
				cmd := exec.CommandContext(t.Context(), os.Args[0])
				cmd.Env = append(os.Environ(), payingClient+"="+s.URL, payingJournal+"="+journal, payingDies+"="+dies)
				var out strings.Builder
				cmd.Stdout, cmd.Stderr = &out, &out
				k.mu.Lock()
				err := cmd.Start()
				k.client = cmd.Process
				k.mu.Unlock()
				require.NoError(t, err)
				_ = cmd.Wait()
				return out.String(), cmd.ProcessState
			}
			out, state := run(moment)
			require.Equal(t, syscall.SIGKILL, state.Sys().(syscall.WaitStatus).Signal(), "the process was to be killed: %s", out)
			out, state = run("")
			require.True(t, state.Success(), out)
			if moment == "done" {
				require.Equal(t, "201 charge 2 resumed=false", out)
				require.NotEqual(t, k.got[0].key, k.got[1].key)
				return
			}
			require.Equal(t, fmt.Sprintf("201 charge 1 resumed=%t", c.resumed), out)
			require.Equal(t, 1, effects)
			require.Len(t, k.got, c.requests)
			for _, r := range k.got {
				require.Equal(t, k.got[0], r, "the same key and the same bytes")
			}
		})
	}
}

// The journal of a process that lives belongs to it, and that of one that was killed does
// not.
func TestJournalIsLockedByALivingProcess(t *testing.T) {
	t.Parallel()
	waits := make(chan struct{})
	leave := make(chan struct{})
	s := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(waits)
		<-leave
	}))
	path := filepath.Join(t.TempDir(), "journal")
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), payingClient+"="+s.URL, payingJournal+"="+path)
	require.NoError(t, cmd.Start())
	<-waits
	_, err := client.OpenJournal(path)
	require.ErrorIs(t, err, client.ErrJournalLocked)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	close(leave)
	j, err := client.OpenJournal(path)
	require.NoError(t, err)
	pending, err := j.Pending(t.Context())
	require.NoError(t, err)
	require.Len(t, pending, 1)
	require.WithinDuration(t, time.Now(), pending[0].Since, time.Minute)
	require.NoError(t, j.Close())
}
