#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Clients in processes of their own: they verify every answer, several attach at a time, one that is
# killed gives its place back, and the end of the daemon is an error and no hang.
. "$(dirname "$0")/benchkv_lib.sh"

attach() { # SECONDS ARG...
	local limit=$1
	shift
	timeout -k 2 "$limit" "$BENCHKV_CLIENT" --attach "$SEGMENT" --verify --warmup 0.1 "$@"
}

serve served --clients 4 --keys 1024 --value-size 100

attach 30 --clients 2 --depth 4 --seconds 1 --json "$TMP/c1.jsonl" >"$TMP/c1.out" 2>&1 &
first=$!
attach 30 --clients 1 --seconds 1 --delete-ratio 0.1 --json "$TMP/c2.jsonl" >"$TMP/c2.out" 2>&1 &
second=$!
wait $first || fail "the first client process ended with $?"
wait $second || fail "the second client process ended with $?"
for c in c1 c2; do
	check_json "$TMP/$c.jsonl" 'k[0]["verify_errors"] == 0' 'k[0]["sent"] == k[0]["answered"] > 10' \
		'k[0]["failed"] == 0' 'k[0]["value_size"] == 100' 'k[0]["key_size"] == 8' 'k[0]["keys"] == 1024'
done
ok "two client processes at a time"

attach 30 --clients 1 --seconds 0.5 -v >"$TMP/c4.out" 2>&1 || fail "a client with -v ended with $?"
tr '\n' ' ' <"$TMP/c4.out" | grep -q 'lost_peers 0' || fail "-v does not show a figure that is 0"
ok "-v shows every figure"

# One dies without a word; its place is free again, so that all four are taken at once.
attach 30 --clients 1 --seconds 20 >"$TMP/c3.out" 2>&1 &
victim=$!
sleep 1
kill -9 "$(running pids_of benchkv-client)" || fail "it does not run"
wait $victim 2>/dev/null
attach 30 --clients 4 --seconds 0.5 >"$TMP/c5.out" 2>&1 || fail "four places are not free: $?"
ok "one was killed, and its place is free again"

# The store has values of the same writer ids by now.
timeout 60 "$KV_LARGE" "$SEGMENT" writers >"$TMP/writers.out" 2>&1 || fail "writer ids ran out"
attach 30 --clients 4 --seconds 0.5 --json "$TMP/c6.jsonl" >"$TMP/c6.out" 2>&1 ||
	fail "clients after 65,536 others ended with $?"
check_json "$TMP/c6.jsonl" 'k[0]["verify_errors"] == 0' 'k[0]["sent"] == k[0]["answered"] > 10'
ok "after 65,536 clients more are served"

stop served
ok "the daemon ended cleanly"

# The daemon is killed under a working client.
serve killed --clients 4 --keys 1024
attach 30 --clients 2 --seconds 20 >"$TMP/c4.out" 2>"$TMP/c4.err" &
client=$!
sleep 1
kill -9 "$(cat "$TMP/killed.ready")"
wait $client
rc=$?
[ $rc = 1 ] || fail "the client of a killed daemon ended with $rc"
grep -q 'has ended' "$TMP/c4.err" || fail "it did not say that the daemon has gone"
ok "the client of a killed daemon ends with an error"
finish
