package policytest

import (
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/idempotency/internal/pagetest"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/race"
	"example.com/idempotency/policy"
	"example.com/idempotency/problem"
)

// mostSet is how many fields of a policy are set at most. A sentence that needed more of them would have no proof.
const mostSet = 4

// everyPolicy calls f with a policy for each combination of what its fields can be: set or not
// set, and each binding.
func everyPolicy(f func(p policy.Policy)) {
	var p policy.Policy
	vary(reflect.ValueOf(&p).Elem(), mostSet, func(int) { f(p) })
}

// vary calls f with each value of v, and how many other fields may still be set.
func vary(v reflect.Value, left int, f func(left int)) {
	values := []any{reflect.Zero(v.Type()).Interface()}
	switch v.Interface().(type) {
	case policy.Binding:
		values = []any{policy.Exact, policy.JSON, policy.Own}
	case bool:
		values = append(values, true)
	case string:
		values = append(values, "X")
	case []policy.Answers:
		values = append(values, []policy.Answers{{
			Outcome: idempotency.NotExecuted.String(), Statuses: []policy.Range{{From: 307, To: 308}},
		}})
	case time.Duration:
		values = append(values, time.Hour)
	case int:
		values = append(values, 2)
	case policy.Key:
		varyFields(v, 0, left, f)
		return
	case policy.Policy:
		varyFields(v, 0, left, f)
		return
	}
	if left == 0 {
		values = values[:1]
	}
	for i, value := range values {
		v.Set(reflect.ValueOf(value))
		f(left - min(i, 1))
	}
}

func varyFields(v reflect.Value, i, left int, f func(left int)) {
	if i == v.NumField() {
		f(left)
		return
	}
	field := v.Field(i)
	if field.Kind() == reflect.String && field.Type() == reflect.TypeFor[string]() && !strings.Contains(v.Type().Field(i).Tag.Get("json"), "omitempty") {
		field.SetString("X") // it is always there
		varyFields(v, i+1, left, f)
		return
	}
	vary(field, left, func(left int) { varyFields(v, i+1, left, f) })
}

// No sentence can be published that has no proof, and no proof is of a sentence that nobody
// publishes.
func TestEachSentenceHasAProof(t *testing.T) {
	if race.Enabled {
		t.Skip("it only computes: there is nothing to detect")
	}
	published := make(map[string]bool)
	everyPolicy(func(p policy.Policy) {
		seen := make(map[string]bool)
		for _, r := range p.Rules() {
			if seen[r.ID] || strings.Contains(r.Text, "%!") {
				t.Errorf("%s is there twice, or not a sentence: %s", r.ID, r.Text)
			}
			seen[r.ID], published[r.ID] = true, true
		}
	})
	require.ElementsMatch(t, slices.Collect(maps.Keys(published)), slices.Collect(maps.Keys(allRules())))
}

// provenBy tells, for each field of a policy, which sentences or tests hold it against a guard.
var provenBy = map[string]string{
	"Route": "TestFieldsOfThePolicy", "URL": "TestProblemsLeadToTheirExplanations",
	"Methods": "methods", "Required": "key-required", "Key": "key", "Shared": "shared", "Binding": "binding-exact", "Rebinding": "corrected",
	"MaxRequestBody": "max-request", "TTL": "end", "MaxResponseBody": "max-response", "Wait": "wait",
	"Answers": "TestAnswers", "Hold": "hold", "Attempts": "rerun-limited", "HeldFor": "hold-ends", "FailOpen": "fail-open",
	"ReplayedHeader": "replay", "ErrorHeader": "problems", "ExpiryHeader": "expiry", "Problems": "own-errors",
	"Refusals": "TestRefusals",
}

func TestFieldsOfThePolicy(t *testing.T) {
	typ := reflect.TypeFor[policy.Policy]()
	for field := range typ.Fields() {
		name := field.Name
		by := provenBy[name]
		require.NotEmpty(t, by, "the field %s has no proof", name)
		if _, rule := allRules()[by]; !rule {
			require.Regexp(t, "^Test", by)
		}
	}
	require.Len(t, provenBy, typ.NumField())
	require.Equal(t, "POST /charges", newAPI(t, false, idempotency.WithRoute("POST /charges")).policy.Route)
}

// publishedAs tells, for each option of a guard, the field of the policy that says what it means
// for clients, or "" if it means nothing to them.
var publishedAs = map[string]string{
	"WithTTL": "TTL", "WithRetention": "HeldFor", "WithWait": "Wait", "WithRequired": "Required", "WithMethods": "Methods",
	"WithHeader": "Key", "WithStrictKeys": "Key", "WithKeyFunc": "Key", "WithFingerprint": "Binding",
	"WithLimits":  "MaxRequestBody",
	"WithOutcome": "Answers", "WithRebinding": "Rebinding", "WithRecovery": "Hold", "WithMismatchStatus": "Refusals", "WithErrorWriter": "Problems",
	"WithPolicyURL": "URL", "WithExpiryHeader": "ExpiryHeader", "WithFailOpen": "FailOpen", "WithAuthorizeReplay": "Refusals",
	"WithRoute": "Route", "WithTransaction": "Answers",
	// How the server works, and what only its operators see.
	"WithLease": "", "WithShadow": "", "WithUnrecorded": "", "WithSilence": "", "WithObserver": "", "WithLogger": "", "WithClientCancel": "",
	"WithSealer": "", "WithKeptKeys": "", "WithDerivation": "", "WithResolver": "", "WithReference": "", "WithFindableScope": "", "WithTombstones": "",
}

// A new option says what it means for clients.
func TestEachOptionIsPublishedOrNot(t *testing.T) {
	files, err := filepath.Glob("../../*.go")
	require.NoError(t, err)
	var options []string
	for _, file := range files {
		source := pagetest.File(t, file)
		for _, found := range regexp.MustCompile(`(?m)^func (With\w+)\(.*\) Option `).FindAllSubmatch(source, -1) {
			options = append(options, string(found[1]))
		}
	}
	require.ElementsMatch(t, options, slices.Collect(maps.Keys(publishedAs)))
	for option, field := range publishedAs {
		_, ok := reflect.TypeFor[policy.Policy]().FieldByName(field)
		require.True(t, ok || field == "", option)
	}
}

// No code can be published with a status that has no proof.
func TestEachRefusalHasAProof(t *testing.T) {
	proven := map[problem.Code][]int{lateBody.code: {lateBody.status}}
	for _, r := range slices.Concat(refusals, ofScope, ofTransaction) {
		proven[r.code] = append(proven[r.code], r.status)
	}
	everything := newAPI(t, false, idempotency.WithRequired(true), idempotency.WithAuthorizeReplay(refuseReplay),
		idempotency.WithFingerprint(refuseFingerprint))
	var published []problem.Code
	transaction := guardtest.NewGuard(t, guardtest.NewTxStore(), idempotency.WithTransaction(true)).Policy()
	added := slices.DeleteFunc(transaction.Refusals, func(r policy.Refusal) bool { return !r.Code.Undone() })
	for _, r := range slices.Concat(everything.policy.Refusals, added) {
		published = append(published, r.Code)
		for _, status := range r.Statuses {
			require.Contains(t, proven[r.Code], status, r.Code)
		}
	}
	published = append(published, problem.KeyUnknown, problem.Misplaced) // of LookupHandler, and of a program that has a mistake
	require.ElementsMatch(t, problem.Codes(), published)
}
