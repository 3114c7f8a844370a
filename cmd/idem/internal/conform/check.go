package conform

import "example.com/idempotency/cmd/idem/internal/conform/report"

// This file is the table of checks.

// A check is one claim about a server.
type check struct {
	id, group, claim string
	// field is the member of a published policy that promises it. Such a check is made a second time
	// by what the policy says.
	field string
	try   experiment
	judge judge
	// documents says that it is such a second one.
	documents bool
}

// checks are made and shown in this order.
var checks = withDocumentation([]check{
	{id: "first-answer", group: "first answer", claim: "The first request with a key is answered with success.", try: pair, judge: succeeds(0)},
	{id: "first-effect", group: "first answer", claim: "The first request has one effect.", try: pair, judge: effects(0, 1)},
	{id: "other-key", group: "first answer", claim: "The same request with another key runs, too.", try: twoKeys, judge: bothRun},

	{id: "replay-effect", group: "replay", claim: "A retry has no second effect.", field: "rules: replay", try: pair, judge: effects(1, 1)},
	{id: "replay-status", group: "replay", claim: "A retry gets the status of the first answer.", field: "rules: replay", try: pair, judge: all(sameStatus(0, 1), sameStatus(0, retries))},
	{id: "replay-body", group: "replay", claim: "A retry gets the body of the first answer.", field: "rules: replay", try: pair, judge: all(sameBody(0, 1), sameBody(0, retries))},
	{id: "replay-header", group: "replay", claim: "A retry gets the header fields of the first answer that belong to no connection, moment or client.", try: pair, judge: sameHeader},
	{id: "replay-trailer", group: "replay", claim: "A retry gets the trailer of the first answer.", try: pair, judge: sameTrailer},
	{id: "replay-mark", group: "replay", claim: "A field marks the replay, and only that.", field: "replayed_header", try: pair, judge: replayMarked},
	{id: "replay-cookie", group: "replay", claim: "Cookies of the first answer are not replayed.", try: pair, judge: cookieNotReplayed},

	{id: "mismatch-body", group: "mismatch", claim: "A used key with another body is refused.", field: "binding", try: otherBody, judge: reusedIsRefused},
	{id: "mismatch-effect", group: "mismatch", claim: "A used key with another body has no effect.", try: otherBody, judge: unless(alone, moved(0, 1, 0))},
	{id: "mismatch-status", group: "mismatch", claim: "The refusal of a used key has the status that is promised.", field: "refusals: key-reused", try: otherBody, judge: mismatchStatus},
	{id: "mismatch-silent", group: "mismatch", claim: "The refusal of a used key does not show the first answer.", try: otherBody, judge: mismatchSilent},
	{id: "mismatch-kept", group: "mismatch", claim: "After another body, the first request still gets its answer.", try: otherBody, judge: unless(alone, sameAnswer(1, 3))},
	{id: "mismatch-method", group: "mismatch", claim: "A used key with another method is refused.", field: "binding", try: otherMethod, judge: reusedIsRefused},
	{id: "mismatch-path", group: "mismatch", claim: "A used key with another path is refused.", field: "binding", try: otherPath, judge: reusedIsRefused},
	{id: "mismatch-query", group: "mismatch", claim: "A used key with another query is refused.", field: "binding", try: otherQuery, judge: reusedIsRefused},
	{id: "mismatch-type", group: "mismatch", claim: "A used key with another content type is refused.", field: "binding", try: otherType, judge: reusedIsRefused},
	{id: "json-spelling", group: "mismatch", claim: "The same JSON in another spelling gets the first answer, or a refusal.", field: "binding", try: otherSpelling, judge: bound},
	{id: "json-effect", group: "mismatch", claim: "The same JSON in another spelling has no second effect.", try: otherSpelling, judge: unless(alone, moved(0, 1, 0))},

	{id: "key-missing", group: "key", claim: "A request without a key runs, or is refused as promised.", field: "required", try: noKey, judge: missing},
	{id: "key-empty", group: "key", claim: "An empty key is refused.", field: "refusals: key-invalid", try: emptyKey, judge: invalid},
	{id: "key-twice", group: "key", claim: "A request with two fields for the key is refused.", field: "rules: once", try: twoLines, judge: invalid},
	{id: "key-list", group: "key", claim: "A list of keys is refused.", field: "refusals: key-invalid", try: listOfKeys, judge: invalid},
	{id: "key-ascii", group: "key", claim: "A key with bytes that are not ASCII is refused.", field: "refusals: key-invalid", try: noASCII, judge: invalid},
	{id: "key-quoted", group: "key", claim: "A key in double quotes is taken, and recognized.", field: "key", try: quotedKey, judge: quotedTaken},
	{id: "key-raw", group: "key", claim: "A key without quotes is taken and recognized, or refused as promised.", field: "key: strict", try: rawKey, judge: rawTaken},
	{id: "key-forms", group: "key", claim: "Both forms of a key are one key.", try: spelled, judge: oneKey},
	{id: "key-longest", group: "key", claim: "The longest key is taken, and recognized.", field: "key: max_bytes", try: longest, judge: quotedTaken},
	{id: "key-too-long", group: "key", claim: "A longer key is refused.", field: "key: max_bytes", try: tooLong, judge: invalid},
	{id: "key-last-byte", group: "key", claim: "Two keys of 101 bytes that differ in the last one are two keys.", try: lastByte, judge: bothRun},
	{id: "key-case", group: "key", claim: "Two keys that differ in case are two keys.", try: letterCase, judge: bothRun},

	{id: "scope-answer", group: "scope", claim: "Another caller with the same key does not get the answer.", try: otherCaller, judge: otherSees},
	{id: "scope-run", group: "scope", claim: "Each caller has keys of its own, or shares them as promised.", field: "shared", try: otherCaller, judge: otherRuns},
	{id: "scope-stranger", group: "scope", claim: "Who has no credential does not get the answer.", try: stranger, judge: strangerSees},

	{id: "concurrent-effect", group: "concurrency", claim: "Requests with one key at once have one effect.", try: crowd, judge: effects(0, 1)},
	{id: "concurrent-answer", group: "concurrency", claim: "Each of several at once gets the answer of the one run, or a refusal, and the answer afterwards.", try: crowd, judge: crowdAnswers},
	{id: "concurrent-status", group: "concurrency", claim: "Who comes while another one runs is refused with the status that is promised, or waits if that is.", field: "refusals: in-flight, wait_seconds", try: crowd, judge: crowdStatus},
	{id: "concurrent-retry-after", group: "concurrency", claim: "A refusal because another one runs says when to come again.", field: "refusals: in-flight", try: crowd, judge: crowdRetryAfter},
	{id: "concurrent-payloads", group: "concurrency", claim: "Two payloads with one key at once have one effect.", try: rivals, judge: effects(0, 1)},

	{id: "cut-effect", group: "client gone", claim: "A request that was cut off and is sent again has one effect.", try: cutRequest, judge: effects(0, 1)},
	{id: "cut-answer", group: "client gone", claim: "A request that was cut off and is sent again gets its answer.", try: cutRequest, judge: succeeds(1)},
	{id: "gone-effect", group: "client gone", claim: "A client that goes before the answer, and comes again, has one effect.", try: goneClient, judge: effects(0, 1)},
	{id: "gone-answer", group: "client gone", claim: "A client that goes before the answer, and comes again, gets it.", try: goneClient, judge: succeeds(1)},

	{id: "lost-effect", group: "lost answer", claim: "A request whose answer was lost, and which is sent again, has one effect.", try: lostAnswer, judge: effects(0, 1)},
	{id: "lost-answer", group: "lost answer", claim: "A request whose answer was lost, and which is sent again, gets that answer.", try: lostAnswer, judge: lostAgain},

	{id: "crash-answer", group: "crash", claim: "After a crash of the server, a retry gets the answer from before.", try: crashed, judge: restarted},
	{id: "crash-run", group: "crash", claim: "A request during which the server crashes gets an answer when it is sent again.", try: crashing, judge: succeeds(1)},

	{id: "ttl-kept", group: "expiry", claim: "Shortly before its end, a key is still known.", field: "ttl_seconds", try: aged, judge: sameAnswer(0, 1)},
	{id: "ttl-end", group: "expiry", claim: "After its end, a key is free again.", field: "rules: end", try: aged, judge: afterTTL},
	{id: "ttl-field", group: "expiry", claim: "A field says for how many seconds the key is good.", field: "expiry_header", try: pair, judge: hasExpiry},

	{id: "problem-document", group: "problems", claim: "A refusal is a document of the promised form.", field: "problems", try: otherBody, judge: isDocument},
	{id: "problem-link", group: "problems", claim: "A refusal leads to the documentation.", try: otherBody, judge: hasLink},
	{id: "problem-code", group: "problems", claim: "A field has the code of the refusal.", field: "error_header", try: otherBody, judge: hasCode},
	{id: "body-limit", group: "problems", claim: "A body over the limit is refused with 413.", field: "max_request_body", try: heavy, judge: tooLarge},

	{id: "published", group: "documentation", claim: "Refusals lead to a policy that programs can read.", try: pair, judge: isPublished},
})

// withDocumentation adds the checks of what a server publishes.
func withDocumentation(checks []check) []check {
	for _, c := range checks {
		if c.field != "" {
			c.id, c.group, c.documents = report.Documented+c.id, "documentation", true
			checks = append(checks, c)
		}
	}
	return checks
}
