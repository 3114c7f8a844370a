#!/usr/bin/env bash
# Puts axe-core, by which the walk through the console looks for what a screen reader or a keyboard cannot use, into the
# user's cache, once, in the version pinned here. It has no dependencies. Without it, that part of the walk is skipped.
set -euo pipefail
version=4.11.0
cache=${XDG_CACHE_HOME:-$HOME/.cache}/idempotency-tools/axe-core
if ! grep -qs "axe v$version" "$cache/node_modules/axe-core/axe.min.js"; then
	mkdir -p "$cache"
	npm install --silent --prefix "$cache" --no-save --no-audit --no-fund --ignore-scripts "axe-core@$version"
fi
