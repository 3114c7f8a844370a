#!/usr/bin/env bash
# Fuzzes every fuzz target of every module, two beside each other, each for 20 s.
#   fuzz.sh [seconds [least]]
# A target stops earlier when it has found fewer new inputs than least in a second; by default it never
# does. The Go cache keeps what earlier runs have found. The script prints a failing input and writes it below
# the package's testdata/fuzz. Commit it.
set -euo pipefail
cd "$(dirname "$0")/.."
export budget=${1:-20} least=${2:-0} out cache
cache=$(go env GOCACHE)/fuzz
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# Each line is a directory and a target in it.
targets=$(git grep -oE '^func Fuzz\w+' -- '*_test.go' | sed -E 's,^(([^:]*)/)?[^:/]*:func ,./\2 ,')
if [ -z "$targets" ]; then
	echo "there is no fuzz target" >&2
	exit 1
fi

# inputs counts those that are kept for a target.
inputs() { find "$1" -type f 2>/dev/null | wc -l; }

# fuzz is given a directory and a target in it.
fuzz() {
	local name=${1//\//_} log=$out/$2.log pid rc=0 found before now
	cd "$1" || return
	found=$cache/$(<"$out/$name.package")
	"$out/$name.test" -test.run='^$' -test.fuzz="^$2\$" -test.fuzztime="${budget}s" -test.fuzzminimizetime=100x -test.parallel=1 \
		-test.fuzzcachedir="$found" </dev/null >"$log" 2>&1 &
	pid=$!
	# First it tries what is known. Then it says only every three seconds what is new, but writes it at once.
	while kill -0 "$pid" 2>/dev/null && ! grep -qs 'now fuzzing' "$log"; do sleep 0.1; done
	now=$(inputs "$found/$2")
	while before=$now && sleep 1 && kill -0 "$pid" 2>/dev/null; do
		now=$(inputs "$found/$2")
		if [ $((now - before)) -lt "$least" ]; then
			kill -INT "$pid" 2>/dev/null || true
			break
		fi
	done
	wait "$pid" || rc=$?
	# Up to Go 1.26 the end of -fuzztime is reported as a failure if a worker is
	# busy at that moment (go.dev/issue/75804). A failure proper has its input.
	if [ "$rc" -ne 0 ] && { ! grep -q '^ *context deadline exceeded$' "$log" || grep -q 'Failing input' "$log"; }; then
		echo "$1 $2"
		cat "$log"
		return 1
	fi
	echo "$1 $2 $(grep '^fuzz: elapsed' "$log" | tail -n 1)"
}
export -f fuzz inputs

while read -r dir; do
	# Other than with -fuzz, only our packages count what was reached, and what reads requests before them: all
	# others need not be compiled again.
	count=(-gcflags='example.com/idempotency/...=-d=libfuzzer -dwarf=false')
	[ "$dir" != ./internal/wiretest ] || count+=(-gcflags='net/http=-d=libfuzzer' -gcflags='net/textproto=-d=libfuzzer')
	go test -c -ldflags='-s -w' "${count[@]}" -o "$out/${dir//\//_}.test" "$dir"
	go list "$dir" >"$out/${dir//\//_}.package"
done < <(cut -d ' ' -f 1 <<<"$targets" | sort -u)
xargs -n 2 -P 2 "$BASH" -c 'fuzz "$@"' fuzz <<<"$targets"
