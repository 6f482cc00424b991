#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Several daemons in a rank: every key has one owner, every answer verified, whichever way a request goes:
# by flux, straight from the client, from another rank to the owner or through the daemon that forwards. One
# lcore or two, one rank or two; a killed rank and SIGINT.
. "$(dirname "$0")/benchkv_lib.sh"

# What holds for any run: d are the lines of the daemons, k of the ranks.
COMMON=('t["verify_errors"] == 0' 't["sent"] == t["answered"] > (10 if t["noisy"] else 1000)' 't["lost_peers"] == 0'
	'sum(x["keys"] for x in d) == t["ranks"] * t["keys"]' 'all(x["keys"] > 0 for x in d)'
	'sum(x["clients"] for x in d) == t["clients"]'
	'len({(x["rank"], x["daemon"]) for x in d}) == len(d) == t["daemons"]'
	'all(x["requests"]["bad"] == 0 and x["requests"]["failed"] == 0 for x in d)'
	'sum(x["requests"]["local"] for x in d) == t["requests"]["local"]'
	'0.5 < t["little_ratio"] < 1.5 or t["noisy"]')
# Each window begins and ends a little later on one lcore than on another: calls of a few milliseconds.
SAME='lambda a, b: abs(a - b) <= 0.2 * max(a, b) + 2000'

alone() { # NAME EAL_ARGS ARG...: one rank
	local name=$1 eal=$2
	shift 2
	# shellcheck disable=SC2086 # a list
	timeout -k 2 60 "$BENCHKV" --no-huge $eal -- --name "$SEGMENT" --verify --warmup 0.2 --quiet \
		--json "$TMP/$name.jsonl" "$@" >"$TMP/$name.out" 2>"$TMP/$name.err" ||
		fail "$name ended with $?"
	check_json "$TMP/$name.jsonl" "${COMMON[@]}" 't["remote_ops_per_s"] == 0' \
		"($SAME)(t[\"requests\"][\"forwarded\"], t[\"requests\"][\"of_daemons\"])"
	grep -q 'rank 0  lcore .* daemon 1: ' "$TMP/$name.out" || fail "$name printed no map"
	nothing_left "$name"
}

pair() { # NAME ARG...: two ranks
	local name=$1
	shift
	two 90 --verify --quiet --warmup 0.3 --json "$TMP/$name.jsonl" "$@" >"$TMP/$name.out" \
		2>"$TMP/$name.err" || fail "$name: mpirun ended with $?"
	[ "$(rank_rc 0) $(rank_rc 1)" = "0 0" ] || fail "$name: ranks ended with $(rank_rc 0) $(rank_rc 1)"
	check_json "$TMP/$name.jsonl" "${COMMON[@]}" 't["failed"] == 0' \
		'all(x["remote_ops_per_s"] > 0 for x in k)' \
		"($SAME)(t[\"requests\"][\"remote\"], t[\"requests\"][\"of_ranks\"])"
	grep -q 'rank 1  lcore .* daemon 1: .* queue pair' "$TMP/$name.out" || fail "$name printed no map"
	nothing_left "$name"
}

alone two_lcores "" --daemons 2 --clients 8 --depth 4 --seconds 1
check_json "$TMP/two_lcores.jsonl" 't["forwarded_ops_per_s"] > 0' \
	'0.3 < t["forwarded_ops_per_s"] / t["ops_per_s"] < 0.7' \
	'all(x["requests"]["of_daemons"] > 100 for x in d)' 't["lat_us"]["forwarded"]["p50"] > 0'
ok "one rank, two daemons"
FIRST=$(taskset -cp $$ | sed 's/.*: *//; s/[,-].*//')
alone one_lcore "-l $FIRST" --daemons 2 --clients 8 --seconds 1
check_json "$TMP/one_lcore.jsonl" 't["forwarded_ops_per_s"] > 0' 'd[0]["lcore"] == d[1]["lcore"]'
ok "two daemons on one lcore"
alone large "" --daemons 3 --clients 4 --depth 8 --value-size 4096 --key-size 64 --seconds 1
check_json "$TMP/large.jsonl" 't["forwarded_ops_per_s"] > 0'
ok "three daemons, 4 KiB values, which flux carries by address"
alone deletes "" --daemons 2 --clients 5 --depth 4 --delete-ratio 0.3 --value-size 100 --dist zipf --seconds 0.5
ok "deletes"
alone deep "-l $FIRST" --daemons 4 --clients 16 --depth 64 --seconds 0.5
check_json "$TMP/deep.jsonl" 't["requests"]["waited"] >= 0'
ok "four daemons on one lcore, QD 64"
alone client "" --daemons 2 --clients 8 --depth 4 --seconds 1 --route client
check_json "$TMP/client.jsonl" 't["forwarded_ops_per_s"] == 0 and t["requests"]["of_daemons"] == 0' \
	'all(x["requests"]["local"] > 100 for x in d)'
