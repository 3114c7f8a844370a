package inspect

import (
	"context"
	"net/http"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/store"
)

// This file is what an operator's tool asks of a guard beside Lookup, Resolve and Forget.

// StoreOf returns the store of a guard.
func StoreOf(g *idempotency.Guard) store.Store { return g.Hook().Engine().Store() }

// SealsElsewhere reports whether a guard seals nothing, and another guard that was made from the same one does.
func SealsElsewhere(g *idempotency.Guard) bool { return g.Hook().Engine().SealsElsewhere() }

// TTLOf returns how long a guard keeps answers.
func TTLOf(g *idempotency.Guard) time.Duration { return g.Hook().Engine().TTL() }

// A RecordedAnswer is the answer that retries get.
type RecordedAnswer struct {
	// Kind is that of the stored form.
	Kind   answer.Kind
	Status int
	Header http.Header
	Body   []byte
}

// ReadAnswer returns the recorded answer of a record to an actor, which is an [event.AnswerRead].
func ReadAnswer(ctx context.Context, g *idempotency.Guard, name, actor string) (RecordedAnswer, error) {
	a, err := g.Hook().Engine().Answer(ctx, intent.Key{Record: name}, actor)
	return recordedAnswer(&a), err
}

func recordedAnswer(a *answer.Answer) RecordedAnswer {
	return RecordedAnswer{Kind: a.Kind, Status: a.Status, Header: a.Fields(), Body: a.Body}
}

// HasResolver reports whether somebody can be asked about records of a route.
func HasResolver(g *idempotency.Guard, route string) bool {
	return g.Hook().Engine().HasResolver(route)
}

// A Word is what a resolver says about a held record.
type Word struct {
	Type     string  `json:"type"`
	Record   string  `json:"record"`
	Decision string  `json:"decision" jsonschema:"final, not-executed or resume; unknown if it does not know"`
	Answer   *Answer `json:"answer,omitempty"`
	Reason   string  `json:"reason,omitempty" jsonschema:"in a story also why it could not be asked"`
}

// String tells it in a line.
func (w Word) String() string {
	says := "The resolver says now: " + w.Decision
	if w.Answer != nil {
		says += ", with " + w.Answer.String()
	}
	if w.Reason != "" {
		says += ": " + w.Reason
	}
	return says
}

// AskResolver returns what the resolver of a held record says, and settles nothing.
func AskResolver(ctx context.Context, g *idempotency.Guard, name string) (Word, error) {
	res, fp, err := g.Hook().Engine().Suggest(ctx, intent.Key{Record: name})
	w := Word{Type: "word", Record: name, Decision: "unknown", Reason: res.Reason}
	if err != nil {
		return w, err
	}
	for word, outcome := range Outcomes {
		if outcome == res.Outcome {
			w.Decision = word
		}
	}
	if res.Outcome == idempotency.Final {
		a, err := res.Answer(fp)
		if err != nil {
			return w, err
		}
		shown := recordedAnswer(a)
		w.Answer = &Answer{a.Status, shown.Header.Get("Content-Type"), len(a.Body)}
	}
	return w, nil
}
