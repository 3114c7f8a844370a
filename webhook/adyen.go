package webhook

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"example.com/idempotency/internal/jcs"
)

// Adyen is the sender of Adyen's standard webhooks in JSON.
//
// Adyen does not number its events. An event is named by merchantAccountCode, pspReference,
// eventCode and success together. Success belongs to the name, because a payment that has failed
// may succeed later under the same reference. Adyen signs these and four more members with
// HMAC-SHA256 in additionalData.hmacSignature. Nothing else of the body is signed, nor is the
// time. Deliveries of one event may differ in eventDate, reason and additionalData, so these do
// not count in a mismatch. Do not act on members that are not signed. Adyen redelivers for 30
// days, and delivers nothing else to the endpoint meanwhile. The secret is the HMAC key of the
// endpoint, in hexadecimal.
//
// A body that parsers read in different ways, with a name twice or in another case, is refused:
// somebody could add a member to a captured delivery that the handler reads in place of the
// signed one.
func Adyen() Sender {
	return Sender{
		Name: "Adyen",
		Sources: []string{
			"https://docs.adyen.com/development-resources/webhooks/secure-webhooks/verify-hmac-signatures",
			"https://docs.adyen.com/development-resources/webhooks/handle-webhook-events",
			"https://docs.adyen.com/development-resources/webhooks/troubleshoot",
			"https://docs.adyen.com/development-resources/webhooks/webhook-types",
			"https://github.com/Adyen/adyen-go-api-library/blob/main/src/hmacvalidator/hmacvalidator.go",
			"https://github.com/Adyen/adyen-commercetools/issues/1324",
		},
		Key:         adyenKey,
		Fingerprint: nameOnly,
		TTL:         35 * day,
		signing:     &scheme{key: adyenSecret, read: readAdyen},
	}
}

func adyenSecret(secret string) (key, error) {
	bytes, err := decodeHex(secret)
	if err != nil || len(bytes) == 0 {
		return nil, errors.New("it is not hexadecimal")
	}
	return &hmacKey{hash: sha256.New, secret: bytes}, nil
}

// The signed members of an item, in the order in which they are signed. In the list itself is
// where each is in the body.
const adyenItem = "notificationItems.NotificationRequestItem."

var (
	adyenSigned = [][]string{
		{"pspReference"},
		{"originalReference"},
		{"merchantAccountCode"},
		{"merchantReference"},
		{"amount", "value"},
		{"amount", "currency"},
		{"eventCode"},
		{"success"},
	}
	adyenPaths = mustPaths(adyenItem, append(adyenSigned, []string{"additionalData", "hmacSignature"}))
)

func mustPaths(prefix string, members [][]string) []jcs.Path {
	var paths []jcs.Path
	for _, m := range members {
		path, err := jcs.ParsePath(prefix + strings.Join(m, "."))
		if err != nil {
			panic(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// readInOneWay returns an error for a body that is not JSON, and for one in which parsers find
// different values at the paths.
func readInOneWay(body []byte, paths []jcs.Path) error {
	d, err := jcs.Read(body)
	if err != nil {
		return err
	}
	defer d.Free()
	for _, path := range paths {
		if _, err := d.Select(path); err != nil {
			return err
		}
	}
	return nil
}

var errAdyen = errors.New("webhook: not one notification of Adyen, or one that parsers read in different ways")

// adyenNotification returns the only item of a body. Several come only by SOAP.
func adyenNotification(body []byte) (json.RawMessage, error) {
	if err := readInOneWay(body, adyenPaths); err != nil {
		return nil, errAdyen
	}
	var envelope struct {
		Items []map[string]json.RawMessage `json:"notificationItems"`
	}
	if json.Unmarshal(body, &envelope) != nil || len(envelope.Items) != 1 {
		return nil, errAdyen
	}
	return envelope.Items[0]["NotificationRequestItem"], nil
}

func adyenKey(_ *http.Request, body []byte) (string, error) {
	item, err := adyenNotification(body)
	if err != nil {
		return "", err
	}
	var parts []string
	for _, name := range []string{"merchantAccountCode", "pspReference", "eventCode", "success"} {
		part, err := jsonMember(item, name)
		if err == nil && part == "" {
			err = errAdyen
		}
		if err != nil {
			return "", err
		}
		parts = append(parts, part)
	}
	return digestKey(parts...), nil
}

func readAdyen(_ *http.Request, body []byte, _ string) (*signature, error) {
	item, err := adyenNotification(body)
	if err != nil {
		return nil, malformed("The body is not one notification in JSON that all parsers read in one way.")
	}
	var values []string
	for _, path := range adyenSigned {
		value, err := jsonMember(item, path...)
		if err != nil {
			return nil, malformed("The member " + strings.Join(path, ".") + " is not a text or a number.")
		}
		values = append(values, value)
	}
	value, err := jsonMember(item, "additionalData", "hmacSignature")
	switch {
	case err != nil:
		return nil, malformed("The member additionalData.hmacSignature is not a text.")
	case value == "":
		return nil, unsigned("The member additionalData.hmacSignature is missing.")
	}
	mac, err := decodeBase64(value)
	if err != nil {
		return nil, malformed("The member additionalData.hmacSignature is malformed.")
	}
	return &signature{contents: [][][]byte{{[]byte(strings.Join(values, ":"))}}, sums: []sum{{bytes: mac}}}, nil
}
