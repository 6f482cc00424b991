#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Programs that connect by librdmacm: rdma-core's examples, rsockets and perftest.
. "$(dirname "$0")/lib.sh"
need rping ucmatose udaddy cmtime rdma_server rdma_client rstream riostream mckey ib_send_bw
PORT=$((15000 + RANDOM % 15000))

# What soft-mlx5 would set for each of so many programs.
eval "$("$SOFT_MLX5" --print-env)" && export SOFT_MLX5_NET ASAN_OPTIONS TSAN_OPTIONS LD_LIBRARY_PATH

on_cm() { # CMD...: bounded, and a child of timeout's
	LD_PRELOAD=$LD_PRELOAD exec timeout -k 2 60 "$@"
}

is_listening_cm() { # SPACE PORT: 106 is that of connections, 111 that of datagrams
	if [ "${SOFT_MLX5_WIRE:-}" = udp ]; then
		is_listening "$2"
	else
		grep -q " 00010000 .* @soft_mlx5\..*\.$SOFT_MLX5_NET\.cm\.$1\.$2\$" /proc/net/unix
	fi
}

serve_cm() { # SPACE CMD...: a server, until it listens
	local space=$1
	shift
	ran "$@"
	on_cm "$@" >"$TMP/server.out" 2>&1 &
	SERVER=$!
	PIDS="$PIDS $SERVER"
	for _ in $(seq 400); do
		is_listening_cm "$space" $PORT && return
		kill -0 "$SERVER" 2>/dev/null || fail "the server ended before it listened: $*"
		sleep 0.05
	done
	fail "the server does not listen: $*"
}

