#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The ledgers of running programs, as "soft-mlx5 stat" shows them: both sides of a stream agree on the
# packets, and each message has its completions.
. "$(dirname "$0")/lib.sh"
need ib_send_bw python3

port=$(free_port)
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
	grep -q '^ RC 0x' "$TMP/text.out" || fail "stat shows no table"
ok "the table"
SOFT_MLX5_NET=nobody.is.here "$SOFT_MLX5" stat >"$TMP/none.out" 2>&1 && fail "an empty net passes"
grep -q 'nobody is on' "$TMP/none.out" || fail "an empty net is not named"
ok "an empty net"
finish
