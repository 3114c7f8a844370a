package webhook_test

import (
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"example.com/idempotency/internal/guardtest"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/webhook"
)

// github is the simplest party.
var github = parties[1]

func verified(t *testing.T, next http.HandlerFunc, opts ...webhook.VerifyOption) http.Handler {
	t.Helper()
	verify, err := webhook.Verify(github.sender, []string{github.secret}, opts...)
	require.NoError(t, err)
	return verify(next)
}

func reply(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// An endpoint that would let in nothing, or anything, does not start.
func TestVerifyRefusesSettings(t *testing.T) {
	nameless := webhook.Stripe()
	nameless.Name = ""
	for name, err := range map[string]error{
		"no secrets":            failure(webhook.Verify(webhook.Stripe(), nil)),
		"empty secret":          failure(webhook.Verify(webhook.Stripe(), []string{"whsec_1", ""})),
		"line break of a file":  failure(webhook.Verify(webhook.GitHub(), []string{"secret\n"})),
		"no name":               failure(webhook.Verify(nameless, []string{"whsec_1"})),
		"not base64":            failure(webhook.Verify(webhook.Standard("x"), []string{"whsec_!"})),
		"nothing behind whsec_": failure(webhook.Verify(webhook.Standard("x"), []string{"whsec_"})),
		"short public key":      failure(webhook.Verify(webhook.Standard("x"), []string{"whpk_AAAA"})),
		"private key":           failure(webhook.Verify(webhook.Standard("x"), []string{"whsk_AAAA"})),
		"not hexadecimal":       failure(webhook.Verify(webhook.Adyen(), []string{"xyz"})),
		"sender without secret": failure(webhook.Verify(webhook.SNS(), []string{"secret"})),
		"certificate":           failure(webhook.Verify(webhook.PayPal(), []string{"secret"})),
		"own sender":            failure(webhook.Verify(webhook.Sender{Name: "x"}, []string{"secret"})),
		"no function":           failure(webhook.VerifyWith(webhook.SNS(), nil)),
		"no tolerance":          failure(webhook.Verify(webhook.Stripe(), []string{"s"}, webhook.WithTolerance(0))),
		"no body":               failure(webhook.Verify(webhook.Stripe(), []string{"s"}, webhook.WithMaxBody(0))),
		"no clock":              failure(webhook.Verify(webhook.Stripe(), []string{"s"}, webhook.WithClock(nil))),
		"no URL":                failure(webhook.Verify(webhook.Stripe(), []string{"s"}, webhook.WithURL(nil))),
	} {
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "whsec_", name)
		require.NotContains(t, err.Error(), "xyz", name)
	}
}

func failure(_ func(http.Handler) http.Handler, err error) error { return err }

// A guard with Scope refuses what no Verify has let in.
func TestScopeNeedsVerify(t *testing.T) {
	store := idempotency.NewMemoryStore()
	guard := guardtest.NewGuardOf(t, store, webhook.Scope)
	h := guard.With(webhook.GitHub().Options()...).Handler(http.HandlerFunc(process))
	require.Equal(t, http.StatusForbidden, reply(h, github.deliver(github.secret, "e1", 0, time.Time{})).Code)
	require.Zero(t, store.Len())
}

// Two senders may use one name for different events.
func TestSendersDoNotShareNames(t *testing.T) {
	guard := guardtest.NewGuardOf(t, idempotency.NewMemoryStore(), webhook.Scope)
	for _, name := range []string{"GitHub", "GitHub of another organization"} {
		sender := webhook.GitHub()
		sender.Name = name
		verify, err := webhook.Verify(sender, []string{github.secret})
		require.NoError(t, err)
		h := verify(guard.With(sender.Options()...).Handler(http.HandlerFunc(process)))
		for try := range 2 {
			w := reply(h, github.deliver(github.secret, "e1", try, time.Time{}))
			require.Equal(t, http.StatusCreated, w.Code)
			require.Equal(t, try > 0, w.Header().Get("Idempotent-Replayed") == "true", name)
		}
	}
}

// A tenant that is called like the scope of a sender has none of its records. One guard may serve both.
func TestTenantIsNoSender(t *testing.T) {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), func(r *http.Request) (string, error) {
		if scope, err := webhook.Scope(r); err == nil {
			return scope, nil
		}
		user, _, _ := r.BasicAuth()
		return user, nil
	})
	require.NoError(t, err)
	var scope string
	h := guard.With(github.sender.Options()...).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		op, _ := idempotency.FromContext(r.Context())
		scope = op.Key().Scope
		process(w, r)
	}))
	verify, err := webhook.Verify(github.sender, []string{github.secret})
	require.NoError(t, err)
	deliver := func() *http.Request { return github.deliver(github.secret, "e1", 0, time.Time{}) }
	require.Equal(t, http.StatusCreated, reply(verify(h), deliver()).Code)
	require.NotEmpty(t, scope)
	for user, want := range map[string]int{scope: http.StatusForbidden, "webhook GitHub": http.StatusCreated, "GitHub": http.StatusCreated} {
		r := deliver()
		r.SetBasicAuth(user, "any")
		w := reply(h, r)
		require.Equal(t, want, w.Code, "%q", user)
		require.Empty(t, w.Header().Get("Idempotent-Replayed"), "%q", user)
	}
}

func TestRefusalIsAProblemDocument(t *testing.T) {
	h := verified(t, process)
	r := github.deliver("a wrong secret", "e1", 0, time.Time{})
	w := reply(h, r)
	require.Equal(t, http.StatusUnauthorized, w.Code)
	require.NotEmpty(t, w.Header().Get("WWW-Authenticate"))
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.Empty(t, w.Header().Get("Idempotency-Error"), "that is a guard's")
	require.JSONEq(t, `{"type":"about:blank","title":"Unauthorized","status":401,
		"detail":"No signature is one of this delivery with a secret of this endpoint."}`, w.Body.String())
}

