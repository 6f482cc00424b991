#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Several adapters: each has its name, node, LID and GID; programs on different ones reach each
# other; a number that is none is said and taken for one.
. "$(dirname "$0")/lib.sh"
need ibv_devices ibv_devinfo ibv_rc_pingpong ibv_ud_pingpong

export SOFT_MLX5_DEVICES=3
on 10 ibv_devices >"$TMP/devices.out" 2>&1 || fail "ibv_devices ended with $?"
[ "$(grep -c 'mlx5_soft[012]' "$TMP/devices.out")" -eq 3 ] || fail "ibv_devices does not list three devices"
[ "$(awk '/mlx5_soft/ {print $2}' "$TMP/devices.out" | sort -u | wc -l)" -eq 3 ] || fail "they share a GUID"
for i in 0 1 2; do
	on 10 ibv_devinfo -v -d mlx5_soft$i >"$TMP/info.out" 2>&1 || fail "ibv_devinfo of device $i ended with $?"
	grep -Eq "port_lid:\s+$((i + 1))\$" "$TMP/info.out" || fail "device $i has another LID than $((i + 1))"
	grep -Eq "GID\[ +0\]:\s+fe80:.*:010$i" "$TMP/info.out" || fail "device $i has another GID"
done
ok 'three devices'

across() { # CMD...: the server on device 0, the client on device 2
	local port
	port=$(free_port)
	ran "$@" from one device to another
	start_server "$TMP/server.out" 30 "$port" "$1" -d mlx5_soft0 -p "$port" "${@:2}"
	on 30 "$1" -d mlx5_soft2 -p "$port" "${@:2}" 127.0.0.1 >"$TMP/client.out" 2>&1 ||
		fail "client of '$*' ended with $?"
	wait "$SERVER" || fail "server of '$*' ended with $?"
	! grep -q '^soft_mlx5:' "$TMP"/*.out || fail "'$*' was refused something"
	ok "from one to another: $*"
}

across ibv_rc_pingpong -c -n 500
across ibv_rc_pingpong -c -n 100 -g 0
across ibv_ud_pingpong -n 100
across ibv_ud_pingpong -n 100 -g 0

SOFT_MLX5_DEVICES=99 on 10 ibv_devices >"$TMP/many.out" 2>&1 || fail "ibv_devices ended with $?"
grep -q '^soft_mlx5: SOFT_MLX5_DEVICES is' "$TMP/many.out" || fail "a number that cannot be is not said"
[ "$(grep -c 'mlx5_soft[0-9] ' "$TMP/many.out")" -eq 1 ] || fail "not one device"
ok 'a number that cannot be'
finish
