#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Ranks on hosts of their own, launched as on a cluster: mpirun starts its daemon on each host, a rank is
# started by its host's, and ranks share nothing but RoCEv2 over UDP. Every answer verified on two hosts and
# on three, and on a bad network; what all saw is linearizable, also when a rank is killed (-9) or a
# host's cable is pulled, which the others report within 2 s; the next run is clean.
. "$(dirname "$0")/benchkv_lib.sh"
. "$(dirname "$0")/hosts_lib.sh"
need mpirun

hosts_make 3

verified() { # NAME HOSTS ARG...
	local name=$1 n=$2
	shift 2
	rm -f "$TMP/$name.jsonl"
	hosts "$n" 90 --verify --quiet --json "$TMP/$name.jsonl" --warmup 0.2 --seconds 1 "$@" \
		>"$TMP/$name.out" 2>"$TMP/$name.err" || fail "$name: mpirun ended with $?"
	check_json "$TMP/$name.jsonl" "len(k) == $n" 'all(x["verify_errors"] == 0 for x in r)' \
		't["sent"] == t["answered"] > 10' 't["failed"] == 0' 't["lost_peers"] == 0' \
		'all(x["remote_ops_per_s"] > 0 for x in r)'
	[ "$(cat "$TMP"/host.* | sort -u | wc -l)" = "$n" ] || fail "$name: hosts: $(cat "$TMP"/host.*)"
	hosts_clean "$name"
	ok "$name: $(python3 -c "import json
for line in open('$TMP/$name.jsonl'):
    x = json.loads(line)
    if x['record'] == 'total':
        print(int(x['ops_per_s']), 'operations per second')")"
}

linearizable() { # WHAT
	"$LINCHECK" "$TMP"/h.* >"$TMP/lincheck.out" 2>"$TMP/lincheck.err" ||
		fail "$1: not linearizable: $(cat "$TMP/lincheck.out" "$TMP/lincheck.err")"
	ok "$1: $(cat "$TMP/lincheck.out")"
}

# A run in the background that is in its measured window when this returns.
start() { # NAME ARG...
	local name=$1
	shift
	rm -f "$TMP"/h.*
	MPIRUN_ARGS=--enable-recovery
	hosts 2 60 --verify --clients 4 --keys 5 --read-ratio 0.4 --rate 4000 --warmup 0.1 --history "$TMP/h" \
		--history-ops 200k --json "$TMP/$name.jsonl" "$@" >"$TMP/$name.out" 2>"$TMP/$name.err" &
	RUN=$!
	MPIRUN_ARGS=
	BACKGROUND="$BACKGROUND $RUN"
	wait_for 30 "$TMP/$name.out" 'clients x QD'
	sleep 0.7
	T0=$(date +%s%N)
}

# Both reported it in time, and once.
reported() { # NAME SURVIVOR LOST
	local took
	wait_for 6 "$TMP/err.$2" "rank $2: lost rank $3"
	took=$((($(date +%s%N) - T0) / 1000000))
	told_in_time $took
	echo "rank $2: rank $3 lost, after $took ms"
}

verified two 2 --clients 4 --depth 4
verified three 3 --clients 4 --idle yield
export SOFT_MLX5_FAULTS=seed=3,drop=0.01,corrupt=0.002,dup=0.01,reorder=0.01
verified 'bad network' 2 --clients 4 --value-size 100
unset SOFT_MLX5_FAULTS

for victim in 1 0; do
	survivor=$((1 - victim))
	start kill$victim --seconds 3.5
	kill -9 "$(running ranks_pids $victim)" || fail "rank $victim does not run"
	reported kill$victim $survivor $victim
	wait $RUN
	[ "$(rank_rc $survivor)" = 1 ] || fail "the survivor ended with $(rank_rc $survivor), not 1"
	[ "$(grep -c 'lost rank' "$TMP/err.$survivor")" = 1 ] || fail "the loss was reported more than once"
	check_json "$TMP/kill$victim.jsonl" 'len(k) == 1' 'k[0]["verify_errors"] == 0' 'k[0]["failed"] > 0' \
		'k[0]["sent"] == k[0]["answered"]'
	linearizable "rank $victim killed"
	verified next 2 --clients 4
done

# The cable: both sides live and lose each other. The launcher hears from the far host when it is back.
start cable --seconds 4
on_host 0 ip link set port2 down
reported cable 0 1
reported cable 1 0
sleep 1
on_host 0 ip link set port2 up
wait $RUN
[ "$(rank_rc 0) $(rank_rc 1)" = '1 1' ] || fail "ranks without a cable ended with $(rank_rc 0) $(rank_rc 1)"
check_json "$TMP/cable.jsonl" 'all(x["verify_errors"] == 0 and x["sent"] == x["answered"] for x in k)' \
	'k[0]["failed"] > 0'
linearizable "a cable pulled"
verified last 2 --clients 4
finish
