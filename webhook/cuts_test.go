package webhook_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/webhook"
)

// This file has deliveries that are cut anew: other members that make the text that was signed.

// adyenBody is a notification with these signed members, in the order in which they are signed.
func adyenBody(t *testing.T, secret string, values []string) string {
	t.Helper()
	key, err := hex.DecodeString(secret)
	require.NoError(t, err)
	mac := sum(sha256.New, string(key), strings.Join(values, ":"))
	body, err := json.Marshal(map[string]any{"notificationItems": []any{map[string]any{"NotificationRequestItem": map[string]any{
		"pspReference": values[0], "originalReference": values[1], "merchantAccountCode": values[2], "merchantReference": values[3],
		"amount": map[string]any{"value": values[4], "currency": values[5]}, "eventCode": values[6], "success": values[7],
		"additionalData": map[string]any{"hmacSignature": base64.StdEncoding.EncodeToString(mac)},
	}}}})
	require.NoError(t, err)
	return string(body)
}

// cuts returns all ways to make n members of a text whose parts were joined with colons.
func cuts(parts []string, n int) [][]string {
	if n == 1 {
		return [][]string{{strings.Join(parts, ":")}}
	}
	var all [][]string
	for first := 1; first <= len(parts)-n+1; first++ {
		for _, rest := range cuts(parts[first:], n-1) {
			all = append(all, append([]string{strings.Join(parts[:first], ":")}, rest...))
		}
	}
	return all
}

// What Adyen has signed is one notification, whichever members have colons, and a genuine one with
// colons is let in: those of a merchant's reference, and of a report's file name.
func TestAdyenSignsOneNotification(t *testing.T) {
	p := parties[9]
	for name, genuine := range map[string][]string{
		"none":      {"psp1", "", "shop", "ref", "1000", "EUR", "AUTHORISATION", "true"},
		"reference": {"psp1", "psp0", "shop", "14-08-2020-09:53:00", "1000", "EUR", "CAPTURE", "true"},
		"only":      {"psp1", "", "shop", ":::", "1000", "EUR", "AUTHORISATION", "false"},
		"report":    {"report_2022-11-01T00:00:00_2022-11-02T23:59:59.csv", "", "shop", "", "0", "EUR", "REPORT_AVAILABLE", "true"},
		"words":     {"psp1", "", "shop", "REPORT_AVAILABLE:true:x", "1000", "EUR", "AUTHORISATION", "true"},
	} {
		var letIn [][]string
		for _, values := range cuts(strings.Split(strings.Join(genuine, ":"), ":"), len(genuine)) {
			body := adyenBody(t, p.secret, values)
			status := statusOf(t, p.sender, p.secret, time.Time{}, post(body))
			_, err := p.sender.Key(post(body), []byte(body))
			if status == http.StatusCreated {
				require.NoError(t, err, "%s: %q", name, values)
				letIn = append(letIn, values)
				continue
			}
			require.Equal(t, http.StatusBadRequest, status, "%s: %q", name, values)
			require.Error(t, err, "%s: %q", name, values)
		}
		require.Equal(t, [][]string{genuine}, letIn, name)
	}
}

// snsText is what SNS signs of a notification.
func snsText(m map[string]string) string {
	var text strings.Builder
	for _, name := range []string{"Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"} {
		if value, ok := m[name]; ok {
			text.WriteString(name + "\n" + value + "\n")
		}
	}
	return text.String()
}

// A message may have several lines, and they may look like those of other members. No other reading of
// them has a key.
func TestSNSSignsOneMessage(t *testing.T) {
	with := func(message, id, subject string) map[string]string {
		m := map[string]string{"Message": message, "MessageId": id, "Timestamp": "2012-05-02T00:54:06.655Z", "TopicArn": "arn:1", "Type": "Notification"}
		if subject != "" {
			m["Subject"] = subject
		}
		return m
	}
	genuine := with("hello\nMessageId\nm2\nSubject\nworld", "m1", "")
	for _, c := range []struct {
		m  map[string]string
		ok bool
	}{
		{genuine, true},
		{with("hello", "m2", "world\nMessageId\nm1"), false},
		{with("hello", "m2\nSubject\nworld\nMessageId\nm1", ""), false},
	} {
		require.Equal(t, snsText(genuine), snsText(c.m))
		body, err := json.Marshal(c.m)
		require.NoError(t, err)
		key, err := webhook.SNS().Key(post(string(body)), body)
		if c.ok {
			require.NoError(t, err)
			require.Equal(t, "m1", key)
			continue
		}
		require.ErrorContains(t, err, "line break")
	}
}
