package profile

import (
	"net/http"
	"time"

	"example.com/idempotency/problem"
)

// This file has the profiles themselves. Each function returns a fresh copy, which the
// caller may change. A test writes docs/reference/profiles.md from data and comments.

// keyField is the field of draft-ietf-httpapi-idempotency-key-header, which most use.
const keyField = "Idempotency-Key"

const day = 24 * time.Hour

// meanings are those of the codes of package problem.
var meanings = []struct {
	code  problem.Code
	means Meaning
}{
	{problem.KeyMissing, Refused},
	{problem.KeyInvalid, Refused},
	{problem.BodyUnreadable, NotRun},
	{problem.BodyTooLarge, Refused},
	{problem.FingerprintFailed, Refused},
	{problem.Unauthenticated, Refused},
	{problem.ScopeUnresolved, Refused},
	{problem.ReplayDenied, Refused},
	{problem.KeyUnknown, Refused}, // of LookupHandler
	{problem.KeyReused, Reused},
	{problem.InFlight, InFlight},
	{problem.OutcomeUnknown, Held},
	{problem.ResponseNotKept, Lost},
	{problem.NoAnswer, Unanswered},
	{problem.RolledBack, NotRun},
	{problem.CannotCommit, Refused},
	{problem.Misplaced, Refused},
	{problem.AnswerUnreadable, Held}, // the record does not tell whether anything has run
	{problem.StoreUnavailable, NotRun},
	{problem.TryLater, NotRun},
	{problem.ShuttingDown, NotRun},
}

// Guard is the profile of the server half of this library, with any error writer. It names
// its refusals in the field Idempotency-Error, and the client believes that field before
// the body.
func Guard() Server {
	s := Server{
		Name:      "guard",
		KeyHeader: keyField,
		Replayed:  Field{"Idempotent-Replayed", "true"},
		Echo:      keyField,
		Expiry:    "Idempotency-TTL",
		MediaType: problem.ContentType,
	}
	for _, m := range meanings {
		s.Rules = append(s.Rules, Rule{Header: Field{problem.Header, string(m.code)}, Means: m.means})
	}
	for _, m := range meanings {
		s.Rules = append(s.Rules, Rule{Member: "code", Value: string(m.code), Means: m.means})
	}
	return s
}

// Draft is the profile of a server that does what the draft of the IETF says, and no more.
// The draft shows 409 for a request that is still processed, 422 for a key that is used
// with another payload, and 400 for a key that is missing. Its documents differ in their
// titles only, and it neither marks recorded answers nor repeats the key.
//
// Sources:
//
//   - https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07#section-2.7
func Draft() Server {
	return Server{
		Name:      "draft",
		KeyHeader: keyField,
		Rules: []Rule{
			{Status: []int{http.StatusConflict}, Member: "title", Value: "*outstanding for this idempotency-key*", Means: InFlight},
			{Status: []int{http.StatusUnprocessableEntity}, Member: "title", Value: "idempotency-key is already used*", Means: Reused},
			{Status: []int{http.StatusBadRequest}, Member: "title", Value: "idempotency-key is missing*", Means: Refused},
		},
	}
}

// Stripe is the profile of the API of Stripe, version 1. It records the first answer once
// execution has begun, also one with status 500, and marks it when it repeats it. A request
// that fails validation or meets another one with the same key is not recorded.
//
// Sources:
//
//   - https://docs.stripe.com/api/idempotent_requests
//   - https://docs.stripe.com/error-low-level
//   - https://docs.stripe.com/error-codes
//   - https://github.com/stripe/stripe-go/blob/master/stripe.go (shouldRetry)
func Stripe() Server {
	return Server{
		Name:      "Stripe",
		KeyHeader: keyField,
		TTL:       day,
		Replayed:  Field{"Idempotent-Replayed", "true"},
		Echo:      keyField,
		RetryHint: "Stripe-Should-Retry",
		Rules: []Rule{
			{Member: "error.code", Value: "idempotency_key_in_use", Means: InFlight},
			{Member: "error.code", Value: "lock_timeout", Means: NotRun},
			{Member: "error.type", Value: "idempotency_error", Means: Reused},
			{Member: "error.type", Value: "card_error", Means: Own},
			{Status: []int{400, 402, 404}, Member: "error.type", Value: "invalid_request_error", Means: Own},
			{Status: []int{http.StatusConflict}, Header: Field{"Stripe-Should-Retry", "false"}, Means: Silent},
			{Status: []int{http.StatusConflict}, Means: InFlight},
		},
	}
}

