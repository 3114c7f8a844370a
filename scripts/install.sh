#!/usr/bin/env bash
# Installs, on Debian and Ubuntu, what the checks need besides Go and git: Redis, PostgreSQL and
# PgBouncer (the tests start servers of their own), a C compiler for the race detector, shellcheck, Chromium with
# axe-core, Node.js for the linter of OpenAPI documents, and that and Python for services behind idem proxy.
set -euo pipefail
here=$(dirname "$0")

missing=()
have() { command -v "$1" >/dev/null || missing+=("$2"); }
have redis-server redis-server
have redis-cli redis-tools
have redis-sentinel redis-sentinel
have shellcheck shellcheck
# Debian keeps the programs of PostgreSQL's server off the PATH.
if ! compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; then
	have postgres postgresql
fi
# Nor is /usr/sbin on everybody's.
[ -x /usr/sbin/pgbouncer ] || have pgbouncer pgbouncer
have perl perl
# A browser walks through the console. Ubuntu has none that is not a snap, and its runners have Chrome.
command -v google-chrome >/dev/null || have chromium chromium
have node nodejs
have npm npm
have python3 python3
have "${CC:-gcc}" "gcc libc6-dev"
if [ ${#missing[@]} -eq 0 ]; then
	exec "$here/axe.sh"
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
	as_root=(sudo -n)
fi
if ! command -v apt-get >/dev/null || { [ "$(id -u)" -ne 0 ] && ! sudo -n true 2>/dev/null; }; then
	echo "please install: ${missing[*]}" >&2
	exit 1
fi
apt() { "${as_root[@]}" env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get "$@"; }
apt update -qq
# shellcheck disable=SC2068,SC2086 # an entry may be two packages
apt install -y -qq --no-install-recommends ${missing[@]}

# The packages start services unless RUNLEVEL (above) or a policy of the machine prevents it,
# and systemd asks neither.
if [ -d /run/systemd/system ] && [[ ${missing[*]} == *redis* ]]; then
	"${as_root[@]}" systemctl disable --now redis-server redis-sentinel || true
fi
if [ -d /run/systemd/system ] && [[ ${missing[*]} == *postgresql* ]]; then
	"${as_root[@]}" systemctl disable --now postgresql || true
fi
if [ -d /run/systemd/system ] && [[ ${missing[*]} == *pgbouncer* ]]; then
	"${as_root[@]}" systemctl disable --now pgbouncer || true
fi
"$here/axe.sh"
