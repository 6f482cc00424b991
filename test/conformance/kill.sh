#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A process killed in the middle of traffic: its peer gets an error in bounded time, the next run on
# the same net starts clean, and killed processes use up nothing.
. "$(dirname "$0")/lib.sh"
need ib_send_bw ibv_rc_pingpong setsid

# The processes of a group that somebody made for us: timeout, script, program.
kill_group() {
	kill -9 -- "-$1" 2>/dev/null
}

# endless CMD...: CMD that would run for minutes; kills one side, and the other must end.
endless() { # client|server: who dies
	local victim=$1 port rc t0 took server client
	port=$(free_port)
	ran ib_send_bw -D 50, the "$victim is killed"
	setsid timeout -k 2 60 "$SOFT_MLX5" ib_send_bw -F -p "$port" -D 50 >"$TMP/server.out" 2>&1 &
	server=$!
	PIDS="$PIDS $server"
	for _ in $(seq 200); do
		is_listening "$port" && break
		sleep 0.05
	done
	setsid timeout -k 2 60 "$SOFT_MLX5" ib_send_bw -F -p "$port" -D 50 127.0.0.1 \
		>"$TMP/client.out" 2>&1 &
	client=$!
	PIDS="$PIDS $client"
	sleep 1.5
	kill -0 "$server" && kill -0 "$client" || fail "traffic did not start"
	t0=$(date +%s%N)
	if [ "$victim" = client ]; then
		kill_group "$client"
		wait "$client" 2>/dev/null
		# The receiver of SENDs has nothing outstanding that could fail: on a real adapter it waits
		# too. It must only not be in the way of the next run.
		kill_group "$server"
		wait "$server" 2>/dev/null
		ok "killed the client"
		return
	fi
	kill_group "$server"
	wait "$server" 2>/dev/null
	wait "$client"
	rc=$?
	took=$((($(date +%s%N) - t0) / 1000000))
	[ $rc -ne 0 ] && [ $rc -ne 124 ] && [ $rc -ne 137 ] || fail "the sender ended with $rc"
	[ $took -le 8000 ] || fail "the sender needed $took ms to see that its peer is gone"
	ok "the sender ended with $rc, $took ms after its peer was killed"
}

next_run() {
	pair 20 ibv_rc_pingpong -p '{PORT}' -c -n 500
	ok "the next run is clean"
}

endless server
next_run
endless client
next_run

# More dead processes than a net has places.
port=$RANDOM
for i in $(seq 14); do
	pids=
	for _ in $(seq 20); do
		port=$((15000 + (port + 1) % 15000)) # Taken or not: it has its place before it listens.
		"$SOFT_MLX5" ibv_rc_pingpong -p "$port" >/dev/null 2>&1 &
		pids="$pids $!"
	done
	sleep 0.3
	# shellcheck disable=SC2086 # a list
	kill -9 $pids
	# shellcheck disable=SC2086
	wait $pids 2>/dev/null
done
next_run
finish
