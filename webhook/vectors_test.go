package webhook_test

import (
	"crypto/ed25519"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/webhook"
)

// This file has deliveries with the signatures that senders have published, and what is
// particular to single senders.

const form = "application/x-www-form-urlencoded"

// statusOf is what an endpoint of a sender answers to a delivery at a time.
func statusOf(t *testing.T, s webhook.Sender, secret string, at time.Time, r *http.Request, opts ...webhook.VerifyOption) int {
	t.Helper()
	opts = append(opts, webhook.WithClock(func() time.Time { return at }))
	verify, err := webhook.Verify(s, []string{secret}, opts...)
	require.NoError(t, err)
	return reply(verify(http.HandlerFunc(process)), r).Code
}

func TestPublishedSignatures(t *testing.T) {
	const slackBody = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar" +
		"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands" +
		"%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
	with := func(body string, fields ...string) *http.Request {
		r := post(body)
		for i := 0; i < len(fields); i += 2 {
			r.Header.Set(fields[i], fields[i+1])
		}
		return r
	}
	for name, c := range map[string]struct {
		sender webhook.Sender
		secret string
		at     int64
		r      *http.Request
	}{
		"GitHub": {webhook.GitHub(), "It's a Secret to Everybody", 0, with("Hello, World!",
			"X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")},
		"Standard Webhooks": {webhook.Standard("x"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", 1614265330, with(`{"test": 2432232314}`,
			"Webhook-Id", "msg_p5jXN8AQM9LWM0D4loKWxJek", "Webhook-Timestamp", "1614265330",
			"Webhook-Signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")},
		"Slack": {webhook.Slack(), "8f742231b10e8888abcd99yyyzzz85a5", 1531420618, with(slackBody,
			"X-Slack-Request-Timestamp", "1531420618",
			"X-Slack-Signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503")},
		"Twilio": {webhook.Twilio(), "12345", 0, with("Digits=1234&To=%2B18005551212&From=%2B12349013030&Caller=%2B12349013030&CallSid=CA1234567890ABCDE",
			"Content-Type", "application/x-www-form-urlencoded", "X-Twilio-Signature", "0/KCTR6DLpKmkAf8muzZqo1nDgQ=")},
		"Adyen": {webhook.Adyen(), "DFB1EB5485895CFA84146406857104ABB4CBCABDC8AAF103A624C8F6A3EAAB00", 0, with(
			`{"notificationItems":[{"NotificationRequestItem":{"additionalData":{"hmacSignature":"ipnxGCaUZ4l8TUW75a71/ghd2Fe5ffvX0pV4TLTntIc="},
			"amount":{"currency":"EUR","value":1000},"eventCode":"EVENT","merchantAccountCode":"merchantAccount","merchantReference":"reference",
			"originalReference":"originalReference","paymentMethod":"VISA","pspReference":"pspReference","reason":"reason","success":"true"}}]}`)},
	} {
		t.Run(name, func(t *testing.T) {
			target := webhook.WithURL(func(*http.Request) string { return "https://mycompany.com/myapp.php?foo=1&bar=2" })
			body := bodyOf(c.r)
			require.Equal(t, http.StatusCreated, statusOf(t, c.sender, c.secret, time.Unix(c.at, 0), c.r, target))
			setBody(c.r, strings.Replace(body, "2", "3", 1)+"&x=y")
			require.GreaterOrEqual(t, statusOf(t, c.sender, c.secret, time.Unix(c.at, 0), c.r, target), 400)
		})
	}
}

