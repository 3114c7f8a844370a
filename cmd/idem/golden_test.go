package main

import (
	"fmt"
	"html"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/internal/pagetest"
	"example.com/idempotency/store"
)

// outputs are the calls whose output is compared, on each store with the same files.
var outputs = []struct {
	name string
	args []string
	code int
}{
	{"held", []string{"held"}, 0},
	{"held-page", []string{"held", "--limit", "1"}, 0},
	{"held-route", []string{"held", "--route", "POST /orders"}, 0},
	{"held-none", []string{"held", "--route", "none"}, 0},
	{"why-held", []string{"why", "name:payout-1"}, 0},
	{"why-step", []string{"why", "name:order-77"}, 0},
	{"why-in-doubt", []string{"why", "name:charge-5"}, 0},
	{"why-completed", []string{"why", "name:order-78"}, 0},
	{"why-released", []string{"why", "name:order-79"}, 0},
	{"why-claimed", []string{"why", "name:order-80"}, 0},
	{"why-lapsed", []string{"why", "name:order-81"}, 0},
	{"find", []string{"find", "--scope", "alice", "--key", "order-77"}, 0},
	{"find-reference", []string{"find", "--reference", "77"}, 0},
	{"find-nothing", []string{"find", "--tenant", "bob"}, inspect.ExitNotFound},
	{"erase-nothing", []string{"erase", "--tenant", "bob", "--reason", "he has left"}, inspect.ExitNotFound},
	{"stats", []string{"stats"}, 0},
	{"resolve-final", []string{"resolve", "name:payout-1", "final", "--dry-run", "--unsealed", "--status", "201", "--reason", "the bank has it", "--actor", "ada"}, 0},
	{"resolve-final-body", []string{"resolve", "name:payout-1", "final", "--dry-run", "--unsealed", "--status", "201", "--header", "Content-Type: application/json", "--body", `{"id":1}`, "--reason", "the bank has it", "--actor", "ada"}, 0},
	{"resolve-resume", []string{"resolve", "name:order-77", "resume", "--dry-run", "--reason", "keys are derived", "--actor", "ada"}, 0},
	{"resolve-not-executed", []string{"resolve", "name:charge-5", "not-executed", "--dry-run", "--reason", "the bank has nothing", "--actor", "ada"}, 0},
	{"resolve-not-done", []string{"resolve", "name:charge-5", "resume", "--not-done", "charge", "--dry-run", "--reason", "the bank has nothing", "--actor", "ada"}, 0},
	{"resolve-step", []string{"resolve", "name:order-77", "not-executed", "--dry-run", "--reason", "x"}, inspect.ExitError},
	{"resolve-in-doubt", []string{"resolve", "name:charge-5", "resume", "--dry-run", "--reason", "x"}, inspect.ExitError},
	{"resolve-completed", []string{"resolve", "name:order-78", "resume", "--dry-run", "--reason", "x"}, inspect.ExitError},
	{"resolve-changed", []string{"resolve", "name:order-77", "resume", "--seen", "seen:payout-1", "--reason", "x"}, inspect.ExitChanged},
	{"forget", []string{"forget", "name:order-77", "--dry-run", "--reason", "a test", "--actor", "ada"}, 0},
	{"forget-completed", []string{"forget", "name:order-78", "--dry-run", "--reason", "a test", "--actor", "ada"}, 0},
	{"forget-running", []string{"forget", "name:order-80", "--dry-run", "--reason", "x"}, inspect.ExitError},
	{"forget-changed", []string{"forget", "name:order-77", "--seen", "seen:payout-1", "--reason", "x"}, inspect.ExitChanged},
	{"erase", []string{"erase", "--tenant", "alice", "--dry-run", "--reason", "she has left", "--actor", "ada"}, 0},
	{"erase-held", []string{"erase", "--tenant", "alice", "--held", "--dry-run", "--reason", "she has left", "--actor", "ada"}, 0},
	{"erase-older", []string{"erase", "--tenant", "alice", "--held", "--older-than", "720h", "--dry-run", "--reason", "she has left", "--actor", "ada"}, 0},
	{"unknown", []string{"why", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}, inspect.ExitNotFound},
	{"no-record", []string{"why", "order-77"}, inspect.ExitUsage},
}

