#!/usr/bin/env bash
# Runs the README's test command, with a real Redis and the SQLite store, again and again, as it is on a quiet
# machine, on a busy one and on a slow one: N times plain, N times beside two loops that keep two cores busy, N
# times with GOMAXPROCS=1. N is 10 unless the first argument says otherwise. Further arguments go to go test in
# place of ./... ./stores/sqlitestore/...
#
# It prints a line for each run, with the tests that failed. What the failing runs have printed is kept in
# a folder that the last line names. It fails if any run was red: no run is repeated.
set -euo pipefail
cd "$(dirname "$0")/.."

n=${1:-10}
shift || true
[ $# -gt 0 ] || set -- ./... ./stores/sqlitestore/...
export REDIS_REQUIRED=1 # else the tests that wait for a server skip, and they are those that fail on a busy machine
if ! [ "$n" -gt 0 ] 2>/dev/null; then
	echo "usage: scripts/repeat.sh [N [arguments of go test]]" >&2
	exit 2
fi

logs=$(mktemp -d)
loops=()
quiet() {
	[ ${#loops[@]} -eq 0 ] || kill "${loops[@]}" 2>/dev/null || true
	loops=()
}
trap quiet EXIT

red=0
# runs makes N runs with these words before the command, under a title.
runs() {
	local title=$1 i log start failed result
	shift
	for ((i = 1; i <= n; i++)); do
		log=$logs/$title-$i.log
		start=$SECONDS
		if "$@" >"$log" 2>&1; then
			result=green failed=
			rm "$log"
		else
			result=red
			red=$((red + 1))
			# A package that fails as a whole, for want of time for example, has no test that says so.
			failed=$(grep -oE '^ *--- FAIL: [^ ]+|^FAIL\s+\S+|^panic: .*' "$log" | sed -E 's/^ *--- FAIL: //; s/\s+/ /g' | sort -u | paste -sd, - || true)
		fi
		printf '%-9s %2d/%d  %-5s %4d s  %s\n' "$title" "$i" "$n" "$result" $((SECONDS - start)) "$failed"
	done
}

go test -run='^$' "$@" >/dev/null # compiles, so that the first run is like the others
runs plain go test -count=1 "$@"
for _ in 1 2; do
	while :; do :; done &
	loops+=($!)
done
runs busy go test -count=1 "$@"
quiet
runs one-core env GOMAXPROCS=1 go test -count=1 "$@"

if [ "$red" -gt 0 ]; then
	printf '%d of %d runs were red; see %s\n' "$red" $((3 * n)) "$logs"
	exit 1
fi
rmdir "$logs"
printf 'all %d runs were green\n' $((3 * n))
