#!/usr/bin/env bash
# Runs the tests of all modules with the race detector, in random order. Further
# arguments go to go test.
#
# With REDIS_REQUIRED=1 tests that need redis-server fail where it is missing, and none
# of them may be skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

summary=(go run ./tools/testsum)
if [ -n "${REDIS_REQUIRED:-}" ]; then
	summary+=(-forbid-skip redis-server)
fi
go test -json -race -shuffle=on -timeout 15m "$@" work | "${summary[@]}"
