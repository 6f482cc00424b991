#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Run a command on a machine of several NUMA nodes with hugepages: Debian's kernel in QEMU, with this
# host's root file system, which the guest cannot change.
set -u -o pipefail

usage() {
	cat <<'EOF'
usage: devtools/guest.sh [options] [--] CMD [ARGUMENTS...]

Boots Debian's kernel in QEMU without KVM and runs CMD there as root, in the current folder. The guest
sees this host's file system; what it writes stays in its memory and is lost, except below the folder
that OUT names in CMD's environment. Prints what CMD prints. Boot and power-off take 15 to 30 s on two
cores. The guest shows where things are placed; its speed means nothing.

  --nodes N          NUMA nodes (1 to 4; default 2), with two cores each
  --memory MIB       memory of each node (default 1536)
  --hugepages N,...  hugepages of 2 MiB of each node, in order (default 256 each)
  --isolate CPUS     cores that the scheduler leaves alone, such as 1-3 (isolcpus=)
  --append WORDS     more words for the kernel's command line
  --out DIR          where what CMD writes to $OUT is kept (default: a temporary folder, removed)
  --timeout S        end the guest after S seconds (default 600)

Needs root, and the packages qemu-system-x86, busybox-static, kmod and cpio; downloads the kernel's
package, about 70 MiB, once, into build-guest/ of this tree. Exit status: that of CMD; 2 for wrong
options, 77 if a guest cannot run here, 124 after the time limit.
EOF
}

bad_usage() {
	usage >&2
	echo "guest.sh: $*" >&2
	exit 2
}

cannot_run() {
	echo "guest.sh: cannot run here: $*" >&2
	exit 77
}

nodes=2
memory=1536
hugepages=
isolate=
append=
out=
limit_s=600
while [ $# -gt 0 ]; do
	case $1 in
	--nodes | --memory | --hugepages | --isolate | --append | --out | --timeout)
		[ $# -ge 2 ] || bad_usage "$1 needs a value"
		case $1 in
		--nodes) nodes=$2 ;;
		--memory) memory=$2 ;;
		--hugepages) hugepages=$2 ;;
		--isolate) isolate=$2 ;;
		--append) append=$2 ;;
		--out) out=$2 ;;
		--timeout) limit_s=$2 ;;
		esac
		shift ;;
	-h | --help) usage; exit 0 ;;
	--) shift; break ;;
	-*) bad_usage "unknown option '$1'" ;;
	*) break ;;
	esac
	shift
