#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# ibv_srq_pingpong between two processes: 16 RC QPs on one shared receive queue, polled and with
# events.
. "$(dirname "$0")/lib.sh"
need ibv_srq_pingpong

run() { # ITERATIONS ARGS...
	local n=$1
	shift
	pair 30 ibv_srq_pingpong -p '{PORT}' -n "$n" "$@"
	for side in server client; do
		grep -Eq "^$n iters in [0-9.]+ seconds" "$TMP/$side.out" ||
			fail "ibv_srq_pingpong $*: $side reports no result"
	done
	ok "ibv_srq_pingpong -n $n $*: $(grep usec/iter "$TMP/client.out" | sed 's/.* = //')"
}

run 2000
run 2000 -c
run 1000 -e
run 1000 -q 1 -r 16
run 1000 -q 64 -r 500
run 100 -s 65536 -c
finish
