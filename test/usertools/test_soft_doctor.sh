#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Proves that soft-mlx5 --doctor passes where programs run, and names what keeps them from it: a library
# of another version or none, no provider, wrong and unknown settings, a full /dev/shm, the interface of
# the UDP wire; and that it shows programs that hold a net. Arguments: source root, the library.
set -u

source=$1
export SOFT_MLX5_LIB=$2
soft=$source/usertools/soft-mlx5
for program in python3 ibv_rc_pingpong; do
	command -v $program >/dev/null || { echo "skip: $program is not installed"; exit 77; }
done
tmp=$(mktemp -d) || exit 99
server=
trap '[ -z "$server" ] || kill $server; rm -rf "$tmp"' EXIT
export SOFT_MLX5_NET=test.doctor.$$
failures=0

# expect STATUS TEXT COMMAND...: its status, and a line that TEXT matches; all lines are of one form.
expect() {
	local want=$1 text=$2 rc
	shift 2
	"$@" >"$tmp/out" 2>&1
	rc=$?
	if [ $rc = "$want" ] && grep -Eq "$text" "$tmp/out" &&
		! grep -Evq '^(ok   |warn |fail ) [a-z-]+ +[^ ]' "$tmp/out"; then
		echo "ok: $text"
	else
		echo "FAIL: status $rc, no '$text' or another line:"
		cat "$tmp/out"
		failures=$((failures + 1))
	fi
}

expect 0 '^ok +device +1 of 1 ' "$soft" --doctor
[ "$(wc -l <"$tmp/out")" = 10 ] || { echo "FAIL: not 10 lines"; failures=$((failures + 1)); }
expect 0 '^ok +names .*SOFT_MLX5_DEVICES=2' env SOFT_MLX5_DEVICES=2 "$soft" --doctor
expect 0 '^ok +udp +lo, ' env SOFT_MLX5_WIRE=udp SOFT_MLX5_NETDEV=lo "$soft" --doctor
expect 1 '^fail +settings +device 0 has no address' env SOFT_MLX5_WIRE=udp SOFT_MLX5_NETDEV=none "$soft" --doctor
expect 1 "^fail +settings .*'drop=2'" env SOFT_MLX5_FAULTS=drop=2 "$soft" --doctor
expect 1 '^fail +start .*--progress .nothing. is unknown' "$soft" --progress nothing --doctor
expect 0 '^warn +names +SOFT_MLX5_DEVICE;' env SOFT_MLX5_DEVICE=2 "$soft" --doctor
expect 1 '^fail +start .*there is no /none;' "$soft" --lib /none --doctor
expect 1 '^fail +library +not loaded' "$soft" --lib "$soft" --doctor
mkdir "$tmp/usertools" && cp "$source"/usertools/{soft-mlx5*,crpc_tool.py} "$tmp/usertools/" && echo 9.9 >"$tmp/VERSION"
expect 1 '^fail +library .*libsoft_mlx5.so, version .*expected 9.9' "$tmp/usertools/soft-mlx5" --doctor

SOFT_MLX5_CONTROL=off "$soft" ibv_rc_pingpong -p $((15000 + RANDOM % 15000)) >/dev/null 2>&1 &
server=$!
for _ in {1..100}; do
	[ ! -e "/dev/shm/soft_mlx5.$(id -u).$SOFT_MLX5_NET" ] || break
	sleep 0.1
done
expect 0 "^warn +nets .*of none of them:.* $SOFT_MLX5_NET" "$soft" --doctor

if unshare --mount true 2>/dev/null; then
	# shellcheck disable=SC2016 # for the inner shell
	over() { # FOLDER TEXT: with an empty, small file system there
		expect 1 "$2" unshare --mount bash -c \
			'mount -t tmpfs -o size=64k none "$1" && exec "$2" --doctor' bash "$1" "$soft"
	}
	over /etc/libibverbs.d '^fail +provider .*no mlx5.driver'
	over /dev/shm '^fail +settings .*/dev/shm is full'
	grep -q '^warn *wire ' "$tmp/out" || { echo "FAIL: a full /dev/shm is ok"; failures=$((failures + 1)); }
fi
echo "$failures failures"
[ $failures = 0 ]
