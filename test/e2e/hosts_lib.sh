# SPDX-License-Identifier: BSD-3-Clause
#
# Hosts for the end-to-end tests of benchkv: namespaces of our own, each with a network, a name, a /dev/shm
# and System V objects of its own, joined by a switch. Sourced after benchkv_lib.sh.
#
#     mpirun on host 1 ── HOST_AGENT, in the place of ssh ──> orted of host 2 ── rank 1
#          └── rank 0                                                             │
#               └──────────── RoCEv2 over UDP, the only thing they share ─────────┘
#
# Processes and files are those of this machine, so that a test can kill ranks and read what they wrote.
# A namespace lives as long as its keeper, a process that sleeps; it ends by itself, too.
need ip nsenter unshare taskset

HOST_NET=10.79.0
HOST_PIDS=()
HOST_AGENT=$TMP/agent.sh
# A launcher's daemon whose host is cut off ends only when it is not.
trap 'for pid in $(pids_of orted) $(pids_of mpirun); do kill -9 "$pid"; done; cleanup' EXIT

on_host() { # HOST CMD...
	local host=$1
	shift
	nsenter -t "${HOST_PIDS[$host]}" -m -n -u -i "$@"
}

# Host 0 is the switch.
host_keeper() { # HOST
	unshare -m -n -u -i bash -c 'hostname "e2e-host$1" && mount -t tmpfs -o size=256m tmpfs /dev/shm &&
		ip link set lo up && : >"$2" && exec sleep 900' _ "$1" "$TMP/up.$1" 2>"$TMP/keeper.err" &
	HOST_PIDS[$1]=$!
	BACKGROUND="$BACKGROUND $!"
	disown $!
	for _ in $(seq 100); do
		[ ! -e "$TMP/up.$1" ] || return 0
		kill -0 "${HOST_PIDS[$1]}" 2>/dev/null || break
		sleep 0.05
	done
	echo "skip: no namespaces here: $(head -1 "$TMP/keeper.err")"
	exit 77
}

host_plug() { # HOST
	{
		ip link add "port$1" netns "${HOST_PIDS[0]}" type veth peer name eth0 netns "${HOST_PIDS[$1]}" &&
			on_host 0 ip link set "port$1" master switch up
	} 2>"$TMP/plug.err" || {
		echo "skip: no veth pairs here: $(head -1 "$TMP/plug.err")"
		exit 77
	}
	on_host "$1" ip addr add "$HOST_NET.$1/24" dev eth0 && on_host "$1" ip link set eth0 up ||
		fail "host $1 has no address"
}

# Makes hosts 1 to N, and the agent that starts a command on one of them as ssh would: by its address,
# without this shell's environment.
hosts_make() { # N
	local host
	host_keeper 0
	on_host 0 ip link add switch up type bridge 2>"$TMP/plug.err" || {
		echo "skip: no bridges here: $(head -1 "$TMP/plug.err")"
		exit 77
	}
	{
		echo '#!/bin/bash'
		echo 'case $1 in'
	} >"$HOST_AGENT"
	for host in $(seq "$1"); do
		host_keeper "$host"
		host_plug "$host"
		echo "$HOST_NET.$host) pid=${HOST_PIDS[$host]} ;;" >>"$HOST_AGENT"
	done
	cat >>"$HOST_AGENT" <<-EOT
		*) echo "no host \$1" >&2; exit 255 ;;
		esac
		shift
		exec nsenter -t \$pid -m -n -u -i env -i PATH="\$PATH" HOME="\$HOME" \\
			E2E_ID="\$E2E_ID" bash -c "\$*"
	EOT
	chmod +x "$HOST_AGENT"
	# Hosts share this machine's cores, which their launchers cannot know: ranks take one each. What a rank
	# says reaches mpirun by the cable, so it is kept here, too.
	cat >"$TMP/host_rank.sh" <<-EOT
		#!/bin/bash
		hostname >"\$E2E_TMP/host.\$PMIX_RANK"
		exec taskset -c \$((PMIX_RANK % $(nproc))) "$TMP/rank.sh" "\$@" \\
			2> >(tee "\$E2E_TMP/err.\$PMIX_RANK" >&2)
	EOT
	chmod +x "$TMP/host_rank.sh"
}

# CMD as one rank on each of the first N hosts.
hosts_run() { # N SECONDS CMD...
	local list limit=$2 n=$1 name x=()
	shift 2
	list=$(seq -s, -f "$HOST_NET.%g" "$n")
	for name in E2E_ID E2E_TMP RUNTIME_DIRECTORY SOFT_MLX5_NET SOFT_MLX5_LIB SOFT_MLX5_FAULTS; do
		[ -z "${!name:-}" ] || x+=(-x "$name")
	done
	rm -f "$TMP"/rc.* "$TMP"/host.*
	# shellcheck disable=SC2086 # a list
	on_host 1 timeout -k 2 "$limit" mpirun -np "$n" --host "$list" --map-by node --bind-to none \
		--mca plm rsh --mca plm_rsh_agent "$HOST_AGENT" --mca oob_tcp_if_include "$HOST_NET.0/24" \
		$MPIRUN_ARGS "${x[@]}" -x SOFT_MLX5_WIRE=udp "$TMP/host_rank.sh" "$SOFT_MLX5" "$@"
}

# benchkv as one rank on each of the first N hosts.
hosts() { # N SECONDS ARG...
	local n=$1 limit=$2
	shift 2
	hosts_run "$n" "$limit" "$BENCHKV" --no-huge -- --name "$SEGMENT" "$@"
}

# No segment, no wire and no socket is left on any host.
hosts_clean() { # WHAT
	local host left
	nothing_left "$1"
	for host in $(seq $((${#HOST_PIDS[@]} - 1))); do
		left=$(on_host "$host" find /dev/shm -name 'crpc.*' -o -name 'soft_mlx5.*')
		[ -z "$left" ] || fail "$1: left behind on host $host: $left"
	done
}
