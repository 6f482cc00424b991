#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# ibv_rc_pingpong between two processes: RC SEND and RECV, polled and with events, 1 byte to 4 MiB,
# with the tool's own check of the data (-c).
. "$(dirname "$0")/lib.sh"
need ibv_rc_pingpong

run() { # ITERATIONS ARGS...
	local n=$1
	shift
	pair 30 ibv_rc_pingpong -p '{PORT}' -n "$n" "$@"
	for side in server client; do
		grep -Eq "^$n iters in [0-9.]+ seconds" "$TMP/$side.out" ||
			fail "ibv_rc_pingpong $*: $side reports no result"
		! grep -qi 'invalid data' "$TMP/$side.out" || fail "ibv_rc_pingpong $*: wrong data"
	done
	ok "ibv_rc_pingpong -n $n $*: $(grep usec/iter "$TMP/client.out" | sed 's/.* = //')"
}

run 2000 -c
run 500 -e -c
run 500 -g 0
for size in 1 255 4097 65536; do
	run 500 -c -s $size
done
run 30 -c -s 4194304
run 2000 -r 1
for mtu in 256 4096; do
	run 200 -c -s 10000 -m $mtu
done
run 500 -c -s 32 # comes in the CQE
SOFT_MLX5_PROGRESS=thread run 20 -c
SOFT_MLX5_PROGRESS=rt run 200 -c
finish
