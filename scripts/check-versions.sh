#!/usr/bin/env bash
# Builds the library of an earlier commit, and runs its processes and those of the tree beside each other on
# one Redis server, one PostgreSQL database and one SQLite file, in every state of a record, plain and sealed:
# each goes on with what the other has stored, or says 503 and touches nothing. The golden bytes of the
# earlier commit must be as they were.
#
# The commit is moved forward by hand, with each release to its commit. In how many states one of the two refuses
# the records of the other is written here too; what is refused is in the changelog.
set -euo pipefail
cd "$(dirname "$0")/.."

earlier=2c0b78ee2637b4347d4cbd95ac003988834fde93
refused=0

if ! git cat-file -e "$earlier^{commit}" 2>/dev/null; then
	git fetch --quiet --depth=1 origin "$earlier" 2>/dev/null || true
fi
if ! git cat-file -e "$earlier^{commit}" 2>/dev/null; then
	echo "the commit $earlier is not in this clone, which must have the history: git fetch --unshallow, or fetch-depth: 0" >&2
	# A copy without any history cannot be compared; one that has a history must have this commit.
	[ "$(git rev-parse --is-shallow-repository)" = true ] || [ "$(git rev-list --count HEAD)" -eq 1 ]
	exit
fi

changed=$(git diff --name-status --no-renames --diff-filter=a "$earlier" -- ':(glob)**/testdata/forms/**')
if [ -n "$changed" ]; then
	printf 'golden bytes of stored forms have changed; a new form is a new folder:\n%s\n' "$changed" >&2
	exit 1
fi

# Always in the same place: the Go cache has what has not changed since the last check, and does not grow by
# a copy each time.
dir=${XDG_CACHE_HOME:-$HOME/.cache}/idempotency-tools/earlier$PWD
rm -rf "$dir"
mkdir -p "$dir"
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/tree"
git archive "$earlier" | tar -x -C "$dir/tree"
rm -rf "$dir/tree/internal/modeltest/versions"
cp -R internal/modeltest/versions "$dir/tree/internal/modeltest/"
(cd "$dir/tree" && go build -o "$dir/earlier" ./internal/modeltest/versions/process)
[ -x "$dir/earlier" ]

VERSIONS_EARLIER=$dir/earlier REDIS_REQUIRED=1 POSTGRES_REQUIRED=1 \
	go test -vet=off -count=1 -timeout=5m -run='^TestVersionsBesideEachOther$' -v ./internal/modeltest/versions >"$dir/log" 2>&1 || {
	cat "$dir/log"
	exit 1
}
read=$(grep -c -- '--- PASS: .*/.*/' "$dir/log" || true)
skipped=$(grep -c -- '--- SKIP: ' "$dir/log" || true)
echo "$read states were read, $skipped were refused and left alone"
if [ "$skipped" -ne "$refused" ]; then
	grep -B1 'REFUSED' "$dir/log"
	echo "$refused should have been refused" >&2
	exit 1
fi
