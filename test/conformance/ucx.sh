#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# UCX. Its transports rc_x, ud_x and dc_x write WQEs and read completion queues without functions of
# libibverbs, so that both processes spin where no wrapped poll drives the NIC: a callback of their
# workers does. usage: ucx.sh TRANSPORT | ucx.sh latency | ucx.sh unhooked
. "$(dirname "$0")/lib.sh"
what=$1
need ucx_perftest
[ "$(nproc)" -ge 2 ] || { echo "skip: two spinning processes need two cores"; exit 77; }

perftest() { # TRANSPORT ARG...: 64 bytes unless -s names another size; FINAL: microseconds
	local tls=$1
	shift
	TRANSPORT=$tls pair 60 env UCX_TLS="$tls" UCX_WARN_UNUSED_ENV_VARS=n ucx_perftest -p '{PORT}' -s 64 "$@"
	# Iterations, the 50th percentile of the times, the average of the last ones, of all.
	FINAL=$(awk '/^Final:/ { print $3 }' "$TMP/client.out")
	awk '!($1 > 0) { bad = 1 } END { exit bad }' <<<"$FINAL" || fail "ucx_perftest over $tls, $*: no result"
}

case $what in
latency)
	# Against the twin that polls by ibv_poll_cq(), in turns: other programs on these cores cost
	# both the same. Half of the messages are not disturbed by any of them.
	for twins in rc_v:rc_x ud_v:ud_x rc_v:dc_x; do
		for _ in 1 2 3; do
			perftest "${twins%:*}" -t ucp_am_lat -w 1000 -n 10000
			hooked=$FINAL
			perftest "${twins#*:}" -t ucp_am_lat -w 1000 -n 10000
			echo "ucp_am_lat, 64 bytes: ${twins%:*} $hooked us, ${twins#*:} $FINAL us"
			good=$(awk -v a="$hooked" -v b="$FINAL" 'BEGIN { print b <= 2 * a }')
			[ "$good" = 1 ] && break
		done
		[ "$good" = 1 ] || fail "${twins#*:} takes more than twice the time of ${twins%:*}"
		ok "${twins#*:} with both sides spinning: $FINAL us"
	done
	;;
unhooked)
	# A program that reads queues itself without UCX has only the helper thread, which must get
	# its turn long before a tick of the scheduler: if it yielded to a spinning thread it would
	# wait for 4 ms. Three runs: another program on these cores costs ticks of its own.
	export SOFT_MLX5_PROGRESS=thread
	for _ in 1 2 3; do
		perftest rc_x -t ucp_am_lat -w 50 -n 500
		awk -v us="$FINAL" 'BEGIN { exit !(us < 1000) }' && break
	done
	awk -v us="$FINAL" 'BEGIN { exit !(us < 1000) }' || fail "the helper thread waits for ticks: $FINAL us"
	ok "the helper thread alone: $FINAL us"
	;;
*)
	# All in one run of the program: a line each, and a result each.
	for test in ucp_am_lat ucp_am_bw ucp_put_lat ucp_put_bw ucp_get; do
		echo "$test -t $test -s 64 -w 10 -n 200"
		echo "$test.256k -t $test -s 262144 -w 2 -n 20"
	done >"$TMP/batch"
	for test in ucp_add ucp_fadd ucp_swap ucp_cswap; do
		echo "$test -t $test -s 8 -w 10 -n 200"
	done >>"$TMP/batch"
	perftest "$what" -b "$TMP/batch"
	[ "$(wc -l <<<"$FINAL")" = "$(wc -l <"$TMP/batch")" ] || fail "not a result for each test"
	while read -r name us; do
		TRANSPORT=$what ran ucx_perftest -t "$name"
		ok "ucx_perftest $name over $what: $us us"
	done < <(paste -d' ' <(cut -d' ' -f1 "$TMP/batch") - <<<"$FINAL")
	;;
esac
finish
