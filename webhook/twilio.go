package webhook

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Twilio is the sender of Twilio's webhooks, by POST or GET.
//
// The field I-Twilio-Idempotency-Token names the request; a redelivery has the same one. Twilio
// signs the URL and the parameters of a form with HMAC-SHA1 in X-Twilio-Signature. Of any other
// body it signs the digest, which is the parameter bodySHA256 of the URL. Verify needs [WithURL]
// behind a proxy that changes the URL. Twilio signs neither the time, the method nor the name, so method, query and body
// count in a mismatch. The texts of a form are signed without anything between them: a captured
// delivery can be cut into other parameters, or a longer URL, that make the same text. By default Twilio redelivers
// once, if it could not connect. The fragment of the configured URL asks for up to 5 times and for
// other failures, all within 15 seconds. The secret is the auth token of the account.
//
// Sources:
//
//   - https://www.twilio.com/docs/usage/webhooks/webhooks-security
//   - https://www.twilio.com/docs/usage/webhooks/webhooks-connection-overrides
//   - https://www.twilio.com/docs/api/errors/57012
//   - https://github.com/twilio/twilio-node/blob/main/src/webhooks/webhooks.ts
//   - https://github.com/twilio/twilio-agent-connect-python/blob/main/docs/horizontal-scaling.md
func Twilio() Sender {
	return Sender{
		Name:        "Twilio",
		Key:         HeaderKey("I-Twilio-Idempotency-Token"),
		Fingerprint: methodQueryAndBody,
		Methods:     []string{http.MethodPost, http.MethodGet},
		TTL:         day,
		signing:     &scheme{key: textKey(sha1.New), read: readTwilio},
	}
}

func readTwilio(r *http.Request, body []byte, target string) (*signature, error) {
	const name = "X-Twilio-Signature"
	value, err := requiredField(r, name)
	if err != nil {
		return nil, err
	}
	mac, err := decodeBase64(value)
	if err != nil {
		return nil, malformed("The field " + name + " is malformed.")
	}
	u, err := url.Parse(target)
	if err != nil {
		return nil, malformed("The URL of the delivery is malformed.")
	}
	params, err := twilioParams(r, body, u)
	if err != nil {
		return nil, err
	}
	s := signature{sums: []sum{{bytes: mac}}}
	for _, signed := range portVariants(target, u) {
		s.contents = append(s.contents, [][]byte{[]byte(signed), params})
	}
	return &s, nil
}

// twilioParams returns what is signed of the body. It refuses a body that the signature does not
// cover.
func twilioParams(r *http.Request, body []byte, u *url.URL) ([]byte, error) {
	if (r.Method == http.MethodGet) != (len(body) == 0) { // a captured delivery, by the other method
		return nil, unsigned("Twilio sends what it says in the URL of a GET, and in the body of a POST.")
	}
	if sums := u.Query()["bodySHA256"]; len(sums) > 0 {
		sum := sha256.Sum256(body)
		if signed, err := decodeHex(sums[0]); len(sums) > 1 || err != nil || !hmac.Equal(signed, sum[:]) {
			return nil, unsigned("The body is not the one that bodySHA256 names.")
		}
		return nil, nil
	}
	if len(body) == 0 {
		return nil, nil
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/x-www-form-urlencoded" || len(r.Header["Content-Type"]) > 1 {
		return nil, unsigned("The signature does not cover a body of this type without bodySHA256.")
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, malformed("The body is not a form.")
	}
	var text []byte
	for _, name := range slices.Sorted(maps.Keys(form)) {
		values := form[name]
		slices.Sort(values)
		for _, value := range slices.Compact(values) {
			text = append(append(text, name...), value...)
		}
	}
	return text, nil
}

// portVariants returns a URL without and with its port: Twilio is not consistent in which of them
// it signs, as its own libraries say. The rest of the URL stays as it is written.
func portVariants(target string, u *url.URL) []string {
	scheme, rest, _ := strings.Cut(target, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	host, rest := rest[:end], rest[end:]
	port := ":" + u.Port()
	switch {
	case u.Port() != "":
		host = strings.TrimSuffix(host, port)
	case u.Scheme == "http":
		port = ":80"
	default:
		port = ":443"
	}
	return []string{scheme + "://" + host + rest, scheme + "://" + host + port + rest}
}
