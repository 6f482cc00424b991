#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Running programs through their control sockets. "soft-mlx5 stat": both sides of a stream agree on the
# packets, and each message has its completions; --qps shows where the queues stand. "faults": they come and
# go while the stream runs. What processes leave that were killed is removed.
. "$(dirname "$0")/lib.sh"
need ib_send_bw python3

port=$(free_port)
ran ib_send_bw -s 64 -D 20
start_server "$TMP/server.out" 40 "$port" ib_send_bw -p "$port" -F -s 64 -D 20
on 40 ib_send_bw -p "$port" -F -s 64 -D 20 127.0.0.1 >"$TMP/client.out" 2>&1 &
PIDS="$PIDS $!"
for _ in $(seq 100); do
	"$SOFT_MLX5" stat --json >"$TMP/stat.json" 2>/dev/null
	python3 - "$TMP/stat.json" >"$TMP/judge.out" 2>&1 <<'END' && break
import json, sys
ledgers = json.load(open(sys.argv[1]))
assert len(ledgers) == 2, 'not two contexts'
tx, rx = sorted((l['total'] for l in ledgers), key=lambda l: -l['tx_bytes'])
assert rx['recv_wqes'] > 1000, 'no traffic yet'
assert tx['doorbells'] > 0 and tx['wqe_blocks'] >= tx['tx_packets'] * 0.9, tx
assert tx['dma_read_bytes'] >= 64 * rx['recv_wqes'], (tx, rx)
assert rx['cqes'] >= rx['recv_wqes'] and rx['dma_write_bytes'] >= 128 * rx['recv_wqes'], rx
# Asked at nearly the same time: what is under way makes a small difference.
assert 0.5 < tx['tx_packets'] / rx['rx_packets'] < 2, (tx, rx)
qps = [q for l in ledgers for q in l['qps']]
assert sorted(q['type'] for q in qps) == ['RC', 'RC'], qps
END
	sleep 0.1
done
[ ! -s "$TMP/judge.out" ] || fail "no sane ledgers"
ok "both sides of a stream"
"$SOFT_MLX5" stat --qps >"$TMP/text.out" 2>&1 || fail "stat ended with $?"
[ "$(grep -c '^context' "$TMP/text.out")" -eq 2 ] && grep -q 'pcie_to_host' "$TMP/text.out" &&
	grep -q '^ RC 0x.* state RTS' "$TMP/text.out" && grep -q '^  psn_acked ' "$TMP/text.out" &&
	grep -q '^ CQ [0-9]' "$TMP/text.out" || fail "stat shows no table"
ok "the table"

"$SOFT_MLX5" faults drop=0.01,dup=0.01,seed=3 >"$TMP/faults.out" 2>&1 || fail "faults ended with $?"
grep -q '2 contexts' "$TMP/faults.out" || fail "faults did not reach both"
for _ in $(seq 100); do
	"$SOFT_MLX5" stat >"$TMP/text.out" 2>&1
	[ "$(grep -c 'fault drop  *[1-9]' "$TMP/text.out")" -eq 2 ] && break
	sleep 0.1
done
[ "$(grep -c 'fault drop  *[1-9]' "$TMP/text.out")" -eq 2 ] || fail "nothing was lost"
"$SOFT_MLX5" faults drip=1 >"$TMP/bad.out" 2>&1 && fail "faults takes nonsense"
grep -q "Invalid argument" "$TMP/bad.out" || fail "nonsense is not named"
"$SOFT_MLX5" faults off >"$TMP/faults.out" 2>&1 || fail "faults off ended with $?"
"$SOFT_MLX5" stat --json >"$TMP/before.json" 2>/dev/null
sleep 1
"$SOFT_MLX5" stat --json >"$TMP/after.json" 2>/dev/null
python3 - "$TMP/before.json" "$TMP/after.json" >"$TMP/judge.out" 2>&1 <<'END' ||
import json, sys
before, after = ({c['slot']: c for c in json.load(open(f))} for f in sys.argv[1:])
assert len(after) == 2
for slot, now in after.items():
    was = before[slot]
    assert now['faults']['drop']['seen'] == was['faults']['drop']['seen'], (was, now)
    assert now['total']['cqes'] > was['total']['cqes'], (was, now)
END
	fail "the stream did not go on, or still loses"
ok "faults at run time"

# Killed, both: their sockets are found dead, and their net goes when somebody opens a device anywhere.
pids=$(python3 -c 'import json, sys; print(*(c["pid"] for c in json.load(sys.stdin)))' <"$TMP/after.json")
# Both at once: one that saw the other die would clean up.
# shellcheck disable=SC2086
kill -9 $pids || fail "not all of $pids are there"
for _ in $(seq 50); do
	"$SOFT_MLX5" stat >"$TMP/none.out" 2>&1 || grep -q 'no process is on' "$TMP/none.out" && break
	sleep 0.1
done
grep -q 'no process is on' "$TMP/none.out" || fail "dead processes answer"
net="/dev/shm/soft_mlx5.$(id -u).$SOFT_MLX5_NET"
[ -d "$net" ] || fail "no net was left to remove"
SOFT_MLX5_NET=$SOFT_MLX5_NET.other on 40 ibv_devinfo >"$TMP/devinfo.out" 2>&1 || fail "ibv_devinfo ended with $?"
[ ! -e "$net" ] || fail "the net of dead processes is still there"
ok "what the dead left"

SOFT_MLX5_NET=unused.net "$SOFT_MLX5" stat >"$TMP/none.out" 2>&1 && fail "an empty net passes"
grep -q 'no process is on' "$TMP/none.out" || fail "an empty net is not named"
ok "an empty net"
finish
