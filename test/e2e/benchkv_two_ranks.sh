#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Two ranks over copyrpc on the software ConnectX: every answer verified, half of the keys remote, and the
# counts that do not depend on the machine: one WQE and one doorbell per batch at most, no READ.
. "$(dirname "$0")/benchkv_lib.sh"
need mpirun

run() { # NAME ARG...
	local name=$1
	shift
	two 90 --verify --quiet --json "$TMP/$name.jsonl" "$@" >"$TMP/$name.out" 2>"$TMP/$name.err" ||
		fail "$name: mpirun ended with $?"
	[ "$(rank_rc 0) $(rank_rc 1)" = "0 0" ] || fail "$name: ranks ended with $(rank_rc 0) $(rank_rc 1)"
	check_json "$TMP/$name.jsonl" 'len(r) == 3' 'len(k) == 2' '{x["rank"] for x in k} == {0, 1}' \
		'all(x["verify_errors"] == 0 for x in r)' 't["sent"] == t["answered"] > (10 if t["noisy"] else 1000)' \
		't["failed"] == 0' 't["lost_peers"] == 0' 't["backend"] == "copyrpc"' \
		'all(x["remote_ops_per_s"] > 0 and x["local_ops_per_s"] > 0 for x in r)'
	nothing_left "$name"
}

# The counts of the window: WQEs are batches and lone window updates, nothing else, so no READ. A batch
# that is posted as the window begins or ends may be counted on one side only, hence the slack of 4.
COUNTS='all(abs(x["net"]["wqes"] - x["net"]["batches"] - x["net"]["window_updates"]) <= 4 for x in k)'

run seed001 --preset seed001 --seconds 2 --warmup 0.5 --hgrm "$TMP/x.hgrm"
check_json "$TMP/seed001.jsonl" 'all(x["clients"] == 16 and x["depth"] == 1 for x in k)' "$COUNTS" \
	'all(x["net"]["doorbells"] <= x["net"]["batches"] + x["net"]["window_updates"] + 4 for x in k)' \
	'1 <= t["batch_mean"] <= 32' \
	'0.45 < t["remote_ops_per_s"] / t["ops_per_s"] < 0.55' \
	'0 < t["per_op"]["doorbells"] <= 2' 't["per_op"]["cqes"] > 0' 't["per_op"]["wqebb"] > 0' \
	'all(t["rtt_split_us"][p] > 0 for p in ("queue", "wire", "peer"))' \
	'all(16 * 1024 < x["rss_kib"] < 256 * 1024 for x in k)'
for f in x x.local x.remote; do
	grep -q '^#\[Max ' "$TMP/$f.hgrm" || fail "$f.hgrm is not complete"
done
grep -q '^total of 2 ranks' "$TMP/seed001.out" || fail "the table has no total"
ok "seed001: half remote, one WQE and one doorbell per batch at most, no READ"

for policy in immediate deferred; do
	run $policy --preset seed001 --seconds 1 --warmup 0.2 --flush $policy
	check_json "$TMP/$policy.jsonl" "$COUNTS"
	ok "flush $policy"
done
check_json "$TMP/immediate.jsonl" '0.99 <= t["batch_mean"] <= 1.01'

run dc --preset seed001 --seconds 1 --warmup 0.2 --transport dc
check_json "$TMP/dc.jsonl" 't["transport"] == "dc"' "$COUNTS"
ok "DC"
for flow in read notify; do
	run $flow --preset seed001 --seconds 1 --warmup 0.2 --flow $flow
	check_json "$TMP/$flow.jsonl" 't["flow"] == "'$flow'"'
	ok "flow $flow"
done

run verbs --preset seed001 --seconds 1 --warmup 0.2 --driver verbs
check_json "$TMP/verbs.jsonl" 't["driver"] == "verbs_copyrpc"' "$COUNTS"
check_json "$TMP/dc.jsonl" 't["driver"] == "mlx5_copyrpc"'
ok "plain verbs"

run deep --clients 8 --depth 32 --seconds 1 --warmup 0.2 --dist zipf
ok "QD 32, zipf"
run large --clients 4 --depth 8 --value-size 4096 --key-size 64 --seconds 1 --warmup 0.2
ok "4 KiB values"
run deletes --clients 8 --depth 4 --delete-ratio 0.3 --value-size 100 --seconds 1 --warmup 0.2
ok "deletes"
finish
