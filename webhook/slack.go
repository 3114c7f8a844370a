package webhook

import (
	"crypto/sha256"
	"net/http"
)

// Slack is the sender of Slack's Events API.
//
// The member "event_id" of the body names the event. Slack signs time and body with HMAC-SHA256,
// anew for each delivery, in X-Slack-Signature and X-Slack-Request-Timestamp. Deliveries of one
// event differ in these two fields, and in X-Slack-Retry-Num and X-Slack-Retry-Reason. Slack
// expects a 2xx within 3 seconds, and redelivers three times: at once, after a minute and after
// five, unless the answer has the field X-Slack-No-Retry with the value 1.
//
// Two callbacks come without an event. When an endpoint is set up, Slack sends a challenge, whose
// name is the challenge; the handler that answers it runs behind the guard too. When it holds events
// back, it sends app_rate_limited, whose name is made of the app, the workspace and the minute. Slash
// commands and interactions are not events: they have no name, and are refused with 400.
//
// Sources:
//
//   - https://docs.slack.dev/authentication/verifying-requests-from-slack
//   - https://docs.slack.dev/apis/events-api
//   - https://docs.slack.dev/reference/events/app_rate_limited
func Slack() Sender {
	return Sender{
		Name:        "Slack",
		Key:         slackKey,
		Fingerprint: nameOnly,
		TTL:         2 * day,
		signing:     &scheme{key: textKey(sha256.New), read: readSlack},
	}
}

// slackNames are the members that together name a callback without an event.
var slackNames = map[string][]string{
	"url_verification": {"type", "challenge"},
	"app_rate_limited": {"type", "api_app_id", "team_id", "minute_rate_limited"},
}

func slackKey(_ *http.Request, body []byte) (string, error) {
	kind, err := jsonMember(body, "type")
	if err != nil {
		return "", err
	}
	names, ok := slackNames[kind]
	if !ok {
		return jsonMember(body, "event_id")
	}
	return jsonDigest(body, names...)
}

func readSlack(r *http.Request, body []byte, _ string) (*signature, error) {
	at, err := requiredField(r, "X-Slack-Request-Timestamp")
	if err != nil {
		return nil, err
	}
	value, err := requiredField(r, "X-Slack-Signature")
	if err != nil {
		return nil, err
	}
	mac, err := decodeSum(value, "v0=", decodeHex)
	if err != nil {
		return nil, malformed("The field X-Slack-Signature is malformed.")
	}
	s := signature{
		contents: [][][]byte{{[]byte("v0:"), []byte(at), {':'}, body}},
		sums:     []sum{{bytes: mac}},
	}
	if s.at, err = parseTime(at); err != nil {
		return nil, err
	}
	return &s, nil
}