// decisions are made, each on a store of its own, and looked at again.
var decisions = []struct {
	name string
	args []string
	then string // the state
}{
	{"resolved-final", []string{"resolve", "name:payout-1", "final", "--seen", "seen:payout-1", "--unsealed", "--status", "201", "--body", `{"id":1}`, "--reason", "the bank has it", "--actor", "ada"}, "completed"},
	{"resolved-not-executed", []string{"resolve", "name:charge-5", "not-executed", "--seen", "seen:charge-5", "--reason", "the bank has nothing", "--actor", "ada"}, "released"},
	{"resolved-resume", []string{"resolve", "name:order-77", "resume", "--seen", "seen:order-77", "--reason", "keys are derived", "--actor", "ada"}, "released"},
	{"forgotten", []string{"forget", "name:order-79", "--seen", "seen:order-79", "--reason", "a test", "--actor", "ada"}, "gone"},
}

func TestDecisionsAreTold(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"redis", "server"} {
		for _, d := range decisions {
			for format, extension := range map[string]string{asTable: ".txt", asJSON: ".json"} {
				p := places[place](t)
				s := fill(t, p)
				args := s.named(d.args)
				got := p.idem(t, append(args, "-o", format)...).exits(t, inspect.ExitOK)
				requireGolden(t, d.name+extension, stable(got.out+got.err))
				state := "gone"
				if rec, err := p.Get(t.Context(), args[1]); err == nil {
					state = rec.State.String()
				}
				require.Equal(t, d.then, state)
				why := p.idem(t, "why", args[1], "-o", format)
				requireGolden(t, d.name+"-why"+extension, stable(why.out+why.err))
			}
		}
	}
}

// A terminal does not obey what somebody has written as a reason, and nothing is left where nobody wants it.
func TestForgottenIsTold(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	s := serve(t, p.records)
	for _, c := range []struct {
		args []string
		want string
	}{{nil, `by ada: x\x1b[31m;`}, {[]string{"--tombstone", "0"}, "it has ended or was forgotten"}} {
		s.post("POST /orders", "order-77", created)
		name := s.name("order-77")
		args := append([]string{"forget", name, "--seen", s.seen("order-77"), "--reason", "x\x1b[31m", "--actor", "ada"}, c.args...)
		require.Equal(t, inspect.ExitOK, p.idem(t, args...).code)
		for _, find := range [][]string{{"why", name}, {"find", "--scope", "alice", "--key", "order-77"}} {
			got := p.idem(t, find...)
			require.Equal(t, inspect.ExitNotFound, got.code)
			require.Contains(t, got.err, c.want)
			require.NotContains(t, got.err, "\x1b")
		}
		// The key runs again, and is told of with what was forgotten.
		s.post("POST /orders", "order-77", created)
		again := p.idem(t, "why", name).exits(t, inspect.ExitOK)
		require.Contains(t, again.out, "Every retry gets it")
		require.Equal(t, c.args == nil, strings.Contains(again.out, `There was an earlier record of this key: it was forgotten 0s ago (`))
		require.Equal(t, c.args == nil, strings.Contains(again.out, `by ada: x\x1b[31m; it was completed, attempt 1.`), again.out)
		records, err := p.List(t.Context(), store.Query{})
		require.NoError(t, err)
		for _, e := range records.Entries { // as if its time were over
			require.NoError(t, p.Forget(t.Context(), e.Key, e.Record.Seen()))
		}
	}
}

// What a shell is told is what cobra makes of the commands: it changes when they do.
func TestCompletion(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for _, line := range []string{"", "re", "resolve --", "held --", "doctor --", "watch --", "completion "} {
		words := strings.Split(line, " ")
		got := call(t, append([]string{"__completeNoDesc"}, words...)...).exits(t, inspect.ExitOK)
		all.WriteString("idem " + line + "\n" + got.out + "\n")
	}
	requireGolden(t, "completion.txt", all.String())
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		got := call(t, "completion", shell).exits(t, inspect.ExitOK)
		require.Contains(t, got.out, "idem")
	}
}

// named replaces name:KEY by the name of the record of a key, and seen:KEY by what was seen of it.
func (s *service) named(args []string) (resolved []string) {
	for _, arg := range args {
		if key, ok := strings.CutPrefix(arg, "name:"); ok {
			arg = s.name(key)
		} else if key, ok := strings.CutPrefix(arg, "seen:"); ok {
			arg = s.seen(key)
		}
		resolved = append(resolved, arg)
	}
	return resolved
}

