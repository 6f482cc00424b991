#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Values up to 1 MiB, every answer verified: one rank, several daemons, two ranks, a mix of sizes, with
# versions and ends of life, a full store, and a client that is killed with its hands full.
. "$(dirname "$0")/benchkv_lib.sh"
need mpirun
MIB=1048576
BASE=(--verify --quiet --warmup 0 --cooldown 0)
GOOD=('all(x["verify_errors"] == 0 for x in k)' 't["sent"] == t["answered"] > 4' 't["failed"] == 0')

alone() { # NAME ARG...
	local name=$1
	shift
	one 60 "${BASE[@]}" --json "$TMP/$name.jsonl" "$@" >"$TMP/$name.out" 2>"$TMP/$name.err" ||
		fail "$name: benchkv ended with $?"
	check_json "$TMP/$name.jsonl" "${GOOD[@]}"
	nothing_left "$name"
	ok "$name"
}

pair() { # NAME ARG...
	local name=$1
	shift
	two 90 "${BASE[@]}" --json "$TMP/$name.jsonl" "$@" >"$TMP/$name.out" 2>"$TMP/$name.err" ||
		fail "$name: mpirun ended with $?"
	[ "$(rank_rc 0) $(rank_rc 1)" = "0 0" ] || fail "$name: ranks ended with $(rank_rc 0) $(rank_rc 1)"
	check_json "$TMP/$name.jsonl" "${GOOD[@]}" 't["lost_peers"] == 0' \
		'all(x["remote_ops_per_s"] > 0 and x["local_ops_per_s"] > 0 for x in k)'
	nothing_left "$name"
	ok "$name"
}

alone one --clients 2 --depth 2 --keys 32 --value-size $MIB --seconds 1
alone edge --clients 2 --depth 4 --keys 100 --value-size 4097 --key-size 13 --seconds 0.5
alone mixed --clients 4 --depth 4 --keys 64 --value-size 64-$MIB --delete-ratio 0.1 --seconds 1
alone cas --clients 4 --depth 2 --keys 16 --value-size 64-100000 --cas --ttl-ms 50 --seconds 1
alone mates --daemons 2 --clients 4 --depth 2 --keys 32 --value-size 64-$MIB --seconds 1
alone route --daemons 2 --clients 4 --depth 2 --keys 32 --value-size $MIB --route client --seconds 1
pair two --clients 2 --depth 2 --keys 32 --value-size $MIB --seconds 1
pair two_mixed --clients 4 --depth 4 --keys 64 --value-size 64-$MIB --seconds 1
pair two_daemons --daemons 2 --clients 4 --depth 2 --keys 16 --value-size 64-$MIB --seconds 1
pair relayed --daemons 2 --clients 4 --depth 2 --keys 16 --value-size 64-$MIB --delegate flux --seconds 1

# Two ranks and a record of every operation: a single copy of each key explains all answers.
two 90 --quiet --warmup 0 --cooldown 0 --clients 4 --depth 2 --keys 5 --value-size 64-$MIB --cas --delete-ratio 0.1 \
	--rate 500 --seconds 1 --history "$TMP/run" >"$TMP/history.out" 2>"$TMP/history.err" ||
	fail "history: mpirun ended with $?"
"$LINCHECK" "$TMP"/run.* >"$TMP/lincheck.out" 2>"$TMP/lincheck.err" || fail "history: lincheck ended with $?"
nothing_left "history"
ok "history"

one 30 --backend direct --value-size $MIB --keys 16 --seconds 1 >"$TMP/direct.out" 2>"$TMP/direct.err" &&
	fail "direct: took large values"
grep -q -- "--backend copyrpc" "$TMP/direct.err" || fail "direct: does not say what to do"
ok "a backend without ipc refuses them"

# Clients of other processes; one is killed at random with blocks in its hands, again and again.
serve kills --clients 4 --keys 32 --value-size $MIB
for check in sizes hostile; do
	timeout 60 "$KV_LARGE" "$SEGMENT" $check >"$TMP/$check.out" 2>"$TMP/$check.err" ||
		fail "kv_large $check ended with $?"
	ok "lib/kv: $check"
