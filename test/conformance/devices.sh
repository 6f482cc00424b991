#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# rdma-core's own tools find the device, open it and read what it says of itself; processes that
# start at once agree; programs that have nothing to do with RDMA notice nothing.
. "$(dirname "$0")/lib.sh"
need ibv_devices ibv_devinfo

TRANSPORT=-
ran ibv_devices
on 10 ibv_devices >"$TMP/devices.out" 2>&1 || fail "ibv_devices ended with $?"
[ "$(grep -c mlx5_soft "$TMP/devices.out")" -eq 1 ] || fail "ibv_devices does not list one device"
ok "ibv_devices"

ran ibv_devinfo -v
on 10 ibv_devinfo -v >"$TMP/devinfo.out" 2>&1 || fail "ibv_devinfo ended with $?"
while read -r what; do
	grep -Eq "$what" "$TMP/devinfo.out" || fail "ibv_devinfo does not say $what"
done <<'EOF'
hca_id:\smlx5_soft0
transport:\s+InfiniBand
state:\s+PORT_ACTIVE
link_layer:\s+InfiniBand
port_lid:\s+1
active_mtu:\s+4096
vendor_part_id:\s+4119
GID\[ +0\]:\s+fe80:
EOF
! grep -q '^soft_mlx5:' "$TMP/devinfo.out" || fail "a probe of rdma-core was reported as refused"
ok "ibv_devinfo -v"

# rdma(8) asks by netlink: devices in order, what their ports are, and no command that is not there.
shown() { # COMMAND...: its output is in link.out
	ran "$@"
	on 10 env SOFT_MLX5_DEVICES=2 "$@" >"$TMP/link.out" 2>&1 || fail "'$*' ended with $?"
}
if command -v rdma >/dev/null; then
	shown rdma link
	[ "$(sed -En 's|^link (mlx5_soft./1) .* lid (.) .* state ACTIVE physical_state LINK_UP.*|\1 \2|p' \
		"$TMP/link.out" | xargs)" = 'mlx5_soft0/1 1 mlx5_soft1/1 2' ] || fail "not two ports"
	ok "rdma link"
	SOFT_MLX5_FABRIC=roce shown rdma -j link show mlx5_soft1/1
	grep -q '"ifname":"mlx5_soft1","port":1,"state":"ACTIVE"' "$TMP/link.out" || fail "not an Ethernet port"
	on 10 rdma link show mlx5_soft2 >"$TMP/none.out" 2>&1 && fail "rdma link shows a port that is not there"
	ok "rdma -j link"
	shown rdma dev show mlx5_soft1
	grep -q '^1: mlx5_soft1: node_type ca .*fw 16.35.2000 node_guid 0200:00ff:fe00:0101 ' "$TMP/link.out" ||
		fail "rdma dev does not show the device"
	ok "rdma dev"
	ran rdma resource
	on 10 rdma resource >"$TMP/resource.out" 2>&1 && fail "rdma resource succeeds"
	[ "$(grep '^soft_mlx5: ' "$TMP/resource.out")" = \
		'soft_mlx5: command 9 of NETLINK_RDMA is not supported (ENOTSUP)' ] || fail "it is not refused"
	record refused 'command 9 of NETLINK_RDMA is not supported'
	ok "rdma resource is refused"
fi
if command -v ip >/dev/null; then # A protocol of netlink that has nothing to do with RDMA.
	ran ip -o link show lo
	[ "$(on 10 ip -o link show lo)" = "$(ip -o link show lo)" ] || fail "ip link shows something else"
	ok "ip link"
fi

# The tree is made at the first use: in an empty place, by ten processes at once.
export SOFT_MLX5_DIR=$TMP/tree
mkdir "$SOFT_MLX5_DIR"
pids=
for i in $(seq 10); do
	on 20 ibv_devices >"$TMP/start$i.out" 2>&1 &
	pids="$pids $!"
done
for pid in $pids; do
	wait "$pid" || fail "one of ten processes started at once ended with $?"
done
[ "$(cat "$TMP"/start*.out | grep -c mlx5_soft0)" -eq 10 ] || fail "not all of ten processes saw the device"
ok "ten processes make the tree at once"

# What a killed maker leaves (half of the files), and what a tidy-up job removes.
tree=$(echo "$SOFT_MLX5_DIR"/soft_mlx5-*/sysfs-*)
rm -r "$tree/class/infiniband"
on 10 ibv_devices >"$TMP/again.out" 2>&1
grep -q mlx5_soft0 "$TMP/again.out" || fail "an interrupted tree is not made good"
rm "$tree"/devices/pci*/*/infiniband_verbs/uverbs0/ibdev
on 10 ibv_devices >"$TMP/again.out" 2>&1
grep -q mlx5_soft0 "$TMP/again.out" || fail "a damaged tree is not made good"
ok "a broken tree is made good"

# Somebody else's directory in that place must not be trusted.
if [ "$(id -u)" -eq 0 ]; then
	rm -r "$SOFT_MLX5_DIR"/soft_mlx5-0
	mkdir "$SOFT_MLX5_DIR"/soft_mlx5-0 && chown 12345 "$SOFT_MLX5_DIR"/soft_mlx5-0
	on 10 ibv_devices >"$TMP/foreign.out" 2>&1
	grep -q mlx5_soft0 "$TMP/foreign.out" || fail "no other place was tried"
	[ -z "$(ls "$SOFT_MLX5_DIR"/soft_mlx5-0)" ] || fail "wrote into a directory of another user"
	ok "a foreign directory is left alone"
fi
unset SOFT_MLX5_DIR

# Shells and tools under the preload: same output, same status, no word of ours.
on 10 sh -c 'cat /proc/version; ls /usr/include/rdma /sys/class; stat -c %F /dev/null; exit 7' \
	>"$TMP/plain.out" 2>&1
[ $? -eq 7 ] || fail "sh has another exit status under the preload"
sh -c 'cat /proc/version; ls /usr/include/rdma /sys/class; stat -c %F /dev/null' >"$TMP/bare.out" 2>&1
cmp -s "$TMP/plain.out" "$TMP/bare.out" || fail "sh says something else under the preload"
printf '#!/bin/sh\necho script $1; exit 3\n' >"$TMP/script"
chmod +x "$TMP/script"
on 10 "$TMP/script" runs >"$TMP/script.out" 2>&1
[ "$? $(cat "$TMP/script.out")" = '3 script runs' ] || fail "a script does not run: $(cat "$TMP/script.out")"
ok "programs without RDMA"
finish