done
[ $# -gt 0 ] || bad_usage "no command"
[[ $nodes =~ ^[1-4]$ ]] || bad_usage "--nodes takes 1 to 4, not '$nodes'"
for number in "$memory" "$limit_s"; do
	[[ $number =~ ^[1-9][0-9]*$ ]] || bad_usage "'$number' is no number above 0"
done
[ "$(id -u)" = 0 ] || cannot_run "not root, as whom the guest reads this host's files"
for tool in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static depmod:kmod cpio:cpio; do
	command -v "${tool%:*}" >/dev/null || cannot_run "${tool#*:} is not installed"
done

root=$(cd "$(dirname "$0")/.." && pwd) || exit 2
kernel=$root/build-guest/kernel
work=$(mktemp -d "${TMPDIR:-/var/tmp}/copyrpc-guest.XXXXXX") || exit 1
vm=
tail=
trap 'kill $vm $tail 2>/dev/null; wait; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
[ -n "$out" ] || out=$work/out
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1

# ---- the kernel: unpacked once, never installed ----

if [ ! -e "$kernel/complete" ]; then
	package=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '$1 == "Depends:" { print $2; exit }')
	[ -n "$package" ] || cannot_run "no package source has linux-image-amd64"
	rm -rf "$kernel"
	mkdir -p "$kernel"
	(cd "$kernel" && apt-get -q download "$package" && dpkg-deb -x ./*.deb . && rm ./*.deb) \
		>"$work/log" 2>&1 || { cat "$work/log" >&2; cannot_run "cannot get $package"; }
	# Where depmod looks, whether /lib is a link or not.
	version=$(basename "$kernel"/boot/vmlinuz-*)
	depmod -b "$kernel" "${version#vmlinuz-}" && touch "$kernel/complete" || exit 1
fi
version=$(basename "$kernel"/boot/vmlinuz-*)
version=${version#vmlinuz-}

# ---- the first file system: mounts the others, runs the command, powers off ----

initramfs=$work/initramfs
mkdir -p "$initramfs"/{bin,mnt,new,proc,sys,dev}
cp "$(command -v busybox)" "$initramfs/bin/busybox" || exit 1
: >"$initramfs/modules"
for module in virtio_pci 9pnet_virtio 9p overlay; do
	modprobe -d "$kernel" -S "$version" --show-depends "$module" |
		sed -n 's/^insmod \(.*\.ko[.a-z]*\) *$/\1/p'
done | awk '!seen[$0]++' | while read -r file; do
	cp "$file" "$initramfs/" && basename "$file" >>"$initramfs/modules"
done
cat >"$initramfs/init" <<'EOF'
#!/bin/busybox sh
b=/bin/busybox
off() {
	$b sync
	echo o >/proc/sysrq-trigger
	$b sleep 60
}
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
while read -r module; do $b insmod /$module || off; done </modules
p9=trans=virtio,version=9p2000.L,msize=512000
$b mkdir -p /host /upper /out
$b mount -t 9p -o $p9,cache=loose,ro p9host /host || off
$b mount -t tmpfs tmpfs /upper
$b mkdir /upper/files /upper/work
$b mount -t overlay -o lowerdir=/host,upperdir=/upper/files,workdir=/upper/work overlay /new || off
$b mkdir -p /new/run/guest-out
$b mount -t 9p -o $p9 p9out /new/run/guest-out || off
$b mkdir -p /new/lib/modules
$b mount -t 9p -o $p9,cache=loose,ro p9modules /new/lib/modules || off
for d in proc sys dev; do $b mount -o move /$d /new/$d; done
$b ln -s /proc/self/fd /new/dev/fd
$b mkdir -p /new/dev/shm /new/dev/hugepages /new/dev/pts
$b mount -t tmpfs tmpfs /new/dev/shm
$b mount -t devpts devpts /new/dev/pts
$b mount -t hugetlbfs hugetlbfs /new/dev/hugepages
$b mount -t tmpfs tmpfs /new/run/lock
$b chroot /new /bin/bash /run/guest-out/.run
echo o >/new/proc/sysrq-trigger
$b sleep 60
EOF
chmod +x "$initramfs/init"
(cd "$initramfs" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initramfs.gz" || exit 1

{
	echo 'exec >/run/guest-out/.output 2>&1 </dev/null'
	echo 'export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8'
	echo 'export OUT=/run/guest-out OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1'
	echo 'ip link set lo up; hostname guest'
	node=0
	for count in ${hugepages//,/ }; do
		echo "echo $count >/sys/devices/system/node/node$node/hugepages/hugepages-2048kB/nr_hugepages"
		node=$((node + 1))
	done
	printf 'cd %q\n' "$PWD"
	printf '%q ' "$@"
	echo
	echo 'echo $? >/run/guest-out/.status; sync'
} >"$out/.run"
: >"$out/.output"
rm -f "$out/.status"

# ---- the machine ----

machine=(-accel tcg,thread=multi -cpu max -m $((nodes * memory))
	-smp "$((nodes * 2)),sockets=$nodes,cores=2,threads=1")
for ((node = 0; node < nodes; node++)); do
	machine+=(-object "memory-backend-ram,id=m$node,size=${memory}M"
		-numa "node,memdev=m$node,cpus=$((2 * node))-$((2 * node + 1))")
	for ((other = 0; other < node; other++)); do
		machine+=(-numa "dist,src=$other,dst=$node,val=21")
	done
done
words="console=ttyS0 quiet mitigations=off panic=-1 default_hugepagesz=2M hugepagesz=2M"
[ -n "$hugepages" ] || words+=" hugepages=$((nodes * 256))"
[ -z "$isolate" ] || words+=" isolcpus=managed_irq,domain,$isolate"
share() {
	echo "local,id=$1,path=${2//,/,,},security_model=none,multidevs=remap$3"
}
tail -n +1 -s 0.2 -f "$out/.output" &
tail=$!
timeout --kill-after=10 "$limit_s" qemu-system-x86_64 "${machine[@]}" -display none -no-reboot -nodefaults \
	-monitor none -serial "file:$work/console" -kernel "$kernel/boot/vmlinuz-$version" \
	-initrd "$work/initramfs.gz" -append "$words $append" \
	-fsdev "$(share host / ,readonly=on)" -device virtio-9p-pci,fsdev=host,mount_tag=p9host \
	-fsdev "$(share out "$out" '')" -device virtio-9p-pci,fsdev=out,mount_tag=p9out \
	-fsdev "$(share modules "$kernel/lib/modules" ,readonly=on)" \
	-device virtio-9p-pci,fsdev=modules,mount_tag=p9modules </dev/null &
vm=$!
wait $vm
rc=$?
vm=
[ $rc != 137 ] || rc=124
sleep 0.5
kill $tail
wait $tail 2>/dev/null
tail=
if [ -s "$out/.status" ]; then
	rc=$(cat "$out/.status")
elif [ $rc != 124 ]; then
	echo "guest.sh: the guest ended before the command did; its console:" >&2
	tail -n 20 "$work/console" >&2
	rc=1
fi
rm -f "$out/.run" "$out/.output" "$out/.status"
exit "$rc"
