package webhook_test

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/idempotency/internal/guardtest"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/webhook"
)

// A party is a sender as the tests play it: it signs by hand what the package verifies.
type party struct {
	sender webhook.Sender
	// secret and other are two secrets of it. Check verifies where no secret does.
	secret, other string
	check         func(*http.Request, []byte) error
	// deliver makes an attempt to deliver an event, at a time. The event has no name if event
	// is empty.
	deliver func(secret, event string, attempt int, at time.Time) *http.Request
	// fields must be there once. The first is the signature.
	fields []string
	timed  bool
	// forge changes what is signed of a delivery.
	forge func(r *http.Request)
	// unsigned is the field with a name that nobody has signed.
	unsigned string
}

var parties = []party{
	{
		sender: webhook.Stripe(), secret: "whsec_one", other: "whsec_two",
		deliver: func(secret, event string, attempt int, at time.Time) *http.Request {
			r := post(fmt.Sprintf(`{"id":%q,"object":"event","pending_webhooks":%d,"data":{}}`, event, 3-attempt))
			mac := sum(sha256.New, secret, unix(at)+"."+bodyOf(r))
			r.Header.Set("Stripe-Signature", "t="+unix(at)+",v1="+hex.EncodeToString(mac)+",v0=00")
			return r
		},
		fields: []string{"Stripe-Signature"}, timed: true, forge: addSpace,
	},
	{
		sender: webhook.GitHub(), secret: "one", other: "two",
		deliver: func(secret, event string, _ int, _ time.Time) *http.Request {
			r := named("X-Github-Delivery", event, `{"ref":"`+event+`"}`)
			r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(sum(sha256.New, secret, bodyOf(r))))
			return r
		},
		fields: []string{"X-Hub-Signature-256", "X-Github-Delivery"}, forge: addSpace, unsigned: "X-Github-Delivery",
	},
	{
		sender: webhook.Shopify(), secret: "one", other: "two",
		deliver: func(secret, event string, _ int, _ time.Time) *http.Request {
			r := named("X-Shopify-Webhook-Id", event, `{"title":"`+event+`"}`)
			r.Header.Set("X-Shopify-Event-Id", "of several topics")
			r.Header.Set("X-Shopify-Hmac-Sha256", base64.StdEncoding.EncodeToString(sum(sha256.New, secret, bodyOf(r))))
			return r
		},
		fields: []string{"X-Shopify-Hmac-Sha256", "X-Shopify-Webhook-Id"}, forge: addSpace, unsigned: "X-Shopify-Webhook-Id",
	},
	{
		sender: webhook.Slack(), secret: "one", other: "two",
		deliver: func(secret, event string, attempt int, at time.Time) *http.Request {
			r := post(fmt.Sprintf(`{"type":"event_callback","event_id":%q}`, event))
			if attempt > 0 {
				r.Header.Set("X-Slack-Retry-Num", strconv.Itoa(attempt))
			}
			r.Header.Set("X-Slack-Request-Timestamp", unix(at))
			r.Header.Set("X-Slack-Signature", "v0="+hex.EncodeToString(sum(sha256.New, secret, "v0:"+unix(at)+":"+bodyOf(r))))
			return r
		},
		fields: []string{"X-Slack-Signature", "X-Slack-Request-Timestamp"}, timed: true, forge: addSpace,
	},
	{
		sender: webhook.Twilio(), secret: "one", other: "two",
		deliver: func(secret, event string, _ int, _ time.Time) *http.Request {
			params := url.Values{"To": {"+1800"}, "From": {"+1234"}, "ToCity": {event}, "Body": {"a b&c=ü"}}
			r := named("I-Twilio-Idempotency-Token", event, params.Encode())
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=UTF-8")
			text := "https://example.com/hooks?tenant=1" + "Bodya b&c=ü" + "From+1234" + "To+1800" + "ToCity" + event
			r.Header.Set("X-Twilio-Signature", base64.StdEncoding.EncodeToString(sum(sha1.New, secret, text)))
			return r
		},
		fields: []string{"X-Twilio-Signature", "I-Twilio-Idempotency-Token"}, unsigned: "I-Twilio-Idempotency-Token",
		forge: func(r *http.Request) { setBody(r, strings.Replace(bodyOf(r), "1800", "1900", 1)) },
	},
	{
		sender: webhook.Standard("Standard Webhooks"), secret: "whsec_b25l", other: "whsec_dHdv", // one, two
		deliver: func(secret, event string, _ int, at time.Time) *http.Request {
			r := named("Webhook-Id", event, `{"type":"paid"}`)
			r.Header.Set("Webhook-Timestamp", unix(at))
			bytes, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
			mac := sum(sha256.New, string(bytes), event+"."+unix(at)+"."+bodyOf(r))
			r.Header.Set("Webhook-Signature", "v2,bm9uZQ== v1,"+base64.StdEncoding.EncodeToString(mac))
			return r
		},
		fields: []string{"Webhook-Signature", "Webhook-Id", "Webhook-Timestamp"}, timed: true, forge: addSpace,
	},
	{
		sender: webhook.CloudEvents("CloudEvents"), secret: "one", other: "two",
		deliver: func(secret, event string, attempt int, _ time.Time) *http.Request {
			r := named("Ce-Id", event, `{"amount":1}`)
			r.Header.Set("Ce-Source", "/bank")
			if attempt > 0 {
				r = post(fmt.Sprintf(`{"id":%q,"source":"/bank","data":{"amount":1}}`, event))
				r.Header.Set("Content-Type", "application/cloudevents+json")
			}
			r.Header.Set("Authorization", "Bearer "+secret)
			return r
		},
		fields: []string{"Authorization", "Ce-Id"},
	},
	{
		sender: webhook.SNS(), check: func(_ *http.Request, body []byte) error { return asked(strings.Contains(string(body), "of-one")) },
		secret: "one", other: "two",
		deliver: func(secret, event string, attempt int, _ time.Time) *http.Request {
			r := post(fmt.Sprintf(`{"Type":"Notification","MessageId":%q,"Signature":"%d-of-%s"}`, event, attempt, secret))
			r.Header.Set("Content-Type", "text/plain; charset=UTF-8")
			return r
		},
	},
	{
		sender: webhook.PayPal(), check: func(r *http.Request, _ []byte) error {
			return asked(r.Header.Get("Paypal-Transmission-Sig") == "of-one")
		},
		secret: "one", other: "two",
		deliver: func(secret, event string, attempt int, at time.Time) *http.Request {
			r := post(fmt.Sprintf(`{"id":%q,"event_type":"PAYMENT.CAPTURE.COMPLETED"}`, event))
			r.Header.Set("Paypal-Transmission-Id", strconv.Itoa(attempt))
			r.Header.Set("Paypal-Transmission-Time", at.Format(time.RFC3339))
			r.Header.Set("Paypal-Transmission-Sig", "of-"+secret)
			return r
		},
		fields: []string{"Paypal-Transmission-Sig"},
	},
	{
		sender: webhook.Adyen(), secret: "0A0B", other: "0C0D",
		deliver: func(secret, event string, attempt int, at time.Time) *http.Request {
			key, _ := hex.DecodeString(secret)
			mac := sum(sha256.New, string(key), event+"::shop:ref 1:1000:EUR:AUTHORISATION:true")
			return post(fmt.Sprintf(`{"live":"false","notificationItems":[{"NotificationRequestItem":{"pspReference":%q,`+
				`"merchantAccountCode":"shop","merchantReference":"ref 1","amount":{"value":1000,"currency":"EUR"},`+
				`"eventCode":"AUTHORISATION","success":"true","eventDate":%q,`+
				`"additionalData":{"try":"%d","hmacSignature":%q}}}]}`,
				event, at.Format(time.RFC3339), attempt, base64.StdEncoding.EncodeToString(mac)))
		},
		forge: func(r *http.Request) { setBody(r, strings.Replace(bodyOf(r), "1000", "9000", 1)) },
	},
}