func TestBodyOfADelivery(t *testing.T) {
	deliver := func() *http.Request { return github.deliver(github.secret, "e1", 0, time.Time{}) }
	length := int64(len(bodyOf(deliver())))
	require.Equal(t, http.StatusCreated, reply(verified(t, process, webhook.WithMaxBody(length)), deliver()).Code)
	require.Equal(t, http.StatusRequestEntityTooLarge, reply(verified(t, process, webhook.WithMaxBody(length-1)), deliver()).Code)

	r := deliver()
	r.Body = io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF))
	require.Equal(t, http.StatusBadRequest, reply(verified(t, process), r).Code)
	r.Body = nil
	require.Equal(t, http.StatusUnauthorized, reply(verified(t, process), r).Code)

	// A body that came in chunks has a length when it is handed on.
	r = deliver()
	body := bodyOf(r)
	r.ContentLength, r.TransferEncoding = -1, []string{"chunked"}
	var handedOn *http.Request
	reply(verified(t, func(_ http.ResponseWriter, r *http.Request) { handedOn = r }), r)
	require.Equal(t, length, handedOn.ContentLength)
	require.Empty(t, handedOn.TransferEncoding)
	require.Equal(t, body, bodyOf(handedOn))
}

// A guard lets methods that it does not protect pass. A captured delivery must not run by one of them.
func TestOtherMethodsAreRefused(t *testing.T) {
	forEachParty(t, func(t *testing.T, p party) {
		rec := newReceiver(t, p)
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead, http.MethodOptions, "post"} {
			if slices.Contains(p.sender.Methods, method) {
				continue
			}
			r := p.deliver(p.secret, "e1", 0, rec.now)
			r.Method = method
			w := reply(rec, r)
			require.Equal(t, http.StatusMethodNotAllowed, w.Code, method)
			require.Contains(t, w.Header().Get("Allow"), http.MethodPost)
		}
		require.Zero(t, rec.reached)
		require.Zero(t, rec.store.Len())
	})
}

// A sender that cannot be asked now delivers again.
func TestVerificationThatCannotBeMadeNow(t *testing.T) {
	cause := fmt.Errorf("PayPal does not answer: %w", idempotency.ErrTryLater)
	for _, c := range []struct {
		err    error
		status int
	}{{nil, http.StatusCreated}, {errAsked, http.StatusUnauthorized}, {cause, http.StatusServiceUnavailable}} {
		verify, err := webhook.VerifyWith(webhook.PayPal(), func(*http.Request, []byte) error { return c.err })
		require.NoError(t, err)
		w := reply(verify(http.HandlerFunc(process)), post(`{"id":"WH-1"}`))
		require.Equal(t, c.status, w.Code)
		require.Equal(t, errors.Is(c.err, idempotency.ErrTryLater), w.Header().Get("Retry-After") != "")
		require.NotContains(t, w.Body.String(), "does not answer")
		require.NotContains(t, w.Body.String(), errAsked.Error())
	}
}

// The function may parse the form of a delivery, which the handler then finds as well.
func TestVerificationReadsAForm(t *testing.T) {
	verify, err := webhook.VerifyWith(webhook.PayPal(), func(r *http.Request, _ []byte) error { return asked(r.FormValue("account") == "a1") })
	require.NoError(t, err)
	r := post("account=a1&amount=100")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := reply(verify(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.FormValue("amount")) })), r)
	require.Equal(t, "100", w.Body.String())
}

// The files of a form behind the middleware alone are gone after its delivery: the server knows only its own request.
func TestFilesOfADeliveryAreRemoved(t *testing.T) {
	verify, err := webhook.VerifyWith(webhook.PayPal(), func(*http.Request, []byte) error { return nil })
	require.NoError(t, err)
	r := post("--x\r\nContent-Disposition: form-data; name=f; filename=f\r\n\r\nf\r\n--x--\r\n")
	r.Header.Set("Content-Type", "multipart/form-data; boundary=x")
	var files []*multipart.FileHeader
	reply(verify(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(0); err != nil { // no memory for files
			t.Error(err)
			return
		}
		files = r.MultipartForm.File["f"]
	})), r)
	require.Len(t, files, 1)
	_, err = files[0].Open()
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A forged delivery cannot make the receiver compare signatures without end.
func TestTooManySignatures(t *testing.T) {
	p := parties[5]
	rec := newReceiver(t, p)
	r := p.deliver(p.secret, "e1", 0, rec.now) // has two
	r.Header.Set("Webhook-Signature", r.Header.Get("Webhook-Signature")+strings.Repeat(" v1,AAAA", 14))
	status, _ := rec.gets(r)
	require.Equal(t, http.StatusCreated, status)
	r = p.deliver(p.secret, "e2", 0, rec.now)
	r.Header.Set("Webhook-Signature", r.Header.Get("Webhook-Signature")+strings.Repeat(" v1,AAAA", 15))
	status, _ = rec.gets(r)
	require.Equal(t, http.StatusBadRequest, status)
	r = p.deliver(p.secret, "e2", 0, rec.now)
	r.Header.Set("Webhook-Signature", r.Header.Get("Webhook-Signature")+strings.Repeat(" ", 8<<10)+"v1,AAAA")
	status, _ = rec.gets(r)
	require.Equal(t, http.StatusBadRequest, status, "a field without an end")
}
