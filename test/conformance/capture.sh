#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Captures of programs on the wire of shared memory: tshark reads them as RoCEv2, with the opcodes
# that the programs sent and nothing malformed, and check_capture, which computes ICRCs for itself,
# agrees about every opcode and number.
. "$(dirname "$0")/lib.sh"
need ibv_rc_pingpong ibv_ud_pingpong ibv_uc_pingpong ib_write_bw ib_read_bw ib_atomic_bw ib_send_bw tshark python3

here=$(dirname "$0")
export SOFT_MLX5_PCAP=$TMP/wire.pcap

dissect() { # OUT FIELD...
	local out=$1 fields=()
	shift
	for f in "$@"; do
		fields+=(-e "$f")
	done
	tshark -n -r "$SOFT_MLX5_PCAP" -T fields -E separator=' ' "${fields[@]}" >"$out" 2>"$TMP/tshark.err" ||
		fail "tshark cannot read the capture: $(cat "$TMP/tshark.err")"
}

# What both say must be the same; each opcode named must be there.
compare() { # NAME OPCODE...
	local name=$1 op
	shift
	tshark -n -r "$SOFT_MLX5_PCAP" -Y '_ws.malformed || !infiniband.bth' >"$TMP/bad.out" 2>/dev/null
	[ ! -s "$TMP/bad.out" ] || fail "$name: tshark calls frames malformed or no RoCEv2"
	dissect "$TMP/theirs" infiniband.bth.opcode infiniband.bth.psn
	diff <(sort "$TMP/ours") <(sort "$TMP/theirs") >"$TMP/diff.out" ||
		fail "$name: tshark and check_capture differ"
	for op in "$@"; do
		grep -q "^$((op)) " "$TMP/theirs" || fail "$name: no packet of opcode $op"
	done
	ok "$name: $(wc -l <"$TMP/theirs") packets"
	rm -f "$SOFT_MLX5_PCAP"
}

check() { # MTU
	python3 "$here/check_capture" ${1:+--in-order "$1"} "$SOFT_MLX5_PCAP" >"$TMP/ours" 2>"$TMP/check.out" ||
		fail "check_capture: $(cat "$TMP/check.out")"
}

pair 30 ibv_rc_pingpong -p '{PORT}' -n 20 -s 10000 -m 1024 -c
check 1024
compare 'RC SEND of ten packets' 0x00 0x01 0x02 0x11

pair 30 ib_write_bw -p '{PORT}' -F -n 5 -s 9000 -m 2048
check 2048
compare 'RC WRITE' 0x06 0x07 0x08 0x11

pair 30 ib_read_bw -p '{PORT}' -F -n 5 -s 9000 -m 1024
check 1024
compare 'RC READ' 0x0c 0x0d 0x0e 0x0f

pair 30 ib_atomic_bw -p '{PORT}' -F -n 10
check 4096
compare 'atomics' 0x12 0x14

pair 30 ibv_uc_pingpong -p '{PORT}' -n 5 -s 3000 -m 1024
check 1024
compare 'UC SEND' 0x20 0x21 0x22

pair 30 ibv_ud_pingpong -p '{PORT}' -n 10 -s 500
check ''
dissect "$TMP/deth" infiniband.deth.q_key infiniband.deth.srcqp
[ "$(sort -u "$TMP/deth" | wc -l)" -eq 2 ] || fail "UD: not two senders with one key"
compare 'UD SEND' 0x64

pair 30 ib_send_bw -p '{PORT}' -F -n 10 -s 3000 -c DC
check ''
compare 'DC' 0xc4

# Under loss the capture shows what is sent again: more packets, each whole.
export SOFT_MLX5_FAULTS=seed=3,drop=0.05
pair 30 ib_send_bw -p '{PORT}' -F -n 50 -s 20000 -m 1024
check ''
dissect "$TMP/aeth" infiniband.aeth.syndrome
grep -Eqi '^(0x)?0*(60|96)$' "$TMP/aeth" || fail "no NAK of a lost packet: $(sort "$TMP/aeth" | uniq -c)"
compare 'loss' 0x00 0x02 0x11
unset SOFT_MLX5_FAULTS

echo 'something else' >"$SOFT_MLX5_PCAP"
on 10 ibv_devinfo >"$TMP/other.out" 2>&1 && fail "a file that is no capture is written to"
grep -q '^soft_mlx5: .*capture .*none of ours' "$TMP/other.out" || fail "it is not said that the file is no capture"
[ "$(cat "$SOFT_MLX5_PCAP")" = 'something else' ] || fail "a foreign file was changed"
ok 'a foreign file is left alone'
finish
