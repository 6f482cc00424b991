#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Programs that connect by librdmacm between two hosts: the same as within one; what is not there;
# two addresses of one host; a server whose port strangers flood.
. "$(dirname "$0")/lib.sh"
need ip rping ucmatose udaddy cmtime rstream ib_send_lat
hosts_make
ip -n "$A" addr add 10.77.1.1/24 dev "va$$" && ip -n "$B" route add 10.77.1.0/24 dev "vb$$" &&
	ip -n "$A" addr add fd77::1/64 dev "va$$" nodad && ip -n "$B" addr add fd77::2/64 dev "vb$$" nodad &&
	ip -n "$B" addr add 10.77.0.3/24 dev "vb$$" || fail "cannot add addresses"
PORT=7471

client() { # CMD...: on B
	on_host "$B" 60 "$@" >"$TMP/client.out" 2>&1 ||
		grep -q '^rdma_get_cm_event: Bad file descriptor' "$TMP/client.out" ||
		fail "client '$*' ended with $?"
	! grep -q '^soft_mlx5:' "$TMP"/*.out || fail "'$*' was refused something"
}

served() { # The server ends by itself.
	wait "$SERVER" || grep -q '^rdma_get_cm_event: Bad file descriptor' "$TMP/server.out" ||
		fail "the server ended with $?"
}

server_kill() { # With all that runs on its host.
	# shellcheck disable=SC2046 # words
	kill -9 $(ip netns pids "$A")
	wait "$SERVER" 2>/dev/null
}

pings() { # WHAT
	[ "$(grep -c '^ping data: rdma-ping' "$TMP/client.out")" = 20 ] || fail "rping $1: pings are missing"
	ok "rping $1"
}

rping_hosts() { # SERVER_ADDRESS CLIENT_ADDRESS WHAT
	serve_host $PORT 60 rping -s -a "$1" -p $PORT -C 20 -V
	client rping -c -a "$2" -p $PORT -C 20 -V -v
	served
	pings "$3"
}

rping_hosts $ADDR_A $ADDR_A 'to the address of a device'
rping_hosts 0.0.0.0 10.77.1.1 'to another address of the host'
rping_hosts fd77::1 fd77::1 'of IPv6'
rping_hosts :: $ADDR_A 'of IPv4 to a listener of IPv6'
rping_hosts ::ffff:$ADDR_A $ADDR_A 'of IPv4 to a listener of its address in IPv6'

serve_host $PORT 60 ucmatose -p $PORT -c 10 -C 20 -S 3000
client ucmatose -p $PORT -c 10 -C 20 -S 3000 -s $ADDR_A
served
grep -q '^return status 0' "$TMP/client.out" && grep -q '^return status 0' "$TMP/server.out" ||
	fail "ucmatose: no success is reported"
ok 'ucmatose, 10 connections'

serve_host 7174 60 udaddy -c 4 -C 10
client udaddy -c 4 -C 10 -s $ADDR_A
served
grep -q '^return status 0' "$TMP/client.out" || fail "udaddy: no success is reported"
ok 'udaddy, 4 pairs of queues'

serve_host $PORT 60 cmtime -p $PORT -c 100
client cmtime -p $PORT -c 100 -s $ADDR_A
grep -q '^disconnect  *:' "$TMP/client.out" || fail "cmtime has no result"
server_kill
ok 'cmtime, 100 connections'

serve_host $PORT 60 rstream -p $PORT -S 4096 -C 100
client rstream -p $PORT -S 4096 -C 100 -s $ADDR_A
served
grep -q '^custom .*4k' "$TMP/client.out" || fail "rstream has no result"
ok 'rstream'

# Servers of perftest listen a second time, for which clients do not wait: they are rejected then.
for _ in $(seq 10); do
	serve_host $PORT 60 ib_send_lat -R -p $PORT -n 200
	on_host "$B" 60 ib_send_lat -R -p $PORT -n 200 $ADDR_A >"$TMP/client.out" 2>&1 && break
	grep -q 'REJECTED; error: 8' "$TMP/client.out" || break
	server_kill
done
served
grep -Eq '^ *[0-9]+ +200 +[0-9.]+' "$TMP/client.out" || fail "ib_send_lat -R has no result"
ok 'ib_send_lat -R'

fails() { # ADDRESS EVENT: an rping to it
	SOFT_MLX5_CM_TIMEOUT=500 on_host "$B" 20 rping -c -a "$1" -p $PORT -C 1 >"$TMP/client.out" 2>&1 &&
		fail "rping to $1 succeeds"
	grep -q "RDMA_CM_EVENT_$2\$" "$TMP/client.out" || fail "rping to $1 does not report $2"
	ok "$2"
}

fails $ADDR_A 'REJECTED, error 8'
fails 10.77.0.9 'UNREACHABLE, error -110'
fails 10.99.0.1 'ADDR_ERROR, error -101'

# 192.0.2.1 is no address of the host. The second device has one, which is that of the listener's address.
SOFT_MLX5_ADDR=192.0.2.1 serve_host $PORT 60 rping -s -a 0.0.0.0 -p $PORT
fails $ADDR_A 'REJECTED, error 8'
fails 10.77.1.1 'REJECTED, error 8'
server_kill
export SOFT_MLX5_DEVICES=2
SOFT_MLX5_ADDR=192.0.2.1,$ADDR_A serve_host $PORT 60 rping -s -a 0.0.0.0 -p $PORT -C 20 -V
unset SOFT_MLX5_DEVICES
fails 10.77.1.1 'REJECTED, error 8'
on_host "$B" 60 rping -c -a $ADDR_A -p $PORT -C 20 -V -v >"$TMP/client.out" 2>&1
served
pings 'to the second device, where the first has no address'

# A connection takes longer than the call that asks for it.
if ip netns exec "$B" tc qdisc add dev "vb$$" root netem delay 50ms 2>/dev/null; then
	rping_hosts $ADDR_A $ADDR_A 'to a host 50 ms away'
	ip netns exec "$B" tc qdisc del dev "vb$$" root
else
	echo "skip: no netem, so no host is 50 ms away"
fi

# Two processes of one host, each with an address of its own.
SOFT_MLX5_ADDR=$ADDR_A serve_host $PORT 60 rping -s -a $ADDR_A -p $PORT -C 20 -V
SOFT_MLX5_ADDR=10.77.1.1 on_host "$A" 60 rping -c -a $ADDR_A -p $PORT -C 20 -V -v >"$TMP/client.out" 2>&1
served
pings 'between two addresses of one host'

serve_host $PORT 60 rping -s -a $ADDR_A -p $PORT
on_host "$B" 60 rping -c -v -a $ADDR_A -p $PORT >"$TMP/client.out" 2>&1 &
client=$!
PIDS="$PIDS $client"
await_line '^ping data' "$TMP/client.out" 20 || fail "no data reaches the client"
server_kill
await_line 'DISCONNECT EVENT' "$TMP/client.out" || fail "the client does not see that the server was killed"
ok 'a killed server is a disconnect'

# Silent connections, halves of messages, whole ones that are none, ends of each at any time; and
# packets of the wire that are none. From two addresses, of which one is that of a client.
cat >"$TMP/flood.py" <<'FLOOD'
import os, random, socket, sys, time
host, port = sys.argv[1], int(sys.argv[2])
rand, open_, made = random.Random(7), [], 0
wire = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
wire[0].bind(("10.77.0.3", 4791))
end = time.time() + float(sys.argv[3])
while time.time() < end:
    s = socket.socket()
    s.bind((rand.choice(("10.77.0.2", "10.77.0.3")), 0))
    s.settimeout(0.2)
    try:
        s.connect((host, port))
        s.send(rand.choice((b"", b"SCM2" + bytes(90), os.urandom(372), b"SCM2" + os.urandom(368), bytes(5000))))
        made += 1
    except OSError:
        pass
    open_.append(s)
    while len(open_) > 200:
        open_.pop(rand.randrange(len(open_))).close()
    for w in wire:
        for _ in range(20):
            w.sendto(os.urandom(rand.randrange(1, 1400)), (host, 4791))
print(made)
FLOOD
serve_host $PORT 100 rping -s -P -a $ADDR_A -p $PORT
server=$(ip netns pids "$A" | while read -r pid; do
	[ "$(cat "/proc/$pid/comm")" = rping ] && echo "$pid"
done)
before=$(ls "/proc/$server/fd" | wc -l)
ip netns exec "$B" python3 "$TMP/flood.py" $ADDR_A $PORT 8 >"$TMP/flood.out" 2>&1 &
flood=$!
PIDS="$PIDS $flood"
most=0
clients=0
sleep 1
while kill -0 $flood 2>/dev/null; do
	client rping -c -a $ADDR_A -p $PORT -C 20 -V -v
	[ "$(grep -c '^ping data: rdma-ping' "$TMP/client.out")" = 20 ] || fail "rping in a flood: pings are missing"
	clients=$((clients + 1))
	now=$(ls "/proc/$server/fd" | wc -l)
	[ "$now" -gt $most ] && most=$now
done
made=$(cat "$TMP/flood.out")
[ "$made" -gt 500 ] || fail "the flood has only '$made' connections"
# 16 of each of the two addresses, and those of clients that end.
[ $((most - before)) -le 60 ] || fail "the server has $most descriptors, $before before the flood"
ok "$clients clients in a flood of $made connections, at most $((most - before)) descriptors more"
server_kill
finish
