#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# One rank alone: every answer verified at several loads, results complete, small in memory, nothing
# left behind.
. "$(dirname "$0")/benchkv_lib.sh"

load() { # NAME ARG...
	local name=$1
	shift
	one 60 --verify --warmup 0.2 --quiet --json "$TMP/$name.jsonl" "$@" >"$TMP/$name.out" \
		2>"$TMP/$name.err" || fail "$name ended with $?"
	[ ! -s "$TMP/$name.err" ] || fail "$name said something on stderr"
	check_json "$TMP/$name.jsonl" 'len(r) == 2' 't["verify_errors"] == 0' \
		't["sent"] == t["answered"] > (10 if t["noisy"] else 1000)' 't["failed"] == 0' \
		't["backend"] == "none"' \
		't["ops_per_s"] > 0 or t["noisy"]' 't["remote_ops_per_s"] == 0' \
		'0.5 < t["little_ratio"] < 1.5 or t["noisy"]' \
		't["lat_us"]["local"]["p50"] <= t["lat_us"]["local"]["p999"] <= t["lat_us"]["local"]["max"]'
	nothing_left "$name"
	ok "$name"
}

load sixteen --clients 16 --seconds 3 --hgrm "$TMP/x.hgrm"
grep -q '^#\[Max ' "$TMP/x.hgrm" || fail "the .hgrm file is not complete"
check_json "$TMP/sixteen.jsonl" 't["clients"] == 16' '16 < t["rss_kib"] < 256 * 1024'
grep -Eq 'little (holds|does)' "$TMP/sixteen.out" || fail "the table has no verdict on Little's law"
load colocated --clients 16 --seconds 1 --colocate
load deep --clients 4 --depth 64 --seconds 1
load deletes --clients 8 --depth 4 --delete-ratio 0.25 --seconds 1
load large --clients 4 --depth 8 --value-size 4096 --key-size 64 --seconds 1
load odd --clients 3 --depth 3 --value-size 1001 --key-size 13 --dist zipf --seconds 1
load counted --clients 4 --seconds 0.3 --counters
grep -Eq 'counters_(per_op|error) ' "$TMP/counted.out" ||
	fail "the table has no counters"
check_json "$TMP/counted.jsonl" 'isinstance(t["counters_per_op"], dict)'
load single --clients 1 --keys 1 --seconds 0.5
for mix in a b c d e f; do
	load ycsb_$mix --ycsb $mix --clients 4 --depth 4 --seconds 0.3 --keys 500
done
check_json "$TMP/ycsb_e.jsonl" 't["scans"] > 0 or t["noisy"]' 't["scan"] == 100'
load readonly --clients 2 --read-ratio 1 --idle yield --seconds 0.5
# Open loop: what was due was served; there is no Little's law to hold.
load_open() {
	one 60 --verify --warmup 0.2 --quiet --clients 4 --depth 8 --rate 20000 --seconds 2 --cooldown 0.3 \
		--json "$TMP/open.jsonl" >"$TMP/open.out" 2>"$TMP/open.err" || fail "open ended with $?"
	check_json "$TMP/open.jsonl" 't["verify_errors"] == 0' 't["sent"] == t["answered"]' \
		't["offered_ops_per_s"] == 20000' '0.8 < t["ops_per_s"] / 20000 < 1.2 or t["noisy"]' \
		't["little_ratio"] == 0' 't["seconds"] > 1.9' 't["lag_us"] >= 0'
	grep -q 'offered_ops_per_s 20000' "$TMP/open.out" || fail "the table does not show what was offered"
	nothing_left open
	ok open
}
load_open

finish