// Adyen is the profile of the APIs of Adyen. A duplicate that arrives before the first
// request has completed gets 422 or 409 with error code 704. The field transient-error says
// whether the same key may be sent again.
//
// Sources:
//
//   - https://docs.adyen.com/development-resources/api-idempotency
//   - https://docs.adyen.com/development-resources/response-handling
func Adyen() Server {
	return Server{
		Name:      "Adyen",
		KeyHeader: keyField,
		TTL:       7 * day,
		Echo:      keyField,
		RetryHint: "transient-error",
		Rules: []Rule{
			{Member: "errorCode", Value: "704", Means: InFlight},
			{Status: []int{400, 403, 404, 422}, Member: "errorType", Value: "validation", Means: Own},
			{Status: []int{422}, Member: "errorType", Value: "configuration", Means: Own},
		},
	}
}

// Square is the profile of the API of Square, where the key is a member of the body. A
// request without it has no key.
//
// Sources:
//
//   - https://developer.squareup.com/docs/build-basics/common-api-patterns/idempotency
//   - https://developer.squareup.com/reference/square/enums/ErrorCode
func Square() Server {
	return Server{
		Name:      "Square",
		KeyMember: "idempotency_key",
		TTL:       day,
		Rules: []Rule{
			{Member: "errors.code", Value: "IDEMPOTENCY_KEY_REUSED", Means: Reused},
			{Member: "errors.category", Value: "PAYMENT_METHOD_ERROR", Means: Own},
			{Status: []int{400, 404, 422}, Member: "errors.category", Value: "INVALID_REQUEST_ERROR", Means: Own},
		},
	}
}

// PayPal is the profile of the REST API of PayPal. It answers a key that it knows with the
// latest status of the first request, not with a recorded answer. Of two requests at once
// the second may fail. How long keys are kept differs from API to API.
//
// Sources:
//
//   - https://developer.paypal.com/api/rest/reference/idempotency
//   - https://developer.paypal.com/api/rest/reference/orders/v2/errors/
func PayPal() Server {
	return Server{
		Name:      "PayPal",
		KeyHeader: "PayPal-Request-Id",
		TTL:       3 * time.Hour,
		Rules: []Rule{
			{Member: "details.issue", Value: "PREVIOUS_REQUEST_IN_PROGRESS", Means: InFlight},
			{Member: "name", Value: "PREVIOUS_REQUEST_IN_PROGRESS", Means: InFlight},
			{Member: "details.issue", Value: "DUPLICATE_REQUEST_ID", Means: Reused},
			{Member: "name", Value: "DUPLICATE_REQUEST_ID", Means: Reused},
			{Status: []int{400}, Member: "name", Value: "INVALID_REQUEST", Means: Own},
			{Status: []int{404}, Member: "name", Value: "RESOURCE_NOT_FOUND", Means: Own},
			{Status: []int{422}, Member: "name", Value: "UNPROCESSABLE_ENTITY", Means: Own},
		},
	}
}

// GoCardless is the profile of the API of GoCardless. It does not repeat the first answer:
// a key that has created a resource is answered with 409 and the id of that resource, which
// has to be fetched.
//
// Sources:
//
//   - https://developer.gocardless.com/api-reference/#making-requests-idempotency-keys
//   - https://gocardless.com/blog/idempotency-keys/
//   - https://github.com/gocardless/gocardless-pro-ruby (idempotent_creation_conflict)
func GoCardless() Server {
	return Server{
		Name:      "GoCardless",
		KeyHeader: keyField,
		TTL:       day,
		Rules: []Rule{
			{Status: []int{409}, Member: "error.errors.reason", Value: "idempotent_creation_conflict", Means: Lost},
			{Member: "error.type", Value: "validation_failed", Means: Own},
			{Status: []int{400, 404, 422}, Member: "error.type", Value: "invalid_api_usage", Means: Own},
			{Status: []int{409, 422}, Member: "error.type", Value: "invalid_state", Means: Own},
		},
	}
}

// All returns every profile of this package.
func All() []Server {
	return []Server{Guard(), Draft(), Stripe(), Adyen(), Square(), PayPal(), GoCardless()}
}
