#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# qperf: a server, and a client for the tests of each transport.
. "$(dirname "$0")/lib.sh"
need qperf
port=$(free_port)
start_server "$TMP/server.out" 170 "$port" qperf -lp "$port"

run() { # TEST...
	local test value
	on 100 qperf -lp "$port" 127.0.0.1 -t 1 "$@" >"$TMP/client.out" 2>&1 || fail "qperf $* ended with $?"
	for test in "$@"; do
		[[ $test =~ rc_|uc_|ud_ ]] && TRANSPORT=${BASH_REMATCH^^} && TRANSPORT=${TRANSPORT%_} ran qperf "$test"
		# The test's name, and behind it lines such as "bw  =  5 GB/sec".
		value=$(awk -v t="$test:" '/^[a-z]/ { on = $1 == t; next } on && $3 > 0 { print $1, $3, $4 }' \
			"$TMP/client.out" | tr '\n' ' ')
		[ -n "$value" ] || fail "qperf $test has no result"
		ok "qperf $test: $value"
	done
}

run rc_lat rc_bw rc_bi_bw rc_rdma_read_lat rc_rdma_read_bw rc_rdma_write_lat rc_rdma_write_bw \
	rc_rdma_write_poll_lat
run rc_compare_swap_mr rc_fetch_add_mr ver_rc_compare_swap ver_rc_fetch_add
run uc_lat uc_bw uc_bi_bw uc_rdma_write_lat uc_rdma_write_bw uc_rdma_write_poll_lat
run ud_lat ud_bw ud_bi_bw
on 10 qperf -lp "$port" 127.0.0.1 quit >"$TMP/quit.out" 2>&1 || fail "the server does not end"
! grep -q '^soft_mlx5:' "$TMP"/*.out || fail "qperf was refused something"
finish
