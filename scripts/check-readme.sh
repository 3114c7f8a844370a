#!/usr/bin/env bash
# Runs the command that README.md gives for the tests, as it stands there, with nothing
# but Go on the PATH: that is the machine the README promises it for.
#
# The command is the code block after the line <!-- test-command -->.
set -euo pipefail
cd "$(dirname "$0")/.."

command=$(awk '
	/^<!-- test-command -->$/ { found = 1; next }
	found && /^```/           { if (inside) exit; inside = 1; next }
	inside                    { print }' README.md)
if [ -z "$command" ]; then
	echo "README.md has no code block after <!-- test-command -->" >&2
	exit 1
fi
echo "$command"
unset REDIS_REQUIRED
PATH=$(go env GOROOT)/bin exec "$BASH" -euo pipefail -c "$command"
