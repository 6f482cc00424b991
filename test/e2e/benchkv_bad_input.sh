#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What it cannot start with: exactly one line that says what was wrong, exit code 2, nothing left behind.
. "$(dirname "$0")/benchkv_lib.sh"

refused() { # TEXT CMD...
	local text=$1 rc
	shift
	timeout -k 2 60 "$@" >"$TMP/bad.out" 2>"$TMP/bad.err" </dev/null
	rc=$?
	[ $rc = 2 ] || fail "'$*' ended with $rc"
	[ ! -s "$TMP/bad.out" ] || fail "'$*' wrote to stdout"
	[ "$(wc -l <"$TMP/bad.err")" = 1 ] || fail "'$*' did not say exactly one line"
	grep -q -- "$text" "$TMP/bad.err" || fail "'$*' did not name '$text'"
	nothing_left "$*"
	ok "$(cat "$TMP/bad.err")"
}

# Under mpirun, which adds lines of its own: exactly one line of ours.
refused_by_ranks() { # TEXT ARG...
	local text=$1 rc
	shift
	timeout -k 2 60 mpirun -np 2 --oversubscribe "$@" >"$TMP/bad.out" 2>"$TMP/bad.err" </dev/null
	rc=$?
	[ $rc = 2 ] || fail "'$*' ended with $rc"
	[ "$(grep -c '^benchkv:' "$TMP/bad.err")" = 1 ] || fail "'$*' did not say exactly one line"
	grep -q -- "$text" "$TMP/bad.err" || fail "'$*' did not name '$text'"
	nothing_left "$*"
	ok "$(grep '^benchkv:' "$TMP/bad.err")"
}

B=("$BENCHKV" --no-huge --)
refused "--frobnicate" "${B[@]}" --frobnicate
refused "0 to 512" "${B[@]}" --clients 513
refused "8 to 1048576" "${B[@]}" --value-size 2M
refused "seed001" "${B[@]}" --preset seed002
refused "no/such" "${B[@]}" --json /no/such/file
refused "no/such" "${B[@]}" --hgrm /no/such/file
refused "mpirun -n 2" "${B[@]}" --ranks 2
refused "--frobnicate" "$BENCHKV" --frobnicate --no-huge -- --clients 1
refused "--clients" "$BENCHKV" --clients 16
refused "lcore" "$BENCHKV" --no-huge -l 1023 -- --clients 1
refused "with -m" "${B[@]}" --keys 4M --value-size 4096
refused "ess with -m" "$BENCHKV" --no-huge -m 100000000 -- --clients 1
refused "segment name" "${B[@]}" --name a/b
refused "no_such_device" "${B[@]}" --device no_such_device
refused "mlx5_soft0" "$SOFT_MLX5" "${B[@]}" --device no_such_device
refused "--rate" "${B[@]}" --rate 1e10
refused "8 to 64 bytes" "${B[@]}" --key-sizes 4-64
refused "--memory-limit 1" "${B[@]}" --memory-limit 1 --keys 100000
refused "--attach" "$BENCHKV_CLIENT" --clients 1
refused "no_such_daemon" "$BENCHKV_CLIENT" --attach no_such_daemon
if [ "$(awk '/HugePages_Free/ {print $2}' /proc/meminfo)" = 0 ]; then
	refused "nr_hugepages" "$BENCHKV" -- --clients 1
fi
meminfo() { # NAME
	awk -v name="$1:" '$1 == name {print $2}' /proc/meminfo
}
if [ -n "$(meminfo Hugepagesize)" ]; then
	# As many free pages as -m needs, beside those that are in use.
	used=$(($(meminfo HugePages_Total) - $(meminfo HugePages_Free)))
	refused "echo $((used + 100000000 / ($(meminfo Hugepagesize) / 1024))) >" "$BENCHKV" -m 100000000 -- --clients 1
fi
OMPI_COMM_WORLD_SIZE=2 refused "PMIx" "${B[@]}" --clients 1
PMIX_NAMESPACE=unknown PMIX_RANK=0 refused "PMIx" "${B[@]}" --clients 1

# A segment of another version, and a name that a living daemon has.
E2E_ID=server "$BENCHKV" --no-huge -- --clients 0 --serve 2 --name "$SEGMENT" --seconds 50 \
	--quiet >"$TMP/serve.out" 2>&1 &
server=$!
BACKGROUND="$BACKGROUND $server"
wait_for 30 "$TMP/serve.out" "benchkv-client --attach $SEGMENT"
BEFORE=$(leftovers)
refused "larger --serve" "$BENCHKV_CLIENT" --attach "$SEGMENT" --clients 3
refused "$SEGMENT" "${B[@]}" --name "$SEGMENT"
cp "/dev/shm/crpc.$SEGMENT" "/dev/shm/crpc.$SEGMENT.old"
printf '\377' | dd of="/dev/shm/crpc.$SEGMENT.old" bs=1 seek=8 conv=notrunc status=none
BEFORE=$(leftovers)
refused "version" "$BENCHKV_CLIENT" --attach "$SEGMENT.old"
rm -f "/dev/shm/crpc.$SEGMENT.old"
BEFORE=
kill -INT $server
wait $server || fail "the daemon ended with $?"
nothing_left "the daemon"

# A store that is full refuses new keys, says so, and keeps what it has.
one 30 --empty --capacity 10 --keys 100 --clients 2 --seconds 0.3 --warmup 0 --verify --quiet \
	--json "$TMP/full.jsonl" >"$TMP/full.out" 2>"$TMP/full.err" || fail "a run with a full store ended with $?"
check_json "$TMP/full.jsonl" 't["no_space"] > 0' 't["verify_errors"] == 0' 't["sent"] == t["answered"] > 100'
grep -q 'refused (no space)' "$TMP/full.out" || fail "the report does not say that the store was full"
ok "$(grep -o '[0-9]* refused (no space)' "$TMP/full.out" | tail -1)"

if command -v mpirun >/dev/null; then
	refused_by_ranks "--frobnicate" "${B[@]}" --frobnicate
	refused_by_ranks "mpirun -n 3" "${B[@]}" --ranks 3
	refused_by_ranks "RDMA device" "${B[@]}" --clients 1
	refused_by_ranks "no_such_device" "$SOFT_MLX5" "${B[@]}" --clients 1 --device no_such_device
	refused_by_ranks "with -m" "$SOFT_MLX5" "${B[@]}" --keys 2M --value-size 4096
fi
finish
