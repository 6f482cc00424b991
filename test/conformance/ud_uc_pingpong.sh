#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# ibv_ud_pingpong and ibv_uc_pingpong between two processes: datagrams and unreliable connections,
# polled and with events. Nothing is lost as long as receives are posted, and the tools post them.
. "$(dirname "$0")/lib.sh"
need ibv_ud_pingpong ibv_uc_pingpong

run() { # TOOL ITERATIONS ARGS...
	local tool=$1 n=$2
	shift 2
	pair 30 "$tool" -p '{PORT}' -n "$n" "$@"
	for side in server client; do
		grep -Eq "^$n iters in [0-9.]+ seconds" "$TMP/$side.out" ||
			fail "$tool $*: $side reports no result"
		! grep -qi 'invalid data' "$TMP/$side.out" || fail "$tool $*: wrong data"
	done
	ok "$tool -n $n $*: $(grep usec/iter "$TMP/client.out" | sed 's/.* = //')"
}

run ibv_ud_pingpong 1000 -c
run ibv_ud_pingpong 300 -c -e
run ibv_ud_pingpong 500 -c -g 0
run ibv_ud_pingpong 500 -c -s 4096
run ibv_uc_pingpong 1000
run ibv_uc_pingpong 300 -e
run ibv_uc_pingpong 200 -s 65536
run ibv_uc_pingpong 200 -g 0
finish
