#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Open MPI over UCX, which sees no other transport than one of the software adapter's.
# usage: mpi.sh PROGRAM, which is mpi_check
. "$(dirname "$0")/lib.sh"
need mpirun
program=$1

run() { # TRANSPORTS
	local checks
	TRANSPORT=$1 ran mpirun
	# Two of the ranks may share a core: they yield when idle. The components named are the
	# only ones allowed, so that nothing falls back to shared memory or TCP.
	on 90 mpirun --allow-run-as-root --oversubscribe -np 2 --mca btl self --mca pml ucx --mca osc ucx \
		--mca mpi_yield_when_idle 1 -x UCX_TLS="$1" -x UCX_WARN_UNUSED_ENV_VARS=n \
		"$program" >"$TMP/mpi.out" 2>&1 || fail "mpirun over $1 ended with $?"
	! grep -q '^soft_mlx5:' "$TMP/mpi.out" || fail "Open MPI over $1 was refused something"
	checks=$(grep -c '^right: ' "$TMP/mpi.out")
	[ "$checks" = 4 ] || fail "$checks checks over $1, not 4"
	while read -r line; do
		TRANSPORT=$1 ran mpirun "${line#right: }"
		ok "Open MPI ${line#right: } over $1"
	done < <(grep '^right: ' "$TMP/mpi.out")
}

for tls in rc_v,ud_v rc_x,ud_x dc_x,ud_x ud_v ud_x; do
	run "self,$tls"
done
finish