func TestStripeSignatures(t *testing.T) {
	at, body := time.Unix(1_700_000_000, 0), `{"id":"evt_1"}`
	good := hex.EncodeToString(sum(sha256.New, "whsec_1", unix(at)+"."+body))
	bad := strings.Repeat("0", 64)
	for value, want := range map[string]int{
		"t=1700000000,v1=" + good:                  http.StatusCreated,
		"t=1700000000,v1=" + bad + ",v1=" + good:   http.StatusCreated, // while Stripe rotates
		"v1=" + good + ",t=1700000000,v9=x":        http.StatusCreated,
		"t=1700000000,v0=" + good:                  http.StatusUnauthorized,
		"t=1700000000":                             http.StatusUnauthorized,
		"t=1700000000,v1=":                         http.StatusUnauthorized,
		"t=1700000000,v1=" + good[:62]:             http.StatusUnauthorized,
		"t=1700000001,v1=" + good:                  http.StatusUnauthorized,
		"v1=" + good:                               http.StatusBadRequest,
		"t=,v1=" + good:                            http.StatusBadRequest,
		"t=-1700000000,v1=" + good:                 http.StatusBadRequest,
		"t=1700000000,t=1700000000,v1=" + good:     http.StatusBadRequest,
		"t=1700000000,v1=" + good + ",x":           http.StatusBadRequest,
		"t=1700000000,v1=x" + good:                 http.StatusBadRequest,
		"t=99999999999999999999999,v1=" + good:     http.StatusBadRequest,
		"t=1700000000,v1=" + strings.ToUpper(good): http.StatusCreated,
		"t=1700000000, v1=" + good:                 http.StatusUnauthorized,
		"t=1700000000;v1=" + good:                  http.StatusBadRequest,
	} {
		r := post(body)
		r.Header.Set("Stripe-Signature", value)
		require.Equal(t, want, statusOf(t, webhook.Stripe(), "whsec_1", at, r), value)
	}
}

// Senders with a key pair sign with Ed25519. A key of one kind does not verify the other.
func TestStandardWebhooksWithAKeyPair(t *testing.T) {
	private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	public := base64.StdEncoding.EncodeToString(private.Public().(ed25519.PublicKey))
	at, body := time.Unix(1_700_000_000, 0), `{"type":"paid"}`
	deliver := func(id, version string, mac []byte) *http.Request {
		r := named("Webhook-Id", id, body)
		r.Header.Set("Webhook-Timestamp", unix(at))
		r.Header.Set("Webhook-Signature", version+","+base64.StdEncoding.EncodeToString(mac))
		return r
	}
	content := "msg_1." + unix(at) + "." + body
	sig := ed25519.Sign(private, []byte(content))
	s := webhook.Standard("x")
	require.Equal(t, http.StatusCreated, statusOf(t, s, "whpk_"+public, at, deliver("msg_1", "v1a", sig)))
	require.Equal(t, http.StatusUnauthorized, statusOf(t, s, "whpk_"+public, at, deliver("msg_2", "v1a", sig)))
	require.Equal(t, http.StatusUnauthorized, statusOf(t, s, "whpk_"+public, at, deliver("msg_1", "v1", sig)))

	// Everybody knows the public key, so it must not be taken for the secret of an HMAC.
	raw, err := base64.StdEncoding.DecodeString(public)
	require.NoError(t, err)
	mac := sum(sha256.New, string(raw), content)
	for _, version := range []string{"v1", "v1a"} {
		require.Equal(t, http.StatusUnauthorized, statusOf(t, s, "whpk_"+public, at, deliver("msg_1", version, mac)))
	}
	require.Equal(t, http.StatusCreated, statusOf(t, s, "whsec_"+public, at, deliver("msg_1", "v1", mac)))
	require.Equal(t, http.StatusUnauthorized, statusOf(t, s, "whsec_"+public, at, deliver("msg_1", "v1a", mac)))

	dotted := sum(sha256.New, string(raw), "msg.1."+unix(at)+"."+body)
	require.Equal(t, http.StatusBadRequest, statusOf(t, s, "whsec_"+public, at, deliver("msg.1", "v1", dotted)))
}

// A sender may sign in a way that nobody knows yet, besides the known one.
func TestUnknownVersionsOfStandardSignatures(t *testing.T) {
	p := parties[5]
	for signature, want := range map[string]int{"v3:k=1;s=x ": http.StatusCreated, "v3,! v1, v1,! ": http.StatusCreated, "v3,! v1,": http.StatusBadRequest} {
		rec := newReceiver(t, p)
		r := p.deliver(p.secret, "e1", 0, rec.now)
		if want == http.StatusCreated {
			signature += r.Header.Get("Webhook-Signature")
		}
		r.Header.Set("Webhook-Signature", signature)
		status, _ := rec.gets(r)
		require.Equal(t, want, status, signature)
	}
}

