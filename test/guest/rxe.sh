# SPDX-License-Identifier: BSD-3-Clause
#
# Sourced by collect.sh: pingpong, and benchkv by plain verbs, on the kernel's software RoCE, with a good
# network and a bad one. This kernel's rdma_rxe receives in the first network namespace only, so both
# devices are there, and rules make the kernel use the wire between two addresses of its own:
#
#     rxe0 on v0, 10.81.0.1 ──────── v1, 10.81.0.2, rxe1

# Loading by request of the kernel does not find the guest's modprobe.
modprobe -a crc32_generic rdma_rxe ib_uverbs veth sch_netem

between_own() { # DEVICE ADDRESS PEER PEER_ADDRESS TABLE
	sysctl -qw "net.ipv4.conf.$1.accept_local=1" "net.ipv4.conf.$1.rp_filter=0"
	ip addr add "$2/24" dev "$1"
	ip link set "$1" up
	ip neigh replace "$4" lladdr "$(cat "/sys/class/net/$3/address")" dev "$1"
	ip route add "$4/32" dev "$1" table "$5"
	ip rule add pref "$5" oif "$1" lookup "$5"
}

wires() {
	sysctl -qw net.ipv4.conf.all.rp_filter=0
	ip link add v0 type veth peer name v1
	between_own v0 10.81.0.1 v1 10.81.0.2 100
	between_own v1 10.81.0.2 v0 10.81.0.1 101
	ip rule add pref 200 lookup local
	ip rule del pref 0
	rdma link add rxe0 type rxe netdev v0
	rdma link add rxe1 type rxe netdev v1
}

pingpong=(ibv_rc_pingpong -g 1 -n 50)

listens() { # until port 18515 is open
	for _ in $(seq 100); do
		! cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q ':4853 .* 0A ' || return 0
		sleep 0.1
	done
}

rxe_to_rxe() { # NAME
	timeout -k 2 60 "${pingpong[@]}" -d rxe1 >"$OUT/rxe_$1.server" 2>&1 &
	listens
	timeout -k 2 40 "${pingpong[@]}" -d rxe0 127.0.0.1 >"$OUT/rxe_$1.client" 2>&1
	echo $? >"$OUT/rxe_$1.rc"
	wait
	echo "collect: rxe_$1 after $SECONDS s"
}

rank() { # LCORE DEVICE: a rank, as mpirun takes it
	echo "-np 1 $BENCHKV --no-huge -l $1 -- --driver verbs --device $2 --clients 2 --keys 256 --verify" \
		"--seconds 2 --warmup 0.1 --quiet --idle yield --name rxe"
}

service() { # NAME
	# shellcheck disable=SC2046 # lists
	timeout -k 5 150 mpirun --bind-to none $(rank 1 rxe0) : $(rank 2 rxe1) >"$OUT/rxe_service_$1" 2>&1
	echo "collect: rxe_service_$1 after $SECONDS s"
}

wires >"$OUT/wires" 2>&1
rxe_to_rxe plain
service plain
ip -s link show v0 >"$OUT/v0"
tc qdisc add dev v0 root netem loss 2% delay 1ms reorder 20%
rxe_to_rxe netem
service netem
tc -s qdisc show dev v0 >"$OUT/netem"
