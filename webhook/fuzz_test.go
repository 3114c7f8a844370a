package webhook_test

import (
	"encoding/base64"
	"encoding/json"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/jcs"
	"example.com/idempotency/webhook"
	"github.com/stretchr/testify/require"
)

// FuzzKeys compares the keys that the functions find with what encoding/json makes of the
// body.
func FuzzKeys(f *testing.F) {
	const binary, structured = "application/json", "application/cloudevents+json"
	f.Add("data.id", `{"data":{"id":"evt_1"}}`, binary, "a", "b")
	f.Add("id", `{"id":"a","source":"b"}`, structured, "", "")
	f.Fuzz(func(t *testing.T, path, body, contentType, id, source string) {
		r := httptest.NewRequest(http.MethodPost, "/hook", nil)
		r.Header.Set("Content-Type", contentType)
		var key string
		names, err := jcs.ParsePath(path)
		if err == nil {
			key, err = webhook.JSONKey(path)(r, []byte(body))
			want, ok := jsonAt(body, names)
			if strings.ContainsRune(want, utf8.RuneError) { // what is no valid text is one text for encoding/json
				want, ok = "", false
			}
			if ok != (err == nil) || key != want {
				t.Errorf("%s in %q: got %q, %v, want %q, %v", path, body, key, err, want, ok)
			}
		}

		if id != "" {
			r.Header["Ce-Id"] = []string{id}
		}
		if source != "" {
			r.Header["Ce-Source"] = []string{source}
		}
		media, _, _ := mime.ParseMediaType(contentType)
		key, err = webhook.CloudEventKey(r, []byte(body))
		switch {
		case err != nil && key != "":
			t.Errorf("%q with %v", key, err)
		case err != nil || key == "":
		case len(key) != 43:
			t.Errorf("the key of an event is %q", key)
		case !strings.HasPrefix(media, "application/cloudevents"):
			if !strings.ContainsAny(source+id, `%"`) && key != eventKey(source, id) {
				t.Errorf("event %q of %q has the key %q", id, source, key)
			}
		default:
			id, _ := jsonAt(body, []string{"id"})
			source, _ := jsonAt(body, []string{"source"})
			if key != eventKey(source, id) {
				t.Errorf("event %q of %q has the key %q", id, source, key)
			}
		}
		if id == "" || source == "" || !utf8.ValidString(id) || !utf8.ValidString(source) {
			return
		}
		r.Header = http.Header{"Ce-Id": {url.PathEscape(id)}, "Ce-Source": {url.PathEscape(source)}}
		if key, err := webhook.CloudEventKey(r, nil); err != nil || key != eventKey(source, id) {
			t.Errorf("event %q of %q, encoded, has the key %q, %v", id, source, key, err)
		}
	})
}

// FuzzForgeries looks for a delivery that is let in although nobody has signed it, and for a
// notification of Adyen from which a handler would read another value than the verified one.
func FuzzForgeries(f *testing.F) {
	f.Add("t=1700000000,v1=00", "1700000000", "evt_1", `{"id":"evt_1"}`, "application/json")
	f.Add("sha256=00", "v0=00", "v1,AAAA v1a,AAAA", "A=1&B=2", "application/x-www-form-urlencoded")
	f.Add("Bearer x", "1700000000", "msg_1",
		`{"notificationItems":[{"NotificationRequestItem":{"pspReference":"p","merchantAccountCode":"m","eventCode":"e","success":"true",`+
			`"amount":{"value":1,"currency":"EUR"},"additionalData":{"hmacSignature":"AAAA"}}}]}`, "application/json")
	f.Fuzz(func(t *testing.T, one, two, three, body, contentType string) {
		for i, p := range parties {
			if p.check != nil {
				continue
			}
			rec := newReceiver(t, p)
			for _, values := range [][]string{{one, two, three}, {two, three, one}, {three, one, two}} {
				r := post(body)
				r.Header.Set("Content-Type", contentType)
				for k, field := range p.fields {
					r.Header.Set(field, values[k])
				}
				if status, _ := rec.gets(r); status != http.StatusUnauthorized && status != http.StatusBadRequest {
					t.Errorf("%d: %s answers %d to %q, %q", i, p.sender.Name, status, values, body)
				}
			}
		}
		if _, err := webhook.Adyen().Key(nil, []byte(body)); err == nil {
			var read struct {
				NotificationItems []struct {
					NotificationRequestItem struct{ PspReference, OriginalReference string }
				}
			}
			err := json.Unmarshal([]byte(body), &read)
			if err == nil && len(read.NotificationItems) != 1 {
				t.Fatalf("%q has %d items", body, len(read.NotificationItems))
			}
			var items struct {
				Items []map[string]map[string]any `json:"notificationItems"`
			}
			if err == nil && json.Unmarshal([]byte(body), &items) == nil {
				signed, _ := items.Items[0]["NotificationRequestItem"]["originalReference"].(string)
				require.Equal(t, signed, read.NotificationItems[0].NotificationRequestItem.OriginalReference)
			}
		}
	})
}

// eventKey is the key of a CloudEvent.
func eventKey(source, id string) string {
	key := digest.Key(source, id)
	return base64.RawURLEncoding.EncodeToString(key[:])
}

// jsonAt returns the string or number at a path. Ok is false if something else is there.
func jsonAt(body string, path []string) (text string, ok bool) {
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.UseNumber()
	var value any
	if !json.Valid([]byte(body)) || decoder.Decode(&value) != nil {
		return "", false
	}
	for depth, name := range path {
		object, isObject := value.(map[string]any)
		if !isObject && (value != nil || depth == 0) {
			return "", false
		}
		value = object[name] // null has no members
	}
	switch value := value.(type) {
	case nil:
		return "", true
	case string:
		return value, true
	case json.Number:
		return value.String(), true
	}
	return "", false
}