// keyOf returns the key of a delivery with a body, and nameOf the one of a delivery that must not be refused.
func keyOf(s webhook.Sender, body string) (string, error) { return s.Key(post(body), []byte(body)) }

func nameOf(t *testing.T, s webhook.Sender, body string) string {
	t.Helper()
	name, err := keyOf(s, body)
	require.NoError(t, err)
	return name
}

// What Slack sends without an event has a name too, and reaches the handler.
func TestSlackChallenge(t *testing.T) {
	slack := webhook.Slack()
	one := nameOf(t, slack, `{"type":"url_verification","challenge":"abc"}`)
	require.NotEmpty(t, one)
	require.NotEqual(t, one, nameOf(t, slack, `{"type":"url_verification","challenge":"abd"}`))
	limited := `{"type":"app_rate_limited","team_id":"T1","minute_rate_limited":1518467820,"api_app_id":"A1"}`
	require.NotEqual(t, nameOf(t, slack, limited), nameOf(t, slack, strings.Replace(limited, "T1", "T2", 1)))
	for _, body := range []string{`{"type":"url_verification"}`, `{"type":"app_rate_limited","team_id":"T1"}`, `{"type":"url_verification","challenge":{}}`, `{"type":{}}`, `command=%2Fdo`} {
		_, err := keyOf(slack, body)
		require.Error(t, err, body)
	}
	require.Empty(t, nameOf(t, slack, `{"type":"block_actions"}`))
}

// Shopify gives all deliveries that one action causes the same event ID.
func TestShopifyTopicsOfOneAction(t *testing.T) {
	p := parties[2]
	rec := newReceiver(t, p)
	for _, id := range []string{"created", "paid"} {
		status, replayed := rec.gets(p.deliver(p.secret, id, 0, rec.now))
		require.Equal(t, http.StatusCreated, status)
		require.False(t, replayed)
	}
	require.Equal(t, 2, rec.runs)
}

// A captured delivery with another type, which is not signed, is not the sender's.
func TestUnsignedTypeCounts(t *testing.T) {
	for i, field := range map[int]string{1: "X-Github-Event", 2: "X-Shopify-Topic"} {
		p := parties[i]
		rec := newReceiver(t, p)
		for _, of := range []struct {
			kind   string
			status int
		}{{"refund", http.StatusCreated}, {"payment", http.StatusConflict}, {"", http.StatusConflict}, {"refund", http.StatusCreated}} {
			r := p.deliver(p.secret, "e1", 0, rec.now)
			r.Header.Set(field, of.kind)
			status, _ := rec.gets(r)
			require.Equal(t, of.status, status, "%s: %s", field, of.kind)
		}
		require.Equal(t, 1, rec.runs)
	}
}

