package humaidempotency

import (
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"example.com/idempotency/problem"
)

// refusals writes the refusals of a guard as huma's errors.
type refusals struct{ api huma.API }

// write is an argument of idempotency.WithErrorWriter.
func (f refusals) write(w http.ResponseWriter, r *http.Request, p problem.Document) {
	ctx, _ := Context(r.Context())
	refusal := huma.NewErrorWithContext(ctx, p.Status, p.Detail,
		&huma.ErrorDetail{Message: p.Title, Location: "header.Idempotency-Key", Value: p.Code})
	if model, ok := refusal.(*huma.ErrorModel); ok {
		model.Type, model.Title = p.Type, p.Title
	}
	mediaType, err := f.api.Negotiate(ctx.Header("Accept"))
	if err != nil {
		mediaType = "application/json"
	}
	if filter, ok := refusal.(huma.ContentTypeFilter); ok {
		mediaType = filter.ContentType(mediaType)
	}
	// The status is that of the refusal, whatever huma's functions make of it: what clients may do
	// depends on it.
	body, err := f.api.Transform(ctx, strconv.Itoa(p.Status), refusal)
	if err != nil {
		body = refusal
	}
	w.Header().Set("Content-Type", mediaType)
	w.WriteHeader(p.Status)
	_ = f.api.Marshal(w, mediaType, body) // a client that is gone needs no answer
}
