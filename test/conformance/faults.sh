#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A bad network: what is reliable arrives nevertheless, as often as it was sent, and wrong settings are
# named. That it arrives whole and in order is for the engine's tests.
. "$(dirname "$0")/lib.sh"
need ib_send_bw ib_write_bw ib_read_bw ib_atomic_bw ibv_devinfo

run() { # NAME CMD...
	local name=$1
	shift
	pair 40 "$@"
	ok "$name: $*"
}

export SOFT_MLX5_FAULTS=seed=5,drop=0.01,corrupt=0.005,dup=0.01,delay=0.01,reorder=0.01,rnr=0.01
# Programs that part in good order: who leaves when the last ACK is lost leaves the other with a
# timeout, as on any network, and the pingpongs do.
run send ib_send_bw -p '{PORT}' -F -n 500 -s 20000
run shared ib_send_bw -p '{PORT}' -F -n 300 -s 1024 --use-srq -q 4
run dynamic ib_send_bw -p '{PORT}' -F -n 300 -s 1024 -c DC
run write ib_write_bw -p '{PORT}' -F -n 2000 -s 1024
run read ib_read_bw -p '{PORT}' -F -n 300 -s 1024
run atomic ib_atomic_bw -p '{PORT}' -F -n 300
SOFT_MLX5_FAULTS=drop=2 SOFT_MLX5_PCAP=$TMP/none.pcap on 10 ibv_devinfo >"$TMP/bad.out" 2>&1 &&
	fail "a wrong setting passes"
[ ! -e "$TMP/none.pcap" ] || fail "a wrong setting leaves a capture behind"
grep -q "^soft_mlx5: .*faults: 'drop=2' is not" "$TMP/bad.out" || fail "a wrong setting is not named"
ok "a wrong setting"
finish
