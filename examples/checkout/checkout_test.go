//go:build unix

package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/idempotency/internal/pagetest"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
)

// lease is short, because each crash blocks its key for that long.
const lease = time.Second

// start starts a process on a free port, which dies at the point. With an empty point it does not die.
func start(t *testing.T, point string, args ...string) *guardtest.Program {
	t.Helper()
	return guardtest.StartProgram(t, guardtest.Itself([]string{runMain + "=1", crashPoint + "=" + point}, append(args, "-addr", "127.0.0.1:0")...))
}

// A backend is shared by shops and survives them.
type backend struct {
	redis    *redistest.Server
	provider *guardtest.Program
}

func newBackend(t *testing.T) backend {
	return backend{redistest.Start(t), start(t, "", "provider")}
}

// shop starts a shop that dies at a point.
func (b backend) shop(t *testing.T, point string, args ...string) *guardtest.Program {
	t.Helper()
	return start(t, point, append([]string{
		"shop", "-redis", b.redis.Addr, "-provider", b.provider.URL,
		"-lease", lease.String(), "-timeout", "10s",
	}, args...)...)
}

// A client sends the same order to one route with one key, as often as it is told to.
type client struct{ path, key string }

func (c client) send(ctx context.Context, p *guardtest.Program) (guardtest.Reply, error) {
	return p.Try(ctx, guardtest.Call{Path: c.path, Key: c.key, Body: `{"id":"` + c.key + `","amount":100}`})
}

// retry sends the request until it is settled, with growing pauses, as a client does.
func (c client) retry(t *testing.T, p *guardtest.Program) guardtest.Reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, lease/2) {
		got, err := c.send(ctx, p)
		if err == nil && got.Status < http.StatusInternalServerError && got.Problem.Code != problem.InFlight {
			return got
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			require.FailNow(t, "no answer in time", "last: %+v, %v", got, err)
		}
	}
}

// order returns what the provider did for the client's order.
func (b backend) order(t *testing.T, c client) tally {
	t.Helper()
	resp, err := http.Get(b.provider.URL + "/orders/" + c.key)
	require.NoError(t, err)
	defer resp.Body.Close()
	var got tally
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&got))
	return got
}

func (b backend) fault(t *testing.T, c client, kind, fault string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, b.provider.URL+"/faults/"+kind+"/"+c.key, strings.NewReader(fault))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	resp.Body.Close()
}

// crashAt sends a request to a shop that dies while it serves the request.
func (b backend) crashAt(t *testing.T, c client, point string) {
	t.Helper()
	victim := b.shop(t, point, "-resolve=false")
	got, err := c.send(t.Context(), victim)
	for got.Status == http.StatusServiceUnavailable { // a busy Redis; nothing has run
		got, err = c.send(t.Context(), victim)
	}
	require.Error(t, err, "the shop survives: %+v", got)
	victim.RequireKilled(t)
}

var onceEach = map[string]int{"charges": 1, "shipments": 1, "mails": 1}

// requireDone checks that the client has its one answer, that a retry gets it again, and that
// the provider made each effect once.
func (b backend) requireDone(t *testing.T, c client, got guardtest.Reply, p *guardtest.Program) {
	t.Helper()
	require.Equal(t, http.StatusCreated, got.Status, got.Body)
	var r receipt
	require.NoError(t, json.Unmarshal([]byte(got.Body), &r))
	require.NotEmpty(t, r.Charge)
	require.NotEmpty(t, r.Shipment)
	require.NotEmpty(t, r.Mail)
	again, err := c.send(t.Context(), p)
	require.NoError(t, err)
	require.True(t, again.Replayed())
	require.Equal(t, got.Body, again.Body)
	require.Equal(t, onceEach, b.order(t, c).Done)
}

// A crashCase is a moment at which the shop dies, the row of docs/how-to/steps.md about it,
// and how often the provider is asked for each effect.
type crashCase struct {
	point, row               string
	charges, shipments, mail int
}

// The rows of the first table.
const (
	beforeEffect = "before the effect"
	beforeRecord = "after the effect, before its record"
	afterRecord  = "after its record"
	beforeAnswer = "after the last step, before the answer is recorded"
	afterAnswer  = "after the answer is recorded"
)

var crashTable = []crashCase{
	{"before effect charges 1", beforeEffect, 1, 1, 1},
	{"after effect charges 1", beforeRecord, 2, 1, 1},
	{"before save charge 1", beforeRecord, 2, 1, 1},
	{"after save charge 1", afterRecord, 1, 1, 1},
	{"before effect shipments 1", beforeEffect, 1, 1, 1},
	{"after effect shipments 1", beforeRecord, 1, 2, 1},
	{"before save ship 1", beforeRecord, 1, 2, 1},
	{"after save ship 1", afterRecord, 1, 1, 1},
	{"before effect mails 1", beforeEffect, 1, 1, 1},
	{"after effect mails 1", beforeRecord, 1, 1, 2},
	{"before save mail 1", beforeRecord, 1, 1, 2},
	{"after save mail 1", afterRecord, 1, 1, 1},
	{"before complete 1", beforeAnswer, 1, 1, 1},
	{"after complete 1", afterAnswer, 1, 1, 1},
}

