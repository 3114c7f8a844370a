#!/usr/bin/env bash
# Fuzzes every fuzz target of every module, each for 20 s by default.
#   fuzz.sh [duration]
# It prints a failing input and writes it below the package's testdata/fuzz. Commit it.
set -euo pipefail
cd "$(dirname "$0")/.."
budget=${1:-20s}

out=$(mktemp)
trap 'rm -f "$out"' EXIT

# go test -list prints the targets of a package and then the package.
targets=$(go test -list '^Fuzz' work | awk '
	/^Fuzz/    { name[n++] = $1 }
	/^ok[ \t]/ { for (i = 0; i < n; i++) print $2, name[i]; n = 0 }')
if [ -z "$targets" ]; then
	echo "there is no fuzz target" >&2
	exit 1
fi

failed=0
while read -r pkg name; do
	echo "$pkg $name"
	go test -run '^$' -fuzz "^$name\$" -fuzztime "$budget" -fuzzminimizetime 100x "$pkg" </dev/null >"$out" 2>&1 && rc=0 || rc=$?
	if [ "$rc" -eq 0 ]; then
		grep '^fuzz: elapsed' "$out" | tail -n 1 || true
	elif grep -q '^ *context deadline exceeded$' "$out" && ! grep -q 'Failing input' "$out"; then
		# Up to Go 1.26 the end of -fuzztime is reported as a failure if a worker is
		# busy at that moment (go.dev/issue/75804). A failure proper has its input.
		grep '^fuzz: elapsed' "$out" | tail -n 1 || true
	else
		cat "$out"
		failed=1
	fi
done <<<"$targets"
exit "$failed"