// Twilio signs URLs and digests of bodies.
func TestTwilioSignatures(t *testing.T) {
	const jsonBody = `{"id":"EZ1"}`
	digest := sha256.Sum256([]byte(jsonBody))
	withDigest := "https://hooks.example.com:8443/a?bodySHA256=" + hex.EncodeToString(digest[:])
	sign := func(text string) string { return base64.StdEncoding.EncodeToString(sum(sha1.New, "token", text)) }
	for name, c := range map[string]struct {
		target, signed, body, media string
		want                        int
	}{
		"a form":                     {"https://h/a", "https://h/aA1B2", "B=2&A=1", form, http.StatusCreated},
		"signed with the port":       {"https://h/a", "https://h:443/aA1", "A=1", form, http.StatusCreated},
		"http with the port":         {"http://h/a", "http://h:80/aA1", "A=1", form, http.StatusCreated},
		"signed without the port":    {"https://h:8443/a", "https://h/aA1", "A=1", form, http.StatusCreated},
		"with a password":            {"https://u:p@h/a?b=c", "https://u:p@h:443/a?b=cA1", "A=1", form, http.StatusCreated},
		"escapes stay":               {"https://h/a%2fb?c=%20", "https://h/a%2fb?c=%20A1", "A=1", form, http.StatusCreated},
		"names before values":        {"https://h/a", "https://h/aToZZToCityA", "ToCity=A&To=ZZ", form, http.StatusCreated},
		"a value twice":              {"https://h/a", "https://h/aA1A2", "A=2&A=1&A=2", form, http.StatusCreated},
		"no body":                    {"https://h/a", "https://h/a", "", form, http.StatusUnauthorized}, // a captured GET
		"a digest":                   {withDigest, withDigest, jsonBody, "application/json", http.StatusCreated},
		"another body":               {withDigest, withDigest, jsonBody + " ", "application/json", http.StatusUnauthorized},
		"two digests":                {withDigest + "&bodySHA256=00", withDigest + "&bodySHA256=00", jsonBody, "application/json", http.StatusUnauthorized},
		"JSON without a digest":      {"https://h/a", "https://h/a", jsonBody, "application/json", http.StatusUnauthorized},
		"a form of another type":     {"https://h/a", "https://h/aA1", "A=1", "text/plain", http.StatusUnauthorized},
		"another URL":                {"https://h/b", "https://h/aA1", "A=1", form, http.StatusUnauthorized},
		"a form that cannot be read": {"https://h/a", "https://h/aA1", "A=%zz", form, http.StatusBadRequest},
		"a URL that cannot be read":  {"https://h/%zz", "https://h/%zzA1", "A=1", form, http.StatusBadRequest},
	} {
		r := post(c.body)
		r.Header.Set("Content-Type", c.media)
		r.Header.Set("X-Twilio-Signature", sign(c.signed))
		target := webhook.WithURL(func(*http.Request) string { return c.target })
		require.Equal(t, c.want, statusOf(t, webhook.Twilio(), "token", time.Time{}, r, target), name)
	}
	for method, want := range map[string]int{http.MethodPost: http.StatusCreated, http.MethodGet: http.StatusUnauthorized} {
		r := post("A=1")
		r.Method = method // net/http does not look for a form in a GET
		r.Header.Set("Content-Type", form)
		r.Header.Set("X-Twilio-Signature", sign("https://h/aA1"))
		target := webhook.WithURL(func(*http.Request) string { return "https://h/a" })
		require.Equal(t, want, statusOf(t, webhook.Twilio(), "token", time.Time{}, r, target), method)
	}
	get, err := webhook.Twilio().Fingerprint(httptest.NewRequest(http.MethodGet, "/hooks?a=1", nil), nil)
	require.NoError(t, err)
	other, err := webhook.Twilio().Fingerprint(httptest.NewRequest(http.MethodPost, "/hooks?a=1", nil), nil)
	require.NoError(t, err)
	require.NotEqual(t, get, other, "the method is not signed")
	r := post("A=1")
	r.Header["Content-Type"] = []string{form, form}
	r.Header.Set("X-Twilio-Signature", sign("https://example.com/hooks?tenant=1A1"))
	require.Equal(t, http.StatusUnauthorized, statusOf(t, webhook.Twilio(), "token", time.Time{}, r))
}

// Twilio delivers by GET too. All that it says is in the URL then.
func TestTwilioByGET(t *testing.T) {
	rec := newReceiver(t, parties[4])
	deliver := func(token, target string) (int, bool) {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		r.Host = "example.com"
		r.Header.Set("I-Twilio-Idempotency-Token", token)
		text := "https://example.com/hooks?" + r.URL.RawQuery
		r.Header.Set("X-Twilio-Signature", base64.StdEncoding.EncodeToString(sum(sha1.New, "one", text)))
		return rec.gets(r)
	}
	for _, c := range []struct {
		token, target string
		status        int
		replayed      bool
	}{
		{"t1", "/hooks?CallSid=1", http.StatusCreated, false},
		{"t1", "/hooks?CallSid=1", http.StatusCreated, true},
		{"t1", "http://example.com/hooks?CallSid=1", http.StatusCreated, true}, // as a request to a proxy has it
		{"t1", "/hooks?CallSid=2", http.StatusConflict, false},
		{"t2", "/hooks?CallSid=2", http.StatusCreated, false},
	} {
		status, replayed := deliver(c.token, c.target)
		require.Equal(t, c.status, status, c.target)
		require.Equal(t, c.replayed, replayed, c.target)
	}
	require.Equal(t, 2, rec.runs)
	require.Equal(t, http.StatusUnauthorized, statusOf(t, webhook.Twilio(), "one", time.Time{}, httptest.NewRequest(http.MethodGet, "http://example.com", nil)))
}

