#!/usr/bin/env bash
# Checks the Prometheus rules and runs their tests with promtool. It uses the promtool of the
# PATH. Otherwise it takes the one of Debian's package prometheus, without installing the
# package, which would start a server, and keeps it in the user's cache.
#   promtool.sh            checks and tests
#   promtool.sh install    only makes sure that promtool is there
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/idempotency-tools/promtool

fetch() {
	if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
		echo "please install promtool; it is part of Prometheus" >&2
		exit 1
	fi
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/new.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	download || { refresh && download; }
	dpkg-deb -x "$work"/prometheus_*.deb "$work/files"
	mv -f "$work/files/usr/bin/promtool" "$cache/promtool"
}

download() { (cd "$work" && apt-get download -qq prometheus); }

# refresh is for a machine whose list of packages is missing, or too old to download by.
refresh() {
	local as_root=()
	if [ "$(id -u)" -ne 0 ]; then
		as_root=(sudo -n)
	fi
	"${as_root[@]}" apt-get update -qq
}

promtool=$(command -v promtool || true)
if [ -z "$promtool" ]; then
	promtool=$cache/promtool
	[ -x "$promtool" ] || fetch
fi
"$promtool" --version | head -n 1
if [ "${1:-}" = install ]; then
	exit
fi
cd otelidempotency/prometheus
"$promtool" check rules rules.yml
"$promtool" test rules rules_test.yml
