#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Two hosts: network namespaces of our own, joined by a veth pair, with RoCEv2 over UDP between them.
# Foreign programs of every transport, captures of what went over the wire, a bad network, a host
# that goes away.
. "$(dirname "$0")/lib.sh"
need ip ibv_devinfo ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ib_send_bw ib_write_bw ib_read_bw ib_atomic_bw

here=$(dirname "$0")
hosts_make

# hosts SECONDS CMD...: CMD as server on A and as its client on B.
hosts() {
	local limit=$1 rc
	shift
	serve_host 18515 "$limit" "$@"
	on_host "$B" "$limit" "$@" $ADDR_A >"$TMP/client.out" 2>&1
	rc=$?
	[ $rc -eq 0 ] || fail "client of '$*' ended with $rc"
	wait "$SERVER"
	rc=$?
	[ $rc -eq 0 ] || fail "server of '$*' ended with $rc"
	! grep -q '^soft_mlx5:' "$TMP"/*.out || fail "'$*' was refused something"
}

on_host "$A" 10 ibv_devinfo -v >"$TMP/devinfo.out" 2>&1 || fail "ibv_devinfo ended with $?"
for what in 'link_layer:\s+Ethernet' 'active_mtu:\s+1024' 'GID\[ +0\]:\s+::ffff:10.77.0.1, RoCE v2'; do
	grep -Eq "$what" "$TMP/devinfo.out" || fail "ibv_devinfo does not say $what"
done
ok 'the port is that of the interface'

run() { # NAME CMD...
	local name=$1
	shift
	hosts 60 "$@"
	ok "$name: $*"
}

run rc ibv_rc_pingpong -g 0 -c -n 500
run 'rc, events' ibv_rc_pingpong -g 0 -c -n 100 -e
run 'rc, long' ibv_rc_pingpong -g 0 -c -n 5 -s 1000000
run 'rc, RNR' ibv_rc_pingpong -g 0 -c -n 200 -r 1
run uc ibv_uc_pingpong -g 0 -n 200
run ud ibv_ud_pingpong -g 0 -n 200 -s 900
run send ib_send_bw -F -n 300 -s 20000
run write ib_write_bw -F -n 300 -s 20000 -q 4
run read ib_read_bw -F -n 100 -s 20000
run atomic ib_atomic_bw -F -n 300
run dynamic ib_send_bw -F -n 200 -s 3000 -c DC

# What each host sent and received, and what the other wrote of the same.
CAPTURE=1 run 'captured' ibv_rc_pingpong -g 0 -c -n 50 -s 5000
for host in "$A" "$B"; do
	python3 "$here/check_capture" "$TMP/$host.pcap" >"$TMP/$host.txt" 2>"$TMP/check.out" ||
		fail "the capture of $host: $(cat "$TMP/check.out")"
	grep -q '^1 ' "$TMP/$host.txt" || fail "the capture of $host has no packet from a message's middle"
done
sort "$TMP/$A.txt" >"$TMP/a.txt"
sort "$TMP/$B.txt" >"$TMP/b.txt"
[ "$(comm -12 "$TMP/a.txt" "$TMP/b.txt" | wc -l)" -ge 500 ] || fail "the hosts captured different things"
ok 'both captures'
if command -v tshark >/dev/null; then
	tshark -n -r "$TMP/$A.pcap" -T fields -E separator=' ' -e infiniband.bth.opcode -e infiniband.bth.psn \
		2>/dev/null | sort | cmp -s - "$TMP/a.txt" || fail "tshark reads other opcodes or numbers"
	ok 'tshark reads the same'
fi

# Two devices of a host, each with an address.
ip -n "$A" addr add 10.77.1.1/24 dev "va$$" && ip -n "$B" addr add 10.77.1.2/24 dev "vb$$" ||
	fail "cannot add addresses"
SOFT_MLX5_DEVICES=2 SOFT_MLX5_ADDR=10.77.0.1,10.77.1.1 on_host "$A" 10 ibv_devinfo -d mlx5_soft1 -v \
	>"$TMP/second.out" 2>&1
grep -q '::ffff:10.77.1.1, RoCE v2' "$TMP/second.out" || fail "the second device has another address"
SOFT_MLX5_ADDR=10.99.0.1 on_host "$A" 10 ibv_devinfo >"$TMP/none.out" 2>&1
grep -q '^soft_mlx5: device 0 has no address' "$TMP/none.out" || fail "an address that is not ours is not named"
rm "$TMP/none.out"
ok 'addresses'

export SOFT_MLX5_FAULTS=seed=5,drop=0.01,corrupt=0.005,dup=0.01,delay=0.01,reorder=0.01,rnr=0.01
run 'bad send' ib_send_bw -F -n 300 -s 20000
run 'bad write' ib_write_bw -F -n 300 -s 20000
run 'bad read' ib_read_bw -F -n 100 -s 20000
run 'bad atomic' ib_atomic_bw -F -n 200
run 'bad dynamic' ib_send_bw -F -n 200 -s 1000 -c DC
unset SOFT_MLX5_FAULTS

# Waits on a host that has gone fail after their timeouts.
serve_host 18515 30 ib_write_bw -F -s 1024 -D 20
on_host "$B" 30 ib_write_bw -F -s 1024 -D 20 $ADDR_A >"$TMP/client.out" 2>&1 &
CLIENT=$!
PIDS="$PIDS $CLIENT"
sleep 2
ip -n "$A" link set "va$$" down
wait "$CLIENT" && fail "the link that is down was not noticed"
grep -qi 'syndrom\|failed status\|Completion with error' "$TMP/client.out" ||
	fail "the client did not see an error completion"
ok 'a link that is down ends in an error'
finish