var errAsked = errors.New("the sender says no")

func asked(yes bool) error {
	if yes {
		return nil
	}
	return errAsked
}

func post(body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/hooks?tenant=1", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return r
}

func named(field, name, body string) *http.Request {
	r := post(body)
	if name != "" {
		r.Header.Set(field, name)
	}
	return r
}

func bodyOf(r *http.Request) string {
	body, _ := io.ReadAll(r.Body)
	setBody(r, string(body))
	return string(body)
}

func setBody(r *http.Request, body string) {
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
}

func addSpace(r *http.Request) { setBody(r, bodyOf(r)+" ") }

func sum(h func() hash.Hash, secret, text string) []byte {
	mac := hmac.New(h, []byte(secret))
	_, _ = io.WriteString(mac, text)
	return mac.Sum(nil)
}

func unix(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }

// A receiver is an endpoint for a party, and counts what gets through.
type receiver struct {
	http.Handler
	store *idempotency.MemoryStore
	now   time.Time
	// reached counts what Verify lets in, and runs counts what the guard runs.
	reached, runs int
	body          string
}

func newReceiver(t *testing.T, p party, secrets ...string) *receiver {
	t.Helper()
	rec := &receiver{store: idempotency.NewMemoryStore(), now: time.Unix(1_700_000_000, 0)}
	guard := guardtest.NewGuardOf(t, rec.store, webhook.Scope)
	verify, err := webhook.VerifyWith(p.sender, p.check)
	if p.check == nil {
		verify, err = webhook.Verify(p.sender, append(secrets, p.secret), webhook.WithClock(func() time.Time { return rec.now }))
	}
	require.NoError(t, err)
	protected := guard.With(p.sender.Options()...).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec.runs++
		rec.body = bodyOf(r)
		w.WriteHeader(http.StatusCreated)
	}))
	rec.Handler = verify(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec.reached++
		protected.ServeHTTP(w, r)
	}))
	return rec
}

