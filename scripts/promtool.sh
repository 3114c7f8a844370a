#!/usr/bin/env bash
# Checks the Prometheus rules and the queries of the Grafana dashboard with promtool, and runs
# the tests of the rules. It uses the promtool of the PATH. Otherwise it takes the one of
# Debian's package prometheus and keeps it in the user's cache. It does not install the package,
# which would start a server.
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

# promtool reads queries only as rules. The variables of Grafana get values.
queries=$(mktemp --suffix=.yml)
trap 'rm -f "$queries"' EXIT
# shellcheck disable=SC2016 # the variables are Grafana's
sed -nE 's/^ *"expr": "(.*)",?$/\1/p' ../grafana/dashboard.json |
	sed -E 's/\\"/"/g; s/\$__[a-z_]+/5m/g; s/\$[a-z]+/.*/g' |
	awk 'BEGIN { print "groups:\n- name: dashboard\n  rules:" }
		{ printf "  - record: panel:%d\n    expr: |-\n      %s\n", NR, $0 }' >"$queries"
"$promtool" check rules "$queries"
