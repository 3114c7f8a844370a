#!/usr/bin/env bash
# Runs the tests of all modules, in random order with the race detector, but for the packages that only
# compute: these run plain. It passes its arguments to go test.
#
# Nothing is vetted: scripts/check-modules.sh and scripts/lint.sh do that.
#
# With REDIS_REQUIRED=1 and POSTGRES_REQUIRED=1, tests that need a server fail if it is missing, and none of them
# may skip. Neither may the slow tests of Redis, which it then runs too. At the end, each test that
# tools/mutants/mutants.txt names must have run.
set -euo pipefail
cd "$(dirname "$0")/.."

summary=(go run ./tools/testsum)
if [ -n "${REDIS_REQUIRED:-}" ]; then
	export REDIS_EXHAUSTIVE=1
	summary+=(-forbid-skip 'redis-server|PostgreSQL|REDIS_EXHAUSTIVE')
fi

# Nothing in these packages or their tests goes on beside anything else, but for internal/modeltest: what goes on
# there is the contract of the stores, whose own tests run with the detector, and for examples that show one
# framework each. The tables of internal/bench are about speed, of which it leaves a tenth.
computes='^example.com/idempotency/(docs|policy|problem|client/internal/truncate|tools/.*'
computes+='|examples/(observability|openapi|routers)(/.*)?'
computes+='|internal/(aesgcm|bench|chunks|cursor|digest|engine/note|engine/seal|expiry|formtest|history|intern|jcs'
computes+='|keyheader|microbench|modeltest|oldest|policytest|redisproto|rules|slab|slotindex|token))$'
packages=$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' work)
mapfile -t plain < <(grep -E "$computes" <<<"$packages")
mapfile -t race < <(grep -vE "$computes" <<<"$packages")

said=$(mktemp)
trap 'rm -f "$said"' EXIT
# SQLite is C that was translated to Go. The detector would look at each of its memory accesses and take ten times
# as long; it still sees what calls SQLite.
{
	rc=0
	go test -json -vet=off -timeout 10m "$@" "${plain[@]}" || rc=$?
	go test -json -vet=off -race -gcflags='modernc.org/...=-race=false' -shuffle=on -timeout 10m "$@" "${race[@]}" || rc=$?
	exit "$rc"
} | tee "$said" | "${summary[@]}"

# With these arguments, or without a server, not all tests have run.
if [ $# -eq 0 ] && [ -n "${REDIS_REQUIRED:-}" ] && [ -n "${POSTGRES_REQUIRED:-}" ]; then
	go run ./tools/mutants -ran "$said"
fi
