//go:build unix

package journal_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/idempotency/internal/guardtest"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/client"
	"example.com/idempotency/client/journal"
	"example.com/idempotency/client/profile"
)

// The environment of the program that the tests kill: the URL of the server, the file of the
// journal, the names to pay, and the moment at which the program kills itself.
const (
	payingClient  = "JOURNAL_TEST_URL"
	payingJournal = "JOURNAL_TEST_FILE"
	payingNames   = "JOURNAL_TEST_NAMES"
	payingDies    = "JOURNAL_TEST_DIES"
)

// pay is the program. It resumes what is pending, pays each name, and prints the results.
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
	j, err := journal.Open(os.Getenv(payingJournal))
	check(err)
	die("opened")
	transport, err := client.New(nil, client.WithServer(profile.Guard(), "127.0.0.1"), client.WithLogger(slog.New(slog.DiscardHandler)))
	check(err)
	c := &http.Client{Transport: transport}
	keep := func(_ context.Context, _ journal.Entry, answer *http.Response) ([]byte, error) {
		body, err := io.ReadAll(answer.Body)
		die("answered")
		return body, err
	}
	check(j.Resume(ctx, c, keep))
	for name := range strings.SplitSeq(os.Getenv(payingNames), ",") {
		// Nobody could make these bytes again.
		r := journal.Request{Method: http.MethodPost, URL: url + "/" + name, ContentType: "text/plain", Body: []byte(client.NewKey())}
		_, err := j.Begin(ctx, name, r)
		check(err)
		die("begun")
		e, err := j.Do(ctx, c, name, r, keep)
		check(err)
		die("done")
		fmt.Printf("%s: %s\n", name, e.Result)
	}
}

// A shop is a server that counts the effects of each path, and can kill its client.
type shop struct {
	guard http.Handler

	mu      sync.Mutex
	effects map[string]int
	sent    map[string]map[string]bool // the keys and bodies that came for each path
	moment  string
	victim  *os.Process
}

func newShop(t testing.TB) (*shop, string) {
	t.Helper()
	s := &shop{effects: make(map[string]int), sent: make(map[string]map[string]bool)}
	guard := guardtest.NewGuardOf(t, idempotency.NewMemoryStore(), idempotency.SharedScope)
	s.guard = guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.effects[r.URL.Path]++
		_, _ = fmt.Fprintf(w, "charge %d", s.effects[r.URL.Path])
	}))
	server := httptest.NewUnstartedServer(s)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	t.Cleanup(func() {
		server.Close()
		_ = guard.Shutdown(context.Background())
	})
	return s, server.URL
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	if s.sent[r.URL.Path] == nil {
		s.sent[r.URL.Path] = make(map[string]bool)
	}
	s.sent[r.URL.Path][r.Header.Get("Idempotency-Key")+" "+string(body)] = true
	moment, victim := s.moment, s.victim
	s.moment = ""
	s.mu.Unlock()
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	switch moment {
	case "sent":
		_ = victim.Kill()
		panic(http.ErrAbortHandler)
	case "executed":
		s.guard.ServeHTTP(httptest.NewRecorder(), r)
		_ = victim.Kill()
		panic(http.ErrAbortHandler)
	}
	s.guard.ServeHTTP(w, r)
}

// run starts the program and waits for its end. It is killed after a while, if that is not
// zero.
func (s *shop) run(t testing.TB, url, path, names, dies string, after time.Duration) (out string, killed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), payingClient+"="+url, payingJournal+"="+path, payingNames+"="+names, payingDies+"="+dies)
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &text
	s.mu.Lock()
	s.moment = dies
	err := cmd.Start()
	s.victim = cmd.Process
	s.mu.Unlock()
	require.NoError(t, err)
	if after > 0 {
		defer time.AfterFunc(after, func() { _ = cmd.Process.Kill() }).Stop()
	}
	_ = cmd.Wait()
	if cmd.ProcessState.Success() {
		return text.String(), false
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok && status.Signal() == syscall.SIGKILL, "%v: %s", cmd.ProcessState, text.String())
	return text.String(), true
}

// requireOneEffect checks that each name had one effect, with one key and one body.
func (s *shop) requireOneEffect(t testing.TB, names []string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		require.Equal(t, 1, s.effects["/"+name], "effects of %s", name)
		require.Len(t, s.sent["/"+name], 1, "keys and bodies of %s", name)
	}
}

func TestProgramIsKilledAndResumes(t *testing.T) {
	for _, moment := range []string{"opened", "begun", "sent", "executed", "answered", "done"} {
		t.Run(moment, func(t *testing.T) {
			s, url := newShop(t)
			path := inDir(t)
			out, killed := s.run(t, url, path, "order-17", moment, 0)
			require.True(t, killed, "the process was to be killed: %s", out)
			for range 2 { // and once more when all is done
				out, killed = s.run(t, url, path, "order-17", "", 0)
				require.False(t, killed)
				require.Equal(t, "order-17: charge 1\n", out)
			}
			s.requireOneEffect(t, []string{"order-17"})
		})
	}
}

// Killed at random moments and started again, again and again, the program charges each name
// once. CLIENT_EXHAUSTIVE kills it 200 times.
func TestProgramIsKilledAgainAndAgain(t *testing.T) {
	kills := 20
	if exhaustive {
		kills = 200
	}
	s, url := newShop(t)
	path := inDir(t)
	names := make([]string, 200)
	for i := range names {
		names[i] = fmt.Sprint("order-", i)
	}
	all := strings.Join(names, ",")
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	done, usual := 0, 30*time.Millisecond // how long the program takes if it lives
	for starts := 0; done < kills; starts++ {
		require.Less(t, starts, 20*kills, "the program is too fast to be killed")
		// A window of names that moves on, so that each start has something to do.
		from := len(names) * done / kills
		window := strings.Join(names[from:min(len(names), from+20)], ",")
		start := time.Now()
		if _, killed := s.run(t, url, path, window, "", time.Duration(rng.Int64N(2*int64(usual)))+time.Microsecond); killed {
			done++
		} else {
			usual = time.Since(start)
		}
	}
	out, killed := s.run(t, url, path, all, "", 0)
	require.False(t, killed)
	require.Equal(t, len(names), strings.Count(out, ": charge 1\n"), out)
	s.requireOneEffect(t, names)
	t.Logf("%d kills, one effect for each of %d names", done, len(names))
}

// The journal of a process that lives belongs to it, and that of one that was killed does
// not.
func TestJournalIsLockedByALivingProcess(t *testing.T) {
	waits, leave := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(waits)
		<-leave
	}))
	defer server.Close()
	path := inDir(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), payingClient+"="+server.URL, payingJournal+"="+path, payingNames+"=order-17")
	require.NoError(t, cmd.Start())
	<-waits
	requireRefused(t, path, journal.ErrLocked)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	close(leave)
	j := open(t, path)
	left := entries(t, j)
	require.Len(t, left, 1)
	require.WithinDuration(t, time.Now(), left[0].Since, time.Minute)
}