done
for round in 1 2 3 4 5 6 7 8; do
	"$BENCHKV_CLIENT" --attach "$SEGMENT" --clients 2 --depth 8 --quiet --seconds 60 >"$TMP/victim.out" \
		2>"$TMP/victim.err" &
	VICTIM=$!
	BACKGROUND+=" $VICTIM"
	sleep "0.$((RANDOM % 3 + 2))"
	kill -9 $VICTIM || fail "round $round: the client ended by itself"
	wait $VICTIM 2>/dev/null
done
"$BENCHKV_CLIENT" --attach "$SEGMENT" --clients 2 --depth 8 --quiet --verify --warmup 0 --cooldown 0 \
	--seconds 1 --json "$TMP/after.jsonl" >"$TMP/after.out" 2>"$TMP/after.err" ||
	fail "after the kills: benchkv-client ended with $?"
check_json "$TMP/after.jsonl" 'k[0]["verify_errors"] == 0' 'k[0]["failed"] == 0' \
	'k[0]["sent"] == k[0]["answered"] > 4'
stop kills
ok "what killed clients held came back"

# As many calls as are admitted have room, however many a client would like to have open.
serve deep --clients 16 --keys 64 --value-size 100000
"$BENCHKV_CLIENT" --attach "$SEGMENT" --clients 16 --depth 64 --quiet --verify --warmup 0 --cooldown 0 --cas \
	--seconds 2 --json "$TMP/deep.jsonl" >"$TMP/deep_client.out" 2>"$TMP/deep_client.err" ||
	fail "deep: benchkv-client ended with $?"
check_json "$TMP/deep.jsonl" 'k[0]["verify_errors"] == 0' 'k[0]["failed"] == 0' \
	'k[0]["sent"] == k[0]["answered"] > 64'
stop deep
ok "16 clients with 64 calls each"

# A value that no store of this run takes is refused, also where requests to its rank wait for room.
BENCHKV=$KVD two 120 --clients 2 --keys 16 --value-size 600000 >"$TMP/beyond_serve.out" \
	2>"$TMP/beyond_serve.err" &
BACKGROUND+=" $!"
SERVICE=$!
wait_for 20 "$TMP/beyond_serve.err" 'rank 0 of 2 serves'
timeout 60 "$KV_LARGE" "$SEGMENT.0" beyond >"$TMP/beyond.out" 2>"$TMP/beyond.err" ||
	fail "kv_large beyond ended with $?"
RANKS=kvd
kill $(running ranks_pids)
wait $SERVICE
[ "$(rank_rc 0) $(rank_rc 1)" = "0 0" ] || fail "beyond: ranks ended with $(rank_rc 0) $(rank_rc 1)"
nothing_left "beyond"
RANKS=benchkv
ok "a value that is too large, behind a backlog"

serve full --clients 1 --keys 100 --memory-limit 16M --value-size $MIB
timeout 60 "$KV_LARGE" "$SEGMENT" full >"$TMP/full_client.out" 2>"$TMP/full_client.err" ||
	fail "kv_large full ended with $?"
"$BENCHKV_CLIENT" --attach "$SEGMENT" --clients 1 --quiet --verify --warmup 0 --cooldown 0 --seconds 0.5 \
	--json "$TMP/no_space.jsonl" >"$TMP/no_space.out" 2>"$TMP/no_space.err" ||
	fail "a client of a full store ended with $?"
check_json "$TMP/no_space.jsonl" 'k[0]["no_space"] > 0' 'k[0]["verify_errors"] == 0' \
	'k[0]["sent"] == k[0]["answered"] > 4'
grep -q 'no_space [0-9]' "$TMP/no_space.out" || fail "the report does not say that the store was full"
stop full
ok "a full store refuses and keeps what it has"
finish
