# SPDX-License-Identifier: BSD-3-Clause
#
# A Slurm cluster of two nodes for the tests of this folder: munged, slurmctld and two slurmd with a
# configuration, ports, logs and state of their own. Sourced after benchkv_lib.sh. Both nodes are this
# host, or each is a host of hosts_lib.sh where that was sourced before. The cluster ends with the test.
for prog in munged slurmctld slurmd srun; do
	PATH=$PATH:/usr/sbin
	command -v "$prog" >/dev/null || {
		echo "skip: $prog is not installed (packages slurm-wlm and munge)"
		exit 77
	}
done
[ "$(id -u)" = 0 ] || { echo "skip: slurmd needs root"; exit 77; }

SLURM=$TMP/slurm
export SLURM_CONF=$SLURM/slurm.conf

# Job steps first: their daemons are not children of this shell, but carry its mark.
cluster_end() {
	local pid
	[ ! -e "$SLURM/up" ] || on_node 1 timeout 10 scancel -f --state=RUNNING -u root 2>/dev/null
	for pid in $(cluster_pids); do
		kill "$pid" 2>/dev/null
	done
	for _ in $(seq 50); do
		[ -n "$(cluster_pids)" ] || break
		sleep 0.1
	done
	for pid in $(cluster_pids) $(pids_of slurmstepd); do
		kill -9 "$pid" 2>/dev/null
	done
}

cluster_pids() {
	pids_of munged
	pids_of slurmctld
	pids_of slurmd
}

trap 'cluster_end; cleanup' EXIT

if [ -z "${HOST_NET:-}" ]; then
	node_host() { hostname -s; }
	node_addr() { echo 127.0.0.1; }
	on_node() { shift; "$@"; }
else
	node_host() { echo "e2e-host$1"; } # NODE
	node_addr() { echo "$HOST_NET.$1"; } # NODE
	on_node() { on_host "$@"; } # NODE CMD...
	export SOFT_MLX5_WIRE=udp
fi

ports_free() { # N: numbers of TCP ports that nothing uses
	python3 - "$1" <<-'EOT'
	import socket, sys
	sockets = [socket.socket() for _ in range(int(sys.argv[1]))]
	for s in sockets:
	    s.bind(("127.0.0.1", 0))
	print(*(s.getsockname()[1] for s in sockets))
	EOT
}

cluster_write() {
	local ports node
	read -r -a ports < <(ports_free 3)
	chmod 755 "$TMP"
	mkdir -p "$SLURM/state" "$SLURM"/{spool,tmp}/node{1,2}
	(umask 077 && head -c 128 /dev/urandom >"$SLURM/munge.key")
	: >"$SLURM/cgroup.conf"
	cat >"$SLURM_CONF" <<-EOT
		ClusterName=launch
		SlurmctldHost=$(node_host 1)($(node_addr 1))
		SlurmctldPort=${ports[0]}
		SlurmUser=root
		AuthType=auth/munge
		AuthInfo=socket=$SLURM/munge.sock
		StateSaveLocation=$SLURM/state
		SlurmctldPidFile=$SLURM/slurmctld.pid
		SlurmctldLogFile=$SLURM/slurmctld.out
		SlurmdSpoolDir=$SLURM/spool/%n
		SlurmdPidFile=$SLURM/%n.pid
		SlurmdLogFile=$SLURM/%n.out
		TmpFS=$SLURM/tmp/%n
		ProctrackType=proctrack/linuxproc
		TaskPlugin=task/none
		JobAcctGatherType=jobacct_gather/none
		AccountingStorageType=accounting_storage/none
		PropagateResourceLimitsExcept=MEMLOCK
		ReturnToService=2
		MailProg=/bin/true
		KillWait=5
	EOT
	for node in 1 2; do
		echo "NodeName=node$node NodeHostname=$(node_host $node) NodeAddr=$(node_addr $node)" \
			"Port=${ports[$node]} CPUs=2"
	done >>"$SLURM_CONF"
	echo 'PartitionName=all Nodes=node1,node2 Default=YES State=UP OverSubscribe=FORCE:4' >>"$SLURM_CONF"
}

daemon() { # NAME CMD...
	local name=$1
	shift
	"$@" >"$TMP/$name.out" 2>&1 &
	disown $!
}

cluster_start() {
	cluster_write
	daemon munged munged --foreground --force --key-file="$SLURM/munge.key" \
		--socket="$SLURM/munge.sock" --pid-file="$SLURM/munge.pid" \
		--log-file="$SLURM/munged.log" --seed-file="$SLURM/munge.seed"
	for _ in $(seq 100); do
		[ ! -S "$SLURM/munge.sock" ] || break
		sleep 0.1
	done
	daemon slurmctld on_node 1 slurmctld -D -c
	daemon slurmd1 on_node 1 slurmd -D -N node1
	daemon slurmd2 on_node 2 slurmd -D -N node2
	for _ in $(seq 100); do
		[ "$(on_node 1 timeout 5 sinfo -h -t idle -o %D 2>/dev/null)" != 2 ] || { : >"$SLURM/up"; return; }
		sleep 0.2
	done
	fail "the nodes did not become idle: $(tail -n 3 "$SLURM"/*.out)"
}

on_two_nodes() { # SECONDS ARG...: a rank of benchkv on each
	local limit=$1
	shift
	rm -f "$TMP"/rc.*
	on_node 1 timeout -k 2 "$limit" srun --mpi=pmix -N 2 -n 2 "$TMP/rank.sh" "$SOFT_MLX5" \
		"$BENCHKV" --no-huge -- --name "$SEGMENT" "$@"
}