func TestOutputs(t *testing.T) {
	t.Parallel()
	for store, make := range places {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			p := make(t)
			s := fill(t, p)
			for i, o := range outputs {
				for format, extension := range map[string]string{asTable: ".txt", asJSON: ".json"} {
					if store == "postgres" && (format == asJSON || i%2 > 0) {
						continue // each call makes two connections, which take a server long
					}
					got := p.idem(t, append(s.named(o.args), "-o", format)...)
					require.Equal(t, o.code, got.code, "%s: %s", o.args, got.err)
					requireGolden(t, o.name+extension, stable(got.out+got.err))
				}
			}
		})
	}
}

// The recording has so many columns, and each of its scenes at most so many lines. A character is 7.8 wide.
const (
	columns, rows   = 122, 29
	charW, lineH    = 7.8, 18
	typed, readable = 1.0, 0.45 // seconds until the output comes, and for each of its lines
)

// wrap cuts a line as a terminal does.
func wrap(line string) (all []string) {
	runes := []rune(line)
	for len(runes) > columns {
		all, runes = append(all, string(runes[:columns])), runes[columns:]
	}
	return append(all, string(runes))
}

// draw makes a picture that plays conversations, one after the other, as a terminal has shown them. Where pictures
// must not move it shows the second.
func draw(conversations ...string) string {
	type scene struct {
		command, output  []string
		from, shown, end float64
	}
	var scenes []scene
	var now float64
	for _, text := range conversations {
		command, output, _ := strings.Cut(strings.TrimSuffix(text, "\n"), "\n")
		s := scene{command: wrap(command), from: now, shown: now + typed}
		for line := range strings.SplitSeq(output, "\n") {
			s.output = append(s.output, wrap(line)...)
		}
		now = s.shown + 2 + readable*float64(len(s.output))
		s.end = now
		scenes = append(scenes, s)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" role="img" aria-labelledby="t">
<title id="t">A key is held: idem says what happened, and ada decides</title>
<style>
text { font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #d5dae3; white-space: pre }
.c { fill: #7fd1a4 }
g g { opacity: 0; animation: %.1fs step-end infinite }
`, charW*columns+32, lineH*rows+32, now)
	for i, s := range scenes {
		for part, at := range []float64{s.from, s.shown} {
			name := fmt.Sprintf("%c%d", "co"[part], i)
			fmt.Fprintf(&b, "@keyframes %s { 0%% { opacity: 0 } %.2f%% { opacity: 1 } %.2f%% { opacity: 0 } }\n.%[1]s { animation-name: %[1]s }\n", name, at/now*100, s.end/now*100)
		}
	}
	b.WriteString("@media (prefers-reduced-motion) { g g { animation: none } .c1, .o1 { opacity: 1 } }\n</style>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#171b23\"/>\n<g>\n")
	for i, s := range scenes {
		fmt.Fprintf(&b, "<g class=\"c%d\">\n%s</g>\n<g class=\"o%[1]d\">\n%[3]s</g>\n", i, lines(s.command, 0, ` class="c"`), lines(s.output, len(s.command), ""))
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}

func lines(all []string, from int, attributes string) string {
	var b strings.Builder
	for i, line := range all {
		if line != "" {
			fmt.Fprintf(&b, "<text x=\"16\" y=\"%d\"%s>%s</text>\n", 16+lineH*(from+i)+13, attributes, html.EscapeString(line))
		}
	}
	return b.String()
}

// The recording plays what the page shows, which TestPage runs.
func TestRecording(t *testing.T) {
	text := pagetest.File(t, "../../docs/how-to/command-line.md")
	var scenes []string
	for _, mark := range []string{"held", "why", "decide"} {
		scenes = append(scenes, pagetest.Block(t, string(text), mark))
	}
	for _, s := range scenes {
		n := 0
		for line := range strings.SplitSeq(s, "\n") {
			n += len(wrap(line))
		}
		require.LessOrEqual(t, n, rows)
	}
	requireGolden(t, "../../../docs/images/idem.svg", draw(scenes...))
}
