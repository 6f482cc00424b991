#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Debian packages of HEAD in build-deb/, checked by lintian.
set -u

usage() {
	cat <<'EOF'
usage: devtools/deb.sh [--no-lintian]

Makes a clean copy of HEAD, builds libcopyrpc0, libcopyrpc-dev, copyrpc-tools, python3-copyrpc, soft-mlx5
and copyrpc-doc from it without signing them, and has lintian check them: any error or warning fails.
The packages lie in build-deb/. Changes that are not committed are not part of them; a tree without
.git is taken as it stands.
EOF
}

lint=1
case ${1:-} in
'') ;;
--no-lintian) lint=0 ;;
-h | --help) usage; exit 0 ;;
*) usage >&2; echo "deb.sh: unknown argument '$1'" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/.." || exit 1
devtools/packages.sh build peers docs deb || exit 1
version=$(dpkg-parsechangelog -S Version) || exit 1
out=$PWD/build-deb
rm -rf "$out"
mkdir "$out" || exit 1
if [ -e .git ]; then
	git archive --prefix="copyrpc-$version/" HEAD | tar -x -C "$out" || exit 1
else
	tar -c --exclude='./build*' --transform="s,^[.],copyrpc-$version," . | tar -x -C "$out" || exit 1
fi
(cd "$out/copyrpc-$version" && dpkg-buildpackage -us -uc -b) || exit 1
[ $lint = 0 ] || lintian --fail-on error,warning "$out"/copyrpc_*.changes || exit 1
echo "deb.sh: $(ls "$out"/*.deb | wc -l) packages in $out"
