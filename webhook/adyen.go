package webhook

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
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
// signed one. So is one with a colon in a signed member, because Adyen joins them with colons: it could
// be cut anew, into another event. Only merchantReference may have colons, and in its place the
// pspReference of REPORT_AVAILABLE, which is the name of a file.
//
// Sources:
//
//   - https://docs.adyen.com/development-resources/webhooks/secure-webhooks/verify-hmac-signatures
//   - https://docs.adyen.com/development-resources/webhooks/handle-webhook-events
//   - https://docs.adyen.com/development-resources/webhooks/troubleshoot
//   - https://docs.adyen.com/development-resources/webhooks/webhook-types
//   - https://github.com/Adyen/adyen-go-api-library/blob/main/src/hmacvalidator/hmacvalidator.go
//   - https://github.com/Adyen/adyen-commercetools/issues/1324
//   - https://github.com/Adyen/adyen-python-api-library/issues/117
//   - https://github.com/Adyen/adyen-ruby-api-library/issues/108
func Adyen() Sender {
	return Sender{
		Name:        "Adyen",
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

// The signed members of an item, in the order in which they are signed.
var adyenSigned = []string{
	"pspReference", "originalReference", "merchantAccountCode", "merchantReference",
	"amount.value", "amount.currency", "eventCode", "success",
}

const (
	adyenItem      = "notificationItems.NotificationRequestItem."
	adyenSignature = "additionalData.hmacSignature"
)

var adyenPaths = mustPaths(adyenItem, append(adyenSigned, adyenSignature)...)

// adyenNotification returns the only item of a body, and the text that is signed of it. Several items
// come only by SOAP. Its errors are refusals.
func adyenNotification(body []byte) (item json.RawMessage, signed string, err error) {
	var envelope struct {
		Items []map[string]json.RawMessage `json:"notificationItems"`
	}
	if readInOneWay(body, adyenPaths) != nil || json.Unmarshal(body, &envelope) != nil || len(envelope.Items) != 1 {
		return nil, "", malformed("The body is not one notification in JSON that all parsers read in one way.")
	}
	item = envelope.Items[0]["NotificationRequestItem"]
	eventCode, _ := jsonMember(item, "eventCode")
	free := adyenFreeMember(eventCode)
	var values []string
	for _, name := range adyenSigned {
		value, err := jsonMember(item, strings.Split(name, ".")...)
		if err != nil {
			return nil, "", malformed("The member " + name + " is not a text or a number.")
		}
		if name != free && strings.Contains(value, ":") {
			return nil, "", malformed("The member " + name + " has a colon, so the signature could be one of another notification.")
		}
		values = append(values, value)
	}
	return item, strings.Join(values, ":"), nil
}

// adyenFreeMember returns the only signed member that may have colons. Adyen joins the members with
// colons and escapes none, so one text would be that of several notifications if two of them could.
// All readings of a text agree on the eventCode, because nothing behind it may have a colon.
func adyenFreeMember(eventCode string) string {
	if eventCode == "REPORT_AVAILABLE" {
		return "pspReference" // the name of a file, often with times in it
	}
	return "merchantReference" // a text of the merchant's
}

func adyenKey(_ *http.Request, body []byte) (string, error) {
	item, _, err := adyenNotification(body)
	if err != nil {
		return "", err
	}
	return jsonDigest(item, "merchantAccountCode", "pspReference", "eventCode", "success")
}

func readAdyen(_ *http.Request, body []byte, _ string) (*signature, error) {
	item, text, err := adyenNotification(body)
	if err != nil {
		return nil, err
	}
	value, err := jsonMember(item, strings.Split(adyenSignature, ".")...)
	switch {
	case err != nil:
		return nil, malformed("The member " + adyenSignature + " is not a text.")
	case value == "":
		return nil, unsigned("The member " + adyenSignature + " is missing.")
	}
	mac, err := decodeBase64(value)
	if err != nil {
		return nil, malformed("The member " + adyenSignature + " is malformed.")
	}
	return &signature{contents: [][][]byte{{[]byte(text)}}, sums: []sum{{bytes: mac}}}, nil
}
