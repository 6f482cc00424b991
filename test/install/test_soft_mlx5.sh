#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Proves that the jobs of doc/guides/soft_mlx5.md work as their page says: each one's commands, as an
# unprivileged user, in a folder with nothing but a project whose "make check" uses verbs. pkg-config finds
# rdma-core alone, so that soft_mlx5 is built without DPDK; what is installed then is what the Debian package
# has, and needs nothing but the C library.
# Argument: source root.
set -u

source=$1
tmp=$(mktemp -d /tmp/soft_alone.XXXXXX) || exit 99
as=()
user=$((61000 + $$ % 1000))
if [ "$(id -u)" = 0 ]; then
	as=(setpriv --reuid=$user --regid=$user --clear-groups)
fi
trap 'rm -rf "$tmp"; [ ${#as[@]} = 0 ] || rm -rf /dev/shm/soft_mlx5[-.]$user*' EXIT
for program in git make meson setpriv readelf; do
	command -v $program >/dev/null || { echo "skip: $program is not installed"; exit 77; }
done

fail() {
	echo "FAIL: $*"
	[ ! -s "$tmp/log" ] || tail -n 40 "$tmp/log"
	exit 1
}

mkdir "$tmp"/{pc,home,copyrpc,github,gitlab} || exit 99
for pc in libibverbs libmlx5 libnl-3.0 libnl-route-3.0; do
	folder=$(pkg-config --variable=pcfiledir $pc) && ln -s "$folder/$pc.pc" "$tmp/pc/" || fail "no $pc.pc"
done
(cd "$source" && tar -c --exclude='./build*' --exclude=./.git --exclude=./results .) |
	tar -x -C "$tmp/copyrpc" || exit 99
for project in github gitlab; do
	cat >"$tmp/$project/check.c" <<-'END'
		#include <infiniband/verbs.h>
		#include <stdio.h>
		int main(void)
		{
			static char buf[4096];
			struct ibv_device **list = ibv_get_device_list(NULL);
			struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
			struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
			struct ibv_cq *cq = ctx ? ibv_create_cq(ctx, 16, NULL, NULL, 0) : NULL;
			struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
				.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
			int bad = !pd || !cq || !ibv_reg_mr(pd, buf, sizeof(buf), 0) || !ibv_create_qp(pd, &attr);

			if (!bad)
				printf("check: %s: good\n", ibv_get_device_name(ctx->device));
			return bad;
		}
	END
	printf 'check:\n\tcc check.c -o check -libverbs\n\t./check\n' >"$tmp/$project/Makefile"
done
[ ${#as[@]} = 0 ] || chown -R $user:$user "$tmp" || exit 99

# user FOLDER COMMAND: in a shell that stops at the first failure, as runners have it.
user() {
	(cd "$tmp/$1" && exec "${as[@]}" env -i PATH="$PATH" HOME="$tmp/home" COPYRPC="file://$tmp/copyrpc" \
		PKG_CONFIG_LIBDIR="$tmp/pc" DESTDIR="$tmp/dest" bash -e -c "$2" >"$tmp/log" 2>&1)
}

user copyrpc 'git init -q && git add -A && git -c user.name=u -c user.email=u@u commit -q -m all' ||
	fail "no repository"
page=$source/doc/guides/soft_mlx5.md
github=$(sed -n '/^      - run: |$/,/^```$/s/^          //p' "$page")
gitlab=$(sed -n '/^  script:$/,/^```$/s/^    - //p' "$page")
[ "$(wc -l <<<"$github")" = 5 ] && [ "$github" = "$gitlab" ] || fail "the jobs differ: $github / $gitlab"
for job in github gitlab; do
	user $job "${!job}" || fail "$job: status $?"
	[ "$(grep -c '^check: mlx5_soft0: good$' "$tmp/log")" = 1 ] && grep -q '^ok *device ' "$tmp/log" ||
		fail "$job: the check did not run"
	echo "ok: the job of $job"
done

foreign=$(cd "$tmp/github/soft/build" && ninja -t deps | grep -E '/(dpdk|numa|jansson|pmix|rte_)' | sort -u)
[ -z "$foreign" ] || fail "headers that are not rdma-core's: $foreign"
user github 'meson install -C soft/build --no-rebuild' || fail "meson install"
# The package's list, at the default prefix; nothing else, and all of it.
(cd "$tmp/dest/usr/local" && find . -type f | sed 's,^\./,usr/,' | sort) >"$tmp/installed"
# shellcheck disable=SC2046 # patterns, one a line
(cd "$tmp/dest" && mv usr/local/* usr/ && rmdir usr/local &&
	ls -d $(cat "$source/debian/soft-mlx5.install") | sort) >"$tmp/package"
diff "$tmp/package" "$tmp/installed" >"$tmp/log" || fail "installed and packaged are not the same"
needed=$(readelf -d "$tmp"/dest/usr/lib/*/libsoft_mlx5.so | sed -n 's/.*NEEDED.*\[\(.*\)\]$/\1/p' |
	grep -v '^libc\.\|^ld-linux')
[ -z "$needed" ] || fail "libsoft_mlx5.so needs $needed"
depends=$(sed -n '/^Package: soft-mlx5$/,/^$/s/^Depends: //p' "$source/debian/control")
[ -n "$depends" ] && ! grep -Eq 'dpdk|copyrpc|numa|pmix|jansson' <<<"$depends" || fail "the package depends on $depends"
user github "$tmp/dest/usr/bin/crpc-soft-mlx5 ./check" || fail "what is installed does not run"
user github "$tmp/dest/usr/bin/crpc-soft-mlx5 --doctor" || fail "the doctor of what is installed"
echo "ok: installed alone"
