#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A bad network: what is reliable arrives whole nevertheless, and wrong settings are named.
. "$(dirname "$0")/lib.sh"
need ibv_rc_pingpong ibv_srq_pingpong ib_write_bw ib_read_bw ib_atomic_bw

run() { # NAME CMD...
	local name=$1
	shift
	pair 40 "$@"
	ok "$name: $*"
}

export SOFT_MLX5_FAULTS=seed=5,drop=0.01,corrupt=0.005,dup=0.01,delay=0.01,reorder=0.01,rnr=0.01
run data ibv_rc_pingpong -p '{PORT}' -n 150 -c
grep -Eq '^150 iters' "$TMP/client.out" && ! grep -qi 'invalid data' "$TMP/client.out" "$TMP/server.out" ||
	fail "wrong data on a bad network"
run long ibv_rc_pingpong -p '{PORT}' -n 20 -c -s 100000
run shared ibv_srq_pingpong -p '{PORT}' -n 150
run write ib_write_bw -p '{PORT}' -F -n 2000 -s 1024
run read ib_read_bw -p '{PORT}' -F -n 300 -s 1024
run atomic ib_atomic_bw -p '{PORT}' -F -n 300
SOFT_MLX5_FAULTS=drop=2 on 10 ibv_devinfo >"$TMP/bad.out" 2>&1 && fail "a wrong setting passes"
grep -q "^soft_mlx5: SOFT_MLX5_FAULTS is 'drop=2'" "$TMP/bad.out" || fail "a wrong setting is not named"
ok "a wrong setting"
finish
