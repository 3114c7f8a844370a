package main

import "example.com/idempotency"

// This file has what the API of the earlier commit says in other words; scripts/check-versions.sh has those.

func smallAnswers() idempotency.Option {
	return idempotency.WithLimits(idempotency.Limits{ResponseBody: 1000})
}
