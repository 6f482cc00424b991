#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What all clients of a run saw together is what one copy of each key would have shown: two ranks
# with compare-and-swap and deletes, also when one of them is killed (-9), whose history stays behind. A history
# in which one answer is changed is found out.
. "$(dirname "$0")/benchkv_lib.sh"
need mpirun python3

LOAD="--clients 8 --keys 5 --read-ratio 0.4 --delete-ratio 0.1 --rate 40000 --warmup 0.1"

linearizable() { # FILE...
	"$LINCHECK" "$@" >"$TMP/lincheck.out" 2>"$TMP/lincheck.err" ||
		fail "not linearizable: $(cat "$TMP/lincheck.out" "$TMP/lincheck.err")"
}

changed() { # FILE: one get in the middle saw another value
	python3 - "$1" <<'EOF'
import struct, sys
d = bytearray(open(sys.argv[1], "rb").read())
n = struct.unpack_from("<Q", d, 16)[0]
for i in range(n // 2, n):
    kind, state = struct.unpack_from("<BB", d, 64 + 64 * i + 52)
    if kind == 1 and state == 1:
        struct.pack_into("<Q", d, 64 + 64 * i + 40, 12345)
        break
else:
    sys.exit("no get in the history")
open(sys.argv[1], "wb").write(d)
EOF
}

for seed in 1 2 3; do
	# shellcheck disable=SC2086 # a list
	two 60 $LOAD --cas --seed $seed --seconds 1 --verify --quiet --history "$TMP/h" \
		>"$TMP/cas.out" 2>"$TMP/cas.err" || fail "a run with --cas and --history ended with $?"
	linearizable "$TMP"/h.*
	ok "seed $seed: $(cat "$TMP/lincheck.out")"
done
changed "$(ls "$TMP"/h.0.*)" || fail "the history could not be changed"
"$LINCHECK" "$TMP"/h.* >"$TMP/lincheck.out"
[ $? = 1 ] || fail "a changed history passed: $(cat "$TMP/lincheck.out")"
grep -q '^key .*: not linearizable' "$TMP/lincheck.out" || fail "it does not say where"
ok "one changed answer is found"

rm -f "$TMP"/h.*
MPIRUN_ARGS=--enable-recovery
# shellcheck disable=SC2086 # a list
two 60 $LOAD --cas --seconds 4 --history "$TMP/h" >"$TMP/killed.out" 2>"$TMP/killed.err" &
mpi=$!
BACKGROUND="$BACKGROUND $mpi"
wait_for 30 "$TMP/killed.out" 'clients x QD'
sleep 1
kill -9 "$(running ranks_pids 1)"
wait $mpi
MPIRUN_ARGS=
[ "$(ls "$TMP"/h.* | wc -l)" = 2 ] || fail "a history is missing"
linearizable "$TMP"/h.*
ok "a rank killed: $(cat "$TMP/lincheck.out")"
python3 - "$TMP"/h.0.* <<'EOF' || fail "what came after the loss does not stand as refused"
import struct, sys
d = open(sys.argv[1], "rb").read()
n = struct.unpack_from("<Q", d, 16)[0]
states = [d[64 + 64 * i + 53] for i in range(n)]
print(states.count(0), "open,", states.count(4), "refused of", n)
# 8 clients with a call open each; all later ones were refused, without effect
sys.exit(not (states.count(0) <= 8 < states.count(4)))
EOF
ok "calls to a rank that was lost before are refused"

one 30 --clients 1 --keys 1 --seconds 0.3 --history "$TMP/full" --history-ops 100 --quiet \
	>"$TMP/full.out" 2>"$TMP/full.err"
[ $? = 1 ] || fail "a history without room ended with $?"
grep -q 'had no room' "$TMP/full.err" || fail "it was not said that the history had no room"
"$LINCHECK" "$TMP"/full.* 2>"$TMP/lincheck.err"
[ $? = 2 ] || fail "a history that lacks operations was checked"
ok "a history that is full is reported and not taken for a whole one"
finish
