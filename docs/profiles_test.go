package docs_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/idempotency/internal/pagetest"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/client/profile"
)

const profilesPage = "reference/profiles.md"

// meanings are what the client takes from an answer, in the words of a reader.
var meanings = map[profile.Meaning]string{
	profile.Silent:     "nothing about the key",
	profile.Own:        "the server itself has refused this request",
	profile.InFlight:   "another attempt is running",
	profile.NotRun:     "not executed; may be sent again",
	profile.Refused:    "this attempt was refused; nothing about earlier ones",
	profile.Reused:     "the key belongs to another request: `ErrKeyReused`",
	profile.Held:       "the server does not know the outcome, and runs nothing: `ErrHeld`",
	profile.Lost:       "executed, and the answer cannot be had: `ErrAnswerLost`",
	profile.Unanswered: "may have been executed; may be sent again",
}

// The page of profiles has all that each profile says, and the comment of its function.
func TestProfilesPage(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Profiles of servers\n\nFor authors of clients. At the end, you know what the client takes from the answers of a server, " +
		"and what to change in a copy. `go test ./docs -run Profiles -write` writes this page from package `client/profile`.\n\n" +
		"The vendors change their APIs, and do not publish everything. No profile has been tried against the vendor itself. " +
		"Of the rows of a table, the first one that fits an answer decides. A name in the first column is a field of the answer or a member of its JSON body; `*` stands for anything.\n")
	pkg := packageDoc(t, "client/profile")
	for _, typ := range pkg.Types {
		for _, f := range typ.Funcs {
			if f.Name == "All" {
				continue
			}
			i := slices.IndexFunc(profile.All(), func(s profile.Server) bool { return strings.EqualFold(s.Name, f.Name) })
			require.GreaterOrEqual(t, i, 0, "All has no %s", f.Name)
			about, sources, _ := strings.Cut(f.Doc, "Sources:\n")
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", f.Name, strings.Join(strings.Fields(about), " "))
			writeProfile(&b, profile.All()[i])
			if sources != "" {
				b.WriteString("\nSources:\n\n")
				for _, s := range strings.Split(strings.Join(strings.Fields(sources), " "), "- ")[1:] {
					address, note, _ := strings.Cut(strings.TrimSpace(s), " ")
					b.WriteString(strings.TrimSpace("- <"+address+"> "+note) + "\n")
				}
			}
		}
	}
	require.Equal(t, len(profile.All()), strings.Count(b.String(), "\n## "))
	if *write {
		require.NoError(t, os.WriteFile(profilesPage, []byte(b.String()), 0o600))
	}
	got := pagetest.File(t, profilesPage)
	if b.String() != string(got) {
		t.Error("docs/reference/profiles.md is not up to date: go test ./docs -run Profiles -write")
	}
}

func writeProfile(b *strings.Builder, s profile.Server) {
	b.WriteString("\n| | |\n|---|---|\n")
	for _, row := range [][3]string{
		{"the key is in the field", s.KeyHeader, ""},
		{"the key is in the member of the body", s.KeyMember, ""},
		{"a recorded answer is marked by", strings.TrimSuffix(s.Replayed.Name+": "+s.Replayed.Value, ": "), "nothing"},
		{"the server repeats the key in", s.Echo, "no field"},
		{"the server says for how many seconds it remembers a key in", s.Expiry, ""},
		{"the server says whether a retry makes sense in", s.RetryHint, ""},
	} {
		if name := row[1]; name != "" {
			fmt.Fprintf(b, "| %s | `%s` |\n", row[0], name)
		} else if row[2] != "" {
			fmt.Fprintf(b, "| %s | %s |\n", row[0], row[2])
		}
	}
	life := "as long as `WithTTL` of the client says"
	if s.TTL > 0 {
		life = fmt.Sprintf("%d hours", s.TTL/time.Hour)
	}
	fmt.Fprintf(b, "| a key lives | %s |\n\n| an answer with | means |\n|---|---|\n", life)
	for i := 0; i < len(s.Rules); {
		means, last := s.Rules[i].Means, ""
		var has []string
		for ; i < len(s.Rules) && s.Rules[i].Means == means; i++ {
			what, value := condition(s.Rules[i])
			if what == last {
				has[len(has)-1] += ", " + value
			} else {
				has = append(has, what+value)
			}
			last = what
		}
		fmt.Fprintf(b, "| %s | %s |\n", strings.Join(has, "; or "), meanings[means])
	}
}

// condition is what an answer must have to match a rule: where to look, and what is there.
func condition(r profile.Rule) (what, value string) {
	if len(r.Status) > 0 {
		what = "status " + strings.Trim(strings.ReplaceAll(fmt.Sprint(r.Status), " ", ", "), "[]")
	}
	for _, f := range []profile.Field{r.Header, {Name: r.Member, Value: r.Value}} {
		if f.Name != "" {
			what, value = what+value+", `"+f.Name+"` = ", "`"+f.Value+"`"
		}
	}
	return strings.TrimPrefix(what, ", "), value
}