// documented returns the cells of a row of docs/how-to/steps.md, in one of its two crash
// tables.
func documented(t *testing.T, table int, row string) []string {
	t.Helper()
	page := pagetest.File(t, "../../docs/how-to/steps.md")
	tables := strings.Split(string(page), "\n| killed |")
	require.Len(t, tables, 3)
	for line := range strings.Lines(tables[1+table]) {
		if cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | "); strings.TrimSpace(cells[0]) == row {
			return cells
		}
	}
	require.Fail(t, "not documented", row)
	return nil
}

func TestKilledAnywhereEndsInOneOfEach(t *testing.T) {
	b := newBackend(t)
	survivor := b.shop(t, "")
	for _, c := range crashTable {
		t.Run(c.point, func(t *testing.T) {
			client := client{"/checkout", strings.ReplaceAll(c.point, " ", "-")}
			b.crashAt(t, client, c.point)
			got := client.retry(t, survivor)
			b.requireDone(t, client, got, survivor)
			require.Equal(t, c.point == "after complete 1", got.Replayed())
			require.Equal(t, map[string]int{"charges": c.charges, "shipments": c.shipments, "mails": c.mail},
				b.order(t, client).Asked)
			asked := []string{"", "once", "twice"}[max(c.charges, c.shipments, c.mail)]
			require.Equal(t, asked, documented(t, 0, c.row)[2])
		})
	}
}

// Killed again and again, at a later moment each time.
func TestKilledManyTimesEndsInOneOfEach(t *testing.T) {
	b := newBackend(t)
	c := client{"/checkout", "unlucky"}
	for _, point := range []string{
		"after effect charges 1", "before save charge 1", "after save charge 1", "after effect shipments 1",
		"after save ship 1", "before save mail 1", "after save mail 1", "before complete 1",
	} {
		victim := b.shop(t, point)
		require.Eventually(t, func() bool {
			_, err := c.send(t.Context(), victim)
			return err != nil
		}, time.Minute, lease/5)
		victim.RequireKilled(t)
	}
	survivor := b.shop(t, "")
	b.requireDone(t, c, c.retry(t, survivor), survivor)
	require.Equal(t, map[string]int{"charges": 3, "shipments": 2, "mails": 2}, b.order(t, c).Asked)
}

// The provider fails, or acts and does not answer. The client sends the same request again.
func TestFaultsOfTheProvider(t *testing.T) {
	b := newBackend(t)
	s := b.shop(t, "", "-timeout", "300ms")
	for _, fault := range []string{faultFail, faultHang} {
		for _, kind := range []string{"charges", "shipments", "mails"} {
			t.Run(fault+" "+kind, func(t *testing.T) {
				c := client{"/checkout", fault + "-" + kind}
				b.fault(t, c, kind, fault)
				got, err := c.send(t.Context(), s)
				require.NoError(t, err)
				require.Equal(t, http.StatusBadGateway, got.Status)
				b.requireDone(t, c, c.retry(t, s), s)
				require.GreaterOrEqual(t, b.order(t, c).Asked[kind], 2)
			})
		}
	}
	t.Run("declined", func(t *testing.T) {
		call := guardtest.Call{Path: "/checkout", Key: "declined", Body: `{"id":"declined","amount":10001}`}
		first := s.Do(t, call)
		require.Equal(t, http.StatusPaymentRequired, first.Status)
		guardtest.RequireReplay(t, first, s.Do(t, call))
		require.Equal(t, map[string]int{"charges": 1}, b.order(t, client{key: "declined"}).Asked)
	})
}

// On the other route the mail goes through a service without idempotency keys. If nobody
// knows whether the mail was sent, the key is held, and the resolver finds out.
func TestKilledBetweenMarkAndRecordIsHeldAndResolved(t *testing.T) {
	b := newBackend(t)
	unresolved := b.shop(t, "", "-resolve=false")
	resolving := b.shop(t, "")
	// The step "mail" is saved twice: first its mark, then its result.
	for _, c := range []struct {
		point, row string
		held, sent bool
	}{
		{"before save mail 1", "before the mark is recorded", false, false},
		{"after save mail 1", "after the mark, before the effect", true, false},
		{"before effect mails 1", "after the mark, before the effect", true, false},
		{"after effect mails 1", beforeRecord, true, true},
		{"before save mail 2", beforeRecord, true, true},
		{"after save mail 2", afterRecord, false, true},
	} {
		t.Run(c.point, func(t *testing.T) {
			client := client{"/checkout/plain-mail", strings.ReplaceAll(c.point, " ", "-")}
			b.crashAt(t, client, c.point)
			got := client.retry(t, unresolved)
			row := documented(t, 1, c.row)
			require.True(t, strings.HasPrefix(row[1], strconv.Itoa(got.Status)), "%v", row)
			require.Equal(t, strconv.Itoa(b.order(t, client).Done["mails"]), row[2])
			if !c.held {
				b.requireDone(t, client, got, unresolved)
				return
			}
			for range 3 {
				guardtest.RequireProblem(t, got, http.StatusConflict, problem.OutcomeUnknown)
				got = client.retry(t, unresolved)
			}
			got = client.retry(t, resolving)
			require.Equal(t, c.sent, got.Replayed(), "the resolver has recorded the answer, or let it run")
			b.requireDone(t, client, got, resolving)
			require.Equal(t, onceEach, b.order(t, client).Asked)
		})
	}
}
