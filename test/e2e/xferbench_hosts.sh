#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# xferbench in two ranks on two hosts that share nothing but RoCEv2 over UDP: every transport keeps the
# content, both sides' stages are in the results, which rank 0 alone writes; a bad network changes none of it;
# when a rank is killed its peer reports it and ends.
. "$(dirname "$0")/benchkv_lib.sh"
. "$(dirname "$0")/hosts_lib.sh"
need mpirun
[ -z "${XFERBENCH_LACKS:-}" ] || { echo "skip: $XFERBENCH_LACKS is not installed"; exit 77; }

hosts_make 2

xfer() { # NAME SECONDS ARG...
	local name=$1 limit=$2
	shift 2
	rm -f "$TMP/$name.jsonl"
	hosts_run 2 "$limit" "$XFERBENCH" --no-huge -- --json "$TMP/$name.jsonl" "$@" >"$TMP/$name.out" \
		2>"$TMP/$name.err"
}

# Each expression must be true of the results r.
check_rows() { # NAME EXPRESSION...
	python3 - "$TMP/$1.jsonl" "${@:2}" <<'EOT' || fail "$1: results: ${*:2}"
import json, sys
r = [json.loads(line) for line in open(sys.argv[1])]
for e in sys.argv[2:]:
    if not eval(e):
        print('not true:', e)
        print('\n'.join(json.dumps(x) for x in r))
        sys.exit(1)
EOT
}

SHORT='--verify --repeat 2 --slice-ms 5 --chunk 64Ki'
# shellcheck disable=SC2086 # lists
xfer all 120 $SHORT --size 64Ki,1Mi --transport bulk,bulk_tcp,memcpy,zmq_tcp,tensor_net,tensor_net_bf16 \
	--path eager,rendezvous,rendezvous_read || fail "two hosts: mpirun ended with $?"
[ "$(cat "$TMP"/host.* | sort -u | wc -l)" = 2 ] || fail "hosts: $(cat "$TMP"/host.*)"
check_rows all 'all(x["ranks"] == 2 and x["hosts"] == 2 for x in r)' 'len({x["lcores"] for x in r}) == 1' \
	'len([x for x in r if x["transport"] == "bulk"]) == 6' \
	'len([x for x in r if x["transport"] == "bulk_tcp"]) == 2' \
	'len([x for x in r if x["transport"] == "zmq_tcp"]) == 2' \
	'len([x for x in r if x["transport"] == "tensor_net_bf16"]) == 2' \
	'any({"time_post", "time_wire", "time_unpack", "time_consume"} <= set(x) for x in r)'
[ "$(grep -c 'of two ranks on two hosts' "$TMP/all.out")" = 1 ] || fail "results were printed by both ranks"
hosts_clean "all"
ok "every transport between two hosts"

export SOFT_MLX5_FAULTS=seed=5,drop=0.005,corrupt=0.001,dup=0.005,reorder=0.005
# shellcheck disable=SC2086 # lists
xfer bad 120 $SHORT --size 256Ki --direction both --transport bulk,tensor_net ||
	fail "bad network: mpirun ended with $?"
check_rows bad 'len(r) == 4'
unset SOFT_MLX5_FAULTS
ok "a bad network"

# A rank is killed in the middle.
MPIRUN_ARGS=--enable-recovery
xfer killed 90 --repeat 1000 --size 1Mi --transport bulk --path rendezvous &
RUN=$!
BACKGROUND="$BACKGROUND $RUN"
wait_for 60 "$TMP/killed.out" 'of two ranks'
sleep 1
for pid in $(pids_of xferbench); do
	[ "$(env_of "$pid" PMIX_RANK)" != 1 ] || kill -9 "$pid"
done
wait_for 30 "$TMP/err.0" 'rank 1 is lost'
wait $RUN
[ "$(rank_rc 0)" = 1 ] || fail "the survivor ended with $(rank_rc 0), not 1"
ok "a killed rank is reported"
finish