// gets delivers a request and returns the status and whether the answer is a replay.
func (rec *receiver) gets(r *http.Request) (status int, replayed bool) {
	w := httptest.NewRecorder()
	rec.ServeHTTP(w, r)
	return w.Code, w.Header().Get("Idempotent-Replayed") == "true"
}

func forEachParty(t *testing.T, test func(t *testing.T, p party)) {
	t.Helper()
	for _, p := range parties {
		t.Run(p.sender.Name, func(t *testing.T) {
			test(t, p)
		})
	}
}

// A redelivery differs in whatever the sender changes: time, signature, counters, form. It is
// answered from the record.
func TestRedeliveriesRunOnce(t *testing.T) {
	forEachParty(t, func(t *testing.T, p party) {
		rec := newReceiver(t, p)
		for attempt := range 3 {
			r := p.deliver(p.secret, "e1", attempt, rec.now)
			body := bodyOf(r)
			status, replayed := rec.gets(r)
			require.Equal(t, http.StatusCreated, status)
			require.Equal(t, attempt > 0, replayed)
			if attempt == 0 {
				require.Equal(t, body, rec.body, "the handler reads what was verified")
			}
			rec.now = rec.now.Add(time.Hour)
		}
		require.Equal(t, 1, rec.runs)
		status, replayed := rec.gets(p.deliver(p.secret, "e2", 0, rec.now))
		require.Equal(t, http.StatusCreated, status)
		require.False(t, replayed)
		require.Equal(t, 2, rec.runs, "another event")
	})
}