// Adyen signs some members. Nothing may stand in for them.
func TestAdyenNotifications(t *testing.T) {
	p := parties[9]
	at := time.Unix(1_700_000_000, 0)
	body := bodyOf(p.deliver(p.secret, "psp1", 0, at))
	one := nameOf(t, p.sender, body)
	require.Equal(t, http.StatusCreated, statusOf(t, p.sender, p.secret, at, post(body)))

	failed := nameOf(t, p.sender, strings.Replace(body, `"success":"true"`, `"success":"false"`, 1))
	require.NotEqual(t, one, failed, "a payment that has failed may succeed later under its reference")
	require.NotEqual(t, one, nameOf(t, p.sender, strings.Replace(body, "AUTHORISATION", "CAPTURE", 1)))

	item := `{"NotificationRequestItem":{"pspReference":"psp2","merchantAccountCode":"shop","eventCode":"AUTHORISATION","success":"true"}}`
	for name, forged := range map[string]string{
		"another case":        strings.Replace(body, `"success"`, `"PspReference":"psp2","success"`, 1),
		"twice":               strings.Replace(body, `"success"`, `"pspReference":"psp1","success"`, 1),
		"absent, other case":  strings.Replace(body, `"success"`, `"OriginalReference":"psp0","success"`, 1),
		"two items":           strings.Replace(body, `[{`, `[`+item+`,{`, 1),
		"no items":            `{"notificationItems":[]}`,
		"a null item":         `{"notificationItems":[null]}`,
		"an empty item":       `{"notificationItems":[{}]}`,
		"two lists":           strings.Replace(body, `"live"`, `"NotificationItems":[],"live"`, 1),
		"null":                `null`,
		"a form":              `pspReference=psp1`,
		"success is not text": strings.Replace(body, `"success":"true"`, `"success":true`, 1),
	} {
		_, err := keyOf(p.sender, forged)
		require.Error(t, err, name)
		require.Equal(t, http.StatusBadRequest, statusOf(t, p.sender, p.secret, at, post(forged)), name)
	}
	for name, forged := range map[string]string{
		"no signature":     strings.Replace(body, `"hmacSignature"`, `"hmac"`, 1),
		"no data":          strings.Replace(body, `"additionalData"`, `"data"`, 1),
		"another currency": strings.Replace(body, `EUR`, `USD`, 1),
		"another name":     strings.Replace(body, `psp1`, `psp2`, 1),
	} {
		require.Equal(t, http.StatusUnauthorized, statusOf(t, p.sender, p.secret, at, post(forged)), name)
	}
	_, err := keyOf(p.sender, strings.Replace(body, `"eventCode"`, `"code"`, 1))
	require.Error(t, err)
}

// SNS signs some members. A body in which another could stand in for them has no key.
func TestSNSMessages(t *testing.T) {
	require.Equal(t, "m1", nameOf(t, webhook.SNS(), `{"Type":"Notification","MessageId":"m1","Message":"{\"messageId\":\"x\"}"}`))
	for _, body := range []string{
		`{"MessageId":"m1","messageId":"m2"}`, `{"MessageId":"m1","MessageId":"m1"}`, `{"MessageId":"m1","message":"x"}`,
		`{"messageid":"m1"}`, `raw delivery`, `{"MessageId":{}}`, `{"MessageId":"m1","TopicARN":"x"}`,
	} {
		_, err := keyOf(webhook.SNS(), body)
		require.Error(t, err, body)
	}
}

// Tokens of CloudEvents are compared as a whole.
func TestCloudEventsTokens(t *testing.T) {
	for value, want := range map[string]int{
		"Bearer token": http.StatusCreated, "bearer token": http.StatusCreated,
		"Bearer tokens": http.StatusUnauthorized, "Bearer": http.StatusUnauthorized, "Bearer ": http.StatusUnauthorized,
		"Basic token": http.StatusUnauthorized, "token": http.StatusUnauthorized, "Bearer toke": http.StatusUnauthorized,
	} {
		r := post(`{}`)
		r.Header.Set("Authorization", value)
		require.Equal(t, want, statusOf(t, webhook.CloudEvents("x"), "token", time.Time{}, r), value)
	}
}
