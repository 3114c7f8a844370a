#!/usr/bin/env bash
# Runs the test command of README.md exactly as it stands there, with only Go on the PATH,
# because the README promises that Go is enough.
#
# The command is the line of the code block "commands" that begins with "go test". README_EVENTS is a
# file that gets what go test -json says of it, for scripts/test.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

command=$(awk '
	/^```/                { inside = $0 == "```sh commands"; next }
	inside && /^go test/ { print }' README.md)
if [ -z "$command" ]; then
	echo "README.md has no line \"go test\" in the code block \"commands\"" >&2
	exit 1
fi
echo "$command"
unset REDIS_REQUIRED POSTGRES_REQUIRED
only_go=$(go env GOROOT)/bin
[ -n "${README_EVENTS:-}" ] || PATH=$only_go exec "$BASH" -euo pipefail -c "$command"
PATH=$only_go "$BASH" -euo pipefail -c "${command//go test/go test -json}" | tee "$README_EVENTS" | go run ./tools/testsum