// A delivery that Verify refuses leaves no trace: the genuine one runs afterwards.
func TestForgedDeliveriesClaimNothing(t *testing.T) {
	forEachParty(t, func(t *testing.T, p party) {
		rec := newReceiver(t, p)
		refused := func(r *http.Request, want ...int) {
			t.Helper()
			status, _ := rec.gets(r)
			require.Contains(t, want, status)
			require.Zero(t, rec.runs)
			require.Zero(t, rec.store.Len())
		}
		genuine := func() *http.Request { return p.deliver(p.secret, "e1", 0, rec.now) }

		refused(p.deliver(p.other, "e1", 0, rec.now), http.StatusUnauthorized)
		if p.forge != nil {
			r := genuine()
			p.forge(r)
			refused(r, http.StatusUnauthorized)
		}
		if p.timed {
			for _, off := range []time.Duration{5*time.Minute + time.Second, -5*time.Minute - time.Second} {
				refused(p.deliver(p.secret, "e1", 0, rec.now.Add(off)), http.StatusUnauthorized)
			}
		}
		for i, field := range p.fields {
			r := genuine()
			r.Header.Del(field)
			if i == 0 {
				refused(r, http.StatusUnauthorized)
			} else {
				refused(r, http.StatusUnauthorized, http.StatusBadRequest)
			}
			if p.check != nil {
				continue // that function is the test's own
			}
			r = genuine()
			r.Header[field] = append(r.Header[field], r.Header[field]...)
			refused(r, http.StatusBadRequest)
			for _, garbage := range []string{"", ",", "=", "t=1", "v1,", "é", "Bearer "} {
				r = genuine()
				r.Header[field] = []string{garbage}
				if field != p.unsigned && field != "Ce-Id" {
					refused(r, http.StatusUnauthorized, http.StatusBadRequest)
				}
			}
		}
		status, replayed := rec.gets(genuine())
		require.Equal(t, http.StatusCreated, status)
		require.False(t, replayed)
	})
}

// A delivery is good for as long as the tolerance says.
func TestToleranceOfTime(t *testing.T) {
	forEachParty(t, func(t *testing.T, p party) {
		rec := newReceiver(t, p)
		for i, off := range []time.Duration{5 * time.Minute, -5 * time.Minute} {
			status, _ := rec.gets(p.deliver(p.secret, strconv.Itoa(i+1), 0, rec.now.Add(off)))
			require.Equal(t, http.StatusCreated, status)
		}
	})
}

// While secrets are rotated, deliveries are signed with the one or the other.
func TestRotationOfSecrets(t *testing.T) {
	forEachParty(t, func(t *testing.T, p party) {
		if p.check != nil {
			t.Skip("no secret of this package")
		}
		rec := newReceiver(t, p, p.other)
		for i, secret := range []string{p.other, p.secret} {
			status, replayed := rec.gets(p.deliver(secret, "e1", i, rec.now))
			require.Equal(t, http.StatusCreated, status)
			require.Equal(t, i > 0, replayed)
		}
	})
}

// A delivery that is signed and has no name is refused: it would run unprotected.
func TestSignedDeliveryWithoutAName(t *testing.T) {
	forEachParty(t, func(t *testing.T, p party) {
		rec := newReceiver(t, p)
		status, _ := rec.gets(p.deliver(p.secret, "", 0, rec.now))
		require.Contains(t, []int{http.StatusBadRequest, http.StatusUnauthorized}, status)
		require.Zero(t, rec.runs)
		require.Zero(t, rec.store.Len())
	})
}

// Where the name is not signed, a captured delivery cannot take the name of another event.
func TestUnsignedNameIsTiedToTheBody(t *testing.T) {
	forEachParty(t, func(t *testing.T, p party) {
		if p.unsigned == "" {
			t.Skip("the name is signed")
		}
		rec := newReceiver(t, p)
		status, _ := rec.gets(p.deliver(p.secret, "e1", 0, rec.now))
		require.Equal(t, http.StatusCreated, status)
		r := p.deliver(p.secret, "e2", 0, rec.now)
		r.Header.Set(p.unsigned, "e1")
		status, _ = rec.gets(r)
		require.Equal(t, http.StatusConflict, status)
		require.Equal(t, 1, rec.runs)
	})
}

func TestSendersAreComplete(t *testing.T) {
	require.Len(t, webhook.Senders(), len(parties))
	var names []string
	for _, s := range webhook.Senders() {
		require.NotContains(t, names, s.Name)
		names = append(names, s.Name)
		require.NotNil(t, s.Key)
		require.NotNil(t, s.Fingerprint)
		require.GreaterOrEqual(t, s.TTL, 24*time.Hour)
		require.True(t, slices.ContainsFunc(parties, func(p party) bool { return p.sender.Name == s.Name }), s.Name)
	}
}
