#!/usr/bin/env bash
# Runs the tests of all modules with the race detector, in random order. It passes its
# arguments to go test.
#
# With REDIS_REQUIRED=1 and POSTGRES_REQUIRED=1, tests that need a server fail if it is missing, and none of them
# may skip. Neither may the slow tests of Redis, which it then runs too.
set -euo pipefail
cd "$(dirname "$0")/.."

summary=(go run ./tools/testsum)
if [ -n "${REDIS_REQUIRED:-}" ]; then
	export REDIS_EXHAUSTIVE=1
	summary+=(-forbid-skip 'redis-server|PostgreSQL|REDIS_EXHAUSTIVE')
fi
go test -json -race -shuffle=on -timeout 20m "$@" work | "${summary[@]}"
