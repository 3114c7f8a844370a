#!/usr/bin/env bash
# Runs the tests of all modules, in random order with the race detector, but for the packages that only
# compute: these run plain. It passes its arguments to go test.
#
# Nothing is vetted: scripts/lint.sh does that. README_EVENTS is a file with the events of the README's command,
# which has run the root's packages that only compute: then they do not run again.
#
# With REDIS_REQUIRED=1 and POSTGRES_REQUIRED=1, tests that need a server fail if it is missing, and none of them
# may skip. Neither may the slow tests of Redis, which it then runs too. At the end, each test that
# tools/mutants/mutants.txt names must have run.
set -euo pipefail
cd "$(dirname "$0")/.."

summary=(go run ./tools/testsum)
if [ -n "${REDIS_REQUIRED:-}" ]; then
	export REDIS_EXHAUSTIVE=1
	# Services that idem proxy and idem conform are tested with run on Express. It is installed into the user's cache, once.
	node=${XDG_CACHE_HOME:-$HOME/.cache}/idempotency-tools/node-express-5.3.0-idempotency-1.0.6
	[ -d "$node/node_modules/express-idempotency" ] ||
		npm install --silent --prefix "$node" --no-save --no-audit --no-fund --ignore-scripts express@5.3.0 express-idempotency@1.0.6
	export NODE_MODULES=$node/node_modules EXPRESS=$node/node_modules/express
	summary+=(-forbid-skip 'redis-server|PostgreSQL|REDIS_EXHAUSTIVE|Chromium|axe-core|node is not|python3 is not|NODE_MODULES')
fi

# Nothing in these packages or their tests goes on beside anything else, but for internal/modeltest: what goes on
# there is the contract of the stores, whose own tests run with the detector, for examples that show one framework
# each, and for internal/security: its floods are thousands of requests that do what a few hundred do in
# internal/runtest, with the detector. The tables of internal/bench and internal/microbench are about speed, of which it
# leaves a tenth. The rest of "exempt" are tools, and a request that is sent while another runs.
computes='^example.com/idempotency/(cmd/idem/internal/conform/peers|console/internal/browsertest|docs|policy|problem|client/internal/truncate|tools/.*'
computes+='|examples/(observability|openapi|routers)(/.*)?'
computes+='|internal/(aesgcm|answer|bench|chunks|cursor|digest|engine/note|engine/seal|expiry|formtest|history|intern|jcs'
computes+='|keyheader|microbench|modeltest|oldest|policytest|redisproto|rules|security|slab|slotindex|token))$'
packages=$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' work)
exempt='/(examples/.*|cmd/idem/internal/conform/peers|tools/mutants|internal/(bench|microbench|modeltest|policytest|security))$'
mapfile -t alone < <(grep -E "$computes" <<<"$packages" | grep -vE "$exempt" | xargs go list -f '{{.Dir}}')
starts=$(for dir in "${alone[@]}"; do grep -HnE '^\s*go (func\b|[[:alnum:]_.]+\()|\.Go\(' "$dir"/*.go; done || true)
if [ -n "$starts" ]; then
	printf 'these start goroutines, and would run without the race detector:\n%s\n' "$starts" >&2
	exit 1
fi
# Those that take longest, the stores with databases and the root, are the last and the first of the list. They begin
# first, or one of them would go on alone at the end.
mapfile -t plain < <(grep -E "$computes" <<<"$packages" | tac)
mapfile -t race < <(grep -vE "$computes" <<<"$packages" | tac)
race=("${race[-1]}" "${race[@]::${#race[@]}-1}")
# SQLite is C that was translated to Go. The detector would look at each of its memory accesses and take ten times as
# long; it still sees what calls SQLite. No other package can be left out: the linker takes the functions of sync with type
# parameters from any package, and without the detector they look like races. Nobody debugs what is compiled here.
flags=(-race -gcflags='example.com/idempotency/...=-dwarf=false' -gcflags='modernc.org/...=-race=false')
# Half of their time, they wait for servers and leases: three packages for two processors, and those that only compute
# beside them.
flags+=(-p=$(($(getconf _NPROCESSORS_ONLN) * 3 / 2)))

ran=() contract= # but for those of which more runs with Redis
if [ $# -eq 0 ] && [ -s "${README_EVENTS:-}" ]; then
	mapfile -t ran < <(printf '%s\n' "${plain[@]}" | grep -xF -f <(go list ./...) | grep -vE '/(microbench|security)$')
	mapfile -t plain < <(printf '%s\n' "${plain[@]}" | grep -vxF -f <(printf '%s\n' "${ran[@]}"))
	# The contract on miniredis, whose Lua the detector makes slow. On real servers it runs the same code of ours with it.
	if [ -n "${REDIS_REQUIRED:-}" ]; then
		flags+=(-skip='^TestRedisContract$/^miniredis$')
		contract='"Test":"TestRedisContract/miniredis["/]'
	fi
fi

said=$(mktemp) computed=$(mktemp)
trap 'rm -f "$said" "$computed"' EXIT
{
	rc=0
	[ ${#ran[@]} -eq 0 ] || printf '"Package":"%s"\n' "${ran[@]}" | grep -F -f - "$README_EVENTS"
	[ -z "$contract" ] || grep "$contract" "$README_EVENTS"
	go test -json -vet=off -timeout 10m "$@" "${plain[@]}" >"$computed" &
	# Most heaps are small, and the detector makes their collection costly: with fewer of them, tests take a tenth less.
	GOGC=400 go test -json -vet=off "${flags[@]}" -shuffle=on -timeout 15m "$@" "${race[@]}" || rc=$?
	wait $! || rc=$?
	cat "$computed"
	exit "$rc"
} | tee "$said" | "${summary[@]}" || failed=1

# With these arguments, or without a server, not all tests have run.
if [ $# -eq 0 ] && [ -n "${REDIS_REQUIRED:-}" ] && [ -n "${POSTGRES_REQUIRED:-}" ]; then
	go run ./tools/mutants -ran "$said"
fi
[ -z "${failed:-}" ]
