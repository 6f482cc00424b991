#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Prove that the two commands of the README work on a machine that has never seen the project: a
# minimal Debian 12 in a folder, with a clone of HEAD in it.
set -u -o pipefail

usage() {
	cat <<'EOF'
usage: devtools/bare.sh [options]

Makes a minimal Debian 12 root from the package sources of this host, clones HEAD into it, runs
usertools/demo.sh and devtools/test.sh there as root, as the README says, and then the commands of its
pages (devtools/follow.sh), in mount and process namespaces of their own, prints the time and disk space
of each step, and removes everything, also when it fails or is interrupted. Changes that are not committed
are not part of it.

  --order demo-test|test-demo  which of the two runs first (default demo-test)
  --demo-only                  leave out devtools/test.sh
  --again                      give test.sh this option: failed tests get a second try
  --keep                       leave the root and print where it is

Needs Debian 12, root and 4 GiB of disk space in TMPDIR (default /var/tmp); installs mmdebstrap and
git where they are missing. The last line is that of test.sh. Exit status: 0 if all steps succeed,
1 if one fails, 2 for wrong options, 77 if it cannot run here.
EOF
}

bad_usage() {
	usage >&2
	echo "bare.sh: $*" >&2
	exit 2
}

cannot_run() {
	echo "bare.sh: cannot run here: $*" >&2
	exit 77
}

order=(demo test)
keep=0
again=
demo_only=0
while [ $# -gt 0 ]; do
	case $1 in
	--order)
		case ${2:-} in
		demo-test) order=(demo test) ;;
		test-demo) order=(test demo) ;;
		*) bad_usage "--order takes demo-test or test-demo, not '${2:-}'" ;;
		esac
		shift ;;
	--again) again=' --again' ;;
	--keep) keep=1 ;;
	--demo-only) demo_only=1 ;;
	-h | --help) usage; exit 0 ;;
	*) bad_usage "unknown argument '$1'" ;;
	esac
	shift
done
[ $demo_only = 0 ] || order=(demo)

source=$(cd "$(dirname "$0")/.." && pwd) || exit 2
[ "$(id -u)" = 0 ] || cannot_run "not root, which its namespaces and root folder need"
grep -q '^VERSION_CODENAME=bookworm$' /etc/os-release 2>/dev/null ||
	cannot_run "this host is not Debian 12, whose package sources it takes"
unshare --mount --pid --fork true 2>/dev/null ||
	cannot_run "this host allows no mount and process namespaces"
"$source/devtools/packages.sh" bare || cannot_run "mmdebstrap and git are missing (see above)"
git -C "$source" rev-parse -q --verify HEAD >/dev/null || cannot_run "$source is not a git repository"

work=$(mktemp -d "${TMPDIR:-/var/tmp}/bare.XXXXXX") && chmod 755 "$work" || exit 1
root=$work/root
child=
# demo.sh reserves hugepages, which are those of this host's kernel.
pages=/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
pages_before=$(cat $pages 2>/dev/null)
cleanup() {
	local try
	# The namespaces end with unshare, and all mounts with them.
	[ -z "$child" ] || { kill -- -"$child" && wait "$child"; } 2>/dev/null
	[ "$pages_before" = "$(cat $pages 2>/dev/null)" ] || echo "$pages_before" >$pages
	if [ $keep = 1 ]; then
		echo "bare: kept $work; to remove it: rm -r $work"
		return
	fi
	# A process that is ending may still write.
	for try in 1 2 3 4 5; do
		rm -rf --one-file-system "$work" 2>/dev/null && break
		sleep "$try"
	done
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

summary=()
failed=0
# timed NAME COMMAND...: run it in the background, in a process group of its own, so that a signal
# is answered at once and ends all of it.
timed() {
	local name=$1 began=$SECONDS rc
	shift
	echo "==== bare: $name"
	set -m
	"$@" </dev/null &
	child=$!
	set +m
	wait $child
	rc=$?
	child=
	[ $rc = 0 ] || failed=1
	summary+=("$(printf 'bare: %-8s status %3d  %5d s  %5d MiB' "$name" $rc $((SECONDS - began)) \
		"$(du -smx "$root" | cut -f1)")")
	return $rc
}

make_root() {
	local sources=() file
	for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}; do
		[ ! -s "$file" ] || sources+=("$file")
	done
	mmdebstrap --quiet --variant=minbase --include=ca-certificates,git bookworm "$root" \
		"${sources[@]}" || return
	rm -rf "$root"/etc/apt/sources.list{,.d}
	cp -a /etc/apt/. "$root/etc/apt/" && cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
}

clone() {
	git clone -q --no-hardlinks "$source" "$root/srv/copyrpc" &&
		git -C "$root/srv/copyrpc" checkout -q --detach "$(git -C "$source" rev-parse HEAD)"
}

# inside COMMAND: in the root, which is that of a mount namespace: what a test runs in namespaces of
# its own would leave a root that is only changed.
inside() {
	set +m # one process group
	# shellcheck disable=SC2016 # expanded by the inner shell
	unshare --mount --pid --fork --kill-child --propagation private bash -ec '
		mount --bind "$1" "$1"
		cd "$1"
		mount -t proc proc proc
		mount --rbind /sys sys
		mount --rbind /dev dev
		mount -t tmpfs tmpfs dev/shm
		mount -t tmpfs tmpfs tmp
		pivot_root . mnt
		cd /
		umount -l mnt
		exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/srv \
			${http_proxy+"http_proxy=$http_proxy"} ${https_proxy+"https_proxy=$https_proxy"} \
			bash -c "cd /srv/copyrpc && exec $2"
	' bash "$root" "$1" 2>&1 | tee "$work/log"
}

counts=
echo "bare: $(git -C "$source" log -1 --format='%h %s') in $root"
timed root make_root && timed clone clone || order=()
for command in "${order[@]}"; do
	case $command in
	demo) timed demo.sh inside usertools/demo.sh ;;
	test)
		timed test.sh inside "devtools/test.sh$again"
		counts=$(tail -n 1 "$work/log")
		timed follow.sh inside devtools/follow.sh ;;
	esac
done
printf '%s\n' "${summary[@]}"
[ -z "$counts" ] || echo "$counts"
[ $failed = 0 ]
