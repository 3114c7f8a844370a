#!/usr/bin/env bash
# Lints OpenAPI documents with the fragments of unlike policies, which a test of package policy
# makes, with redocly's strictest rules. The linter is installed into the user's cache, once, in the version
# pinned here; it has no dependencies. The check fails if the linter cannot be had, and if it
# accepts a document that is wrong.
set -euo pipefail
cd "$(dirname "$0")/.."

version=2.77.0
cache=${XDG_CACHE_HOME:-$HOME/.cache}/idempotency-tools/redocly-$version
linter=$cache/node_modules/.bin/redocly
export REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true

if [ "$("$linter" --version 2>/dev/null | tail -n 1)" != "$version" ]; then
	mkdir -p "$cache"
	npm install --silent --prefix "$cache" --no-save --no-audit --no-fund --ignore-scripts "@redocly/cli@$version"
fi
lint() { timeout 60 "$linter" lint --extends=recommended-strict --format=stylish "$@"; }

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
OPENAPI_DIR=$dir go test -vet=off -count=1 -run '^TestDocumentsForTheLinter$' ./policy
documents=("$dir"/*.json)
lint "${documents[@]}"

broken=$dir/broken.json
sed 's,"in": "header","in": "nowhere",' "${documents[0]}" >"$broken"
if lint "$broken" >/dev/null 2>&1; then
	echo "the linter accepts a document that is wrong"
	exit 1
fi
echo "${#documents[@]} documents are valid"