client_cm() { # CMD...
	ran "$@"
	# A thread of rping may ask for an event when main() has closed the channel, and then fails.
	(on_cm "$@") >"$TMP/client.out" 2>&1 ||
		grep -q '^rdma_get_cm_event: Bad file descriptor' "$TMP/client.out" ||
		fail "client '$*' ended with $?"
	! grep -q '^soft_mlx5:' "$TMP"/*.out || fail "'$*' was refused something"
}

served() { # The server ends by itself, without an error.
	wait "$SERVER" || grep -q '^rdma_get_cm_event: Bad file descriptor' "$TMP/server.out" ||
		fail "the server ended with $?"
	! grep -q '^soft_mlx5:' "$TMP"/server.out || fail "the server was refused something"
}

rping_pair() { # SERVER_ADDRESS CLIENT_ADDRESS WHAT
	serve_cm 106 rping -s -a "$1" -p $PORT -C 20 -V -v
	client_cm rping -c -a "$2" -p $PORT -C 20 -V -v
	served
	[ "$(grep -c '^ping data: rdma-ping' "$TMP/client.out")" = 20 ] &&
		grep -q '^server ping data: rdma-ping-19' "$TMP/server.out" || fail "rping: pings are missing"
	ok "rping $3"
}

rping_pair 127.0.0.1 127.0.0.1 'of the loopback address'
rping_pair 0.0.0.0 127.0.0.1 'of a listener of all addresses'
rping_pair :: ::1 'of IPv6'
address=$(ip -4 -o addr show scope global 2>/dev/null | awk '{ sub("/.*", "", $4); print $4; exit }')
[ -z "$address" ] || rping_pair "$address" "$address" 'of the address of an interface'
for fabric in mtu=1024/4096,pkeys,grh roce,pkeys; do
	SOFT_MLX5_FABRIC=$fabric SOFT_MLX5_DEVICES=2 rping_pair 127.0.0.1 127.0.0.1 "with --fabric $fabric"
done
SOFT_MLX5_FABRIC=roce SOFT_MLX5_DEVICES=2 rping_pair 10.77.0.2 10.77.0.2 'of the address of a second device'
[ -z "$address" ] || SOFT_MLX5_WIRE=udp SOFT_MLX5_ADDR=$address \
	rping_pair 0.0.0.0 127.0.0.1 'over UDP, within the host'

serve_cm 106 ucmatose -p $PORT -c 10 -C 20 -S 3000
client_cm ucmatose -p $PORT -c 10 -C 20 -S 3000 -s 127.0.0.1
served
grep -q '^return status 0' "$TMP/client.out" && grep -q '^return status 0' "$TMP/server.out" ||
	fail "ucmatose: no success is reported"
ok "ucmatose, 10 connections"

PORT=7174 serve_cm 111 udaddy -c 4 -C 10 # Which cannot be given another one.
client_cm udaddy -c 4 -C 10 -s 127.0.0.1
served
grep -q '^return status 0' "$TMP/client.out" || fail "udaddy: no success is reported"
ok "udaddy, 4 pairs of queues"

serve_cm 106 cmtime -p $PORT -c 50
client_cm cmtime -p $PORT -c 50 -s 127.0.0.1
grep -q '^disconnect  *:' "$TMP/client.out" || fail "cmtime has no result"
kill "$SERVER"
wait "$SERVER" 2>/dev/null
ok "cmtime, 50 connections: $(awk '/^connect / { print $3 }' "$TMP/client.out") us each"

serve_cm 106 rdma_server -p $PORT
client_cm rdma_client -p $PORT -s 127.0.0.1
served
grep -q 'rdma_client: end 0' "$TMP/client.out" || fail "rdma_client fails"
ok "rdma_server and rdma_client: an identifier moves to a channel of its own"
ran rdma_server
ok "rdma_server"

for tool in rstream riostream; do
	serve_cm 106 $tool -p $PORT -S 4096 -C 100
	client_cm $tool -p $PORT -S 4096 -C 100 -s 127.0.0.1
	served
	grep -q '^custom .*4k' "$TMP/client.out" || fail "$tool has no result"
	ok "$tool: $(awk '/^custom/ { print $NF }' "$TMP/client.out") us"
done

# Servers of perftest listen a second time, for which clients do not wait: those are rejected and
# tried again.
for tool in ib_send_bw 'ib_send_lat -c UD' ib_write_bw; do
	for _ in $(seq 10); do
		# shellcheck disable=SC2086 # words
		serve_cm 106 $tool -R -p $PORT -n 200
		# shellcheck disable=SC2086
		(on_cm $tool -R -p $PORT -n 200 127.0.0.1) >"$TMP/client.out" 2>&1 && break
		grep -Eq 'REJECTED; error: 8|UNREACHABLE; error: 1' "$TMP/client.out" || break
		kill "$SERVER"
		wait "$SERVER" 2>/dev/null
	done
	grep -Eq '^ *[0-9]+ +200 +[0-9.]+' "$TMP/client.out" || fail "$tool -R has no result"
	served
	ok "$tool -R"
done

(on_cm rping -c -a 127.0.0.1 -p $PORT -C 1) >"$TMP/client.out" 2>&1 && fail "rping without a server succeeds"
grep -q 'RDMA_CM_EVENT_REJECTED, error 8' "$TMP/client.out" || fail "rping without a server is not rejected"
ok "a port without a server"

serve_cm 106 rping -s -a 127.0.0.1 -p $PORT
on_cm rping -c -a 127.0.0.1 -p $PORT >"$TMP/client.out" 2>&1 &
client=$!
PIDS="$PIDS $client"
sleep 1
kill -9 "$(pgrep -P "$SERVER")" || fail "the server is not there"
wait "$SERVER" 2>/dev/null
await_line 'DISCONNECT EVENT' "$TMP/client.out" || fail "the client does not see that the server was killed"
ok "a killed server is a disconnect"

(on_cm mckey -m 224.0.0.9 -b 127.0.0.1) >"$TMP/refused.out" 2>&1 && fail "mckey succeeds"
[ "$(grep -c '^soft_mlx5: multicast by rdma_cm is not supported (ENOTSUP)$' "$TMP/refused.out")" = 1 ] ||
	fail "multicast is not refused by name"
ran mckey
record refused "multicast by rdma_cm is not supported"
ok "mckey: multicast is refused"
finish
