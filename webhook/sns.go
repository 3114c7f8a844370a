package webhook

import (
	"errors"
	"net/http"
	"strings"
)

// SNS is the sender of Amazon SNS over HTTP and HTTPS, with raw delivery switched off. Use it
// with [VerifyWith].
//
// The member "MessageId" of the body names the message; a redelivery has that of the original.
// SNS signs some members of the body with RSA, with a certificate whose address is in the body.
// The function for VerifyWith has to do all of this:
//
//   - take the certificate of SigningCertURL only from an https address whose host is
//     sns.REGION.amazonaws.com (in China sns.REGION.amazonaws.com.cn), and keep it;
//   - verify Signature over the names and values of Message, MessageId, Subject if there is one,
//     Timestamp, TopicArn and Type, each followed by a line break; in a confirmation over Message,
//     MessageId, SubscribeURL, Timestamp, Token, TopicArn and Type. SignatureVersion 1 is RSA with
//     SHA-1 and 2 is RSA with SHA-256. A topic signs by version 1 until its attribute
//     SignatureVersion is set to 2: set it, and refuse version 1;
//   - compare TopicArn with the topics that this endpoint is subscribed to: everybody can publish
//     to a topic of their own, and SNS signs that too;
//   - wrap [idempotency.ErrTryLater] if it cannot fetch the certificate.
//
// The confirmation of a subscription has a MessageId too, and the handler gets it. A redelivery
// has the same Timestamp and, as far as is documented, may have another signature. SNS redelivers
// three times by default, 20 seconds apart, and for an hour at most. It takes a 4xx other than 429
// for final.
//
// A body that parsers read in different ways, with a name twice or in another case, has no key:
// somebody could add a member to a captured delivery that the handler reads in place of the
// signed one. So has one with a line break in a signed member other than Message, because lines separate
// what is signed: a captured delivery could be cut anew, into another message.
//
// Sources:
//
//   - https://docs.aws.amazon.com/sns/latest/dg/http-notification-json.html
//   - https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html
//   - https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message-verify-message-signature.html
//   - https://docs.aws.amazon.com/sns/latest/dg/sns-message-delivery-retries.html
//   - https://docs.aws.amazon.com/sns/latest/dg/SendMessageToHttp.retry.html
//   - https://docs.aws.amazon.com/sns/latest/dg/SendMessageToHttp.prepare.html
func SNS() Sender {
	return Sender{
		Name:        "SNS",
		Key:         snsKey,
		Fingerprint: nameOnly,
		TTL:         day,
	}
}

// The signed members. Only Message may have several lines.
var (
	snsLines = []string{"Type", "MessageId", "TopicArn", "Subject", "Timestamp", "Token", "SubscribeURL"}
	snsPaths = mustPaths("", append(snsLines, "Message")...)
)

func snsKey(_ *http.Request, body []byte) (string, error) {
	if err := readInOneWay(body, snsPaths); err != nil {
		return "", errors.New("webhook: not a message of SNS, or one that parsers read in different ways")
	}
	for _, name := range snsLines {
		value, err := jsonMember(body, name)
		if err != nil {
			return "", err
		}
		if strings.Contains(value, "\n") {
			return "", errors.New("webhook: the member " + name + " of a message of SNS has a line break")
		}
	}
	return jsonMember(body, "MessageId")
}