ok "clients that find the owner themselves"
alone apart "--lcores 0@$FIRST,1@$FIRST,2@$FIRST,3@$FIRST" --daemons 2 --clients 6 --depth 4 --seconds 0.5
check_json "$TMP/apart.jsonl" '{x["lcore"] for x in d} == {0, 1}' 't["forwarded_ops_per_s"] > 0'
grep -q 'lcore 3 .* runs clients 3 to 5' "$TMP/apart.out" || fail "the clients are not apart from the daemons"
ok "daemons and clients on lcores of their own"
alone few "" --daemons 3 --clients 1 --keys 30 --seconds 0.5
check_json "$TMP/few.jsonl" 'sorted(x["clients"] for x in d) == [0, 0, 1]'
ok "more daemons than clients"

# Client processes attach to one daemon, which passes on what it does not own.
serve served --daemons 2 --clients 3 --keys 1024
for d in 0 1; do
	timeout -k 2 30 "$BENCHKV_CLIENT" --attach "$SEGMENT.0.$d" --clients 3 --depth 4 --verify --warmup 0.1 \
		--seconds 0.5 --json "$TMP/attach$d.jsonl" >"$TMP/attach$d.out" 2>&1 ||
		fail "the clients of daemon $d ended with $?"
	check_json "$TMP/attach$d.jsonl" 'k[0]["verify_errors"] == 0' \
		'k[0]["sent"] == k[0]["answered"] > 10' 'k[0]["failed"] == 0' \
		'k[0]["forwarded_ops_per_s"] > 0 and k[0]["local_ops_per_s"] > 0'
done
stop served
ok "client processes at either daemon"

command -v mpirun >/dev/null || finish

pair seed001 --preset seed001 --daemons 2 --seconds 2
check_json "$TMP/seed001.jsonl" 'all(x["endpoints"] == 2 for x in d)' \
	't["requests"]["relayed"] == 0' 'all(x["requests"]["of_ranks"] > 100 for x in d)' \
	'0.4 < t["remote_ops_per_s"] / t["ops_per_s"] < 0.6' 't["forwarded_ops_per_s"] > 0'
ok "two ranks of two daemons: the sender addresses the owner"
pair delegate --preset seed001 --daemons 2 --seconds 1 --delegate flux
check_json "$TMP/delegate.jsonl" 'all(x["endpoints"] == 1 for x in d)' \
	'0.3 < t["requests"]["relayed"] / t["requests"]["of_ranks"] < 0.7'
ok "two ranks of two daemons: the first one forwards"
pair relay_large --daemons 2 --clients 4 --depth 8 --value-size 4096 --seconds 1 --delegate flux --route client
ok "4 KiB values, forwarded"

kill_rank() { # VICTIM ARG...
	local victim=$1 survivor=$((1 - $1)) mpi took t0
	shift
	MPIRUN_ARGS=--enable-recovery
	rm -f "$TMP/kill.jsonl"
	two 60 --preset seed001 --daemons 2 --verify --seconds 4 --warmup 0.2 --json "$TMP/kill.jsonl" "$@" \
		>"$TMP/kill.out" 2>"$TMP/kill.err" &
	mpi=$!
	BACKGROUND="$BACKGROUND $mpi"
	wait_for 30 "$TMP/kill.out" 'clients x QD'
	sleep 1.5
	t0=$(date +%s%N)
	kill -9 "$(running ranks_pids "$victim")" || fail "rank $victim does not run"
	wait_for 4 "$TMP/kill.err" "rank $survivor: lost rank $victim"
	took=$((($(date +%s%N) - t0) / 1000000))
	[ $took -le 2000 ] || fail "the loss was reported after $took ms"
	wait $mpi
	[ "$(rank_rc "$survivor")" = 1 ] || fail "the survivor ended with $(rank_rc "$survivor"), not 1"
	[ "$(grep -c 'lost rank' "$TMP/kill.err")" = 1 ] || fail "the loss was reported more than once"
	check_json "$TMP/kill.jsonl" 'len(k) == 1' 'k[0]["lost_peers"] == 1' \
		'k[0]["verify_errors"] == 0' 'k[0]["failed"] > 0' 'k[0]["sent"] == k[0]["answered"]' \
		'k[0]["seconds"] > 3.5' 'k[0]["local_ops_per_s"] > (10 if k[0]["noisy"] else 1000)' \
		'k[0]["forwarded_ops_per_s"] > (10 if k[0]["noisy"] else 1000)'
	MPIRUN_ARGS=
	ok "rank $victim killed: reported once after $took ms, both daemons of the peer continued"
}

interrupt() { # RANK
	local mpi
	two 60 --preset seed001 --daemons 2 --verify --seconds 50 --warmup 0.2 --json "$TMP/int$1.jsonl" \
		>"$TMP/int.out" 2>"$TMP/int.err" &
	mpi=$!
	BACKGROUND="$BACKGROUND $mpi"
	wait_for 30 "$TMP/int.err" 's left'
	kill -INT "$(running ranks_pids "$1")" || fail "rank $1 does not run"
	wait $mpi
	[ "$(rank_rc 0) $(rank_rc 1)" = "0 0" ] ||
		fail "SIGINT to rank $1 ended them with $(rank_rc 0) $(rank_rc 1)"
	check_json "$TMP/int$1.jsonl" "${COMMON[@]}" 't["interrupted"]' 'len(k) == 2'
	nothing_left "SIGINT to rank $1"
	ok "SIGINT to rank $1 stops all daemons of both"
}

kill_rank 1
kill_rank 0 --delegate flux
interrupt 1
finish
