#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Another rdma-core than the distribution's on the software ConnectX.
set -u

usage() {
	cat <<'EOF'
usage: devtools/rdma_core.sh [--ref REF] [SOURCE]

Builds rdma-core in build-rdma-core/ and runs its programs and its own test suite on soft_mlx5, which
build/ must have. SOURCE is a clone of rdma-core; without it, that of GitHub is fetched. Nothing is
installed. Needs the packages of the group "docs" (devtools/packages.sh), cmake, cython3, iproute2 and libnl.

  --ref REF  the version, such as v65.0 or master (default: that which SOURCE has checked out)

The last line is "N passed, N failed, N skipped".
EOF
}

fail() {
	echo "rdma_core.sh: $*" >&2
	exit 1
}

ref=
while [ $# -gt 0 ]; do
	case $1 in
	--ref) ref=${2:-}; [ -n "$ref" ] || fail "--ref needs a version"; shift ;;
	-h | --help) usage; exit 0 ;;
	-*) fail "$1 is unknown; --help lists the options" ;;
	*) source=$1 ;;
	esac
	shift
done
cd "$(dirname "$0")/.." || exit 1
top=$PWD/build-rdma-core
soft=$PWD/usertools/soft-mlx5
[ -f build/drivers/soft_mlx5/libsoft_mlx5.so ] || fail "build/ has no libsoft_mlx5.so; run devtools/build.sh"
mkdir -p "$top" || exit 1
[ -d "$top/src" ] || git clone -q "${source:-https://github.com/linux-rdma/rdma-core}" "$top/src" ||
	fail "rdma-core cannot be cloned"
[ -z "$ref" ] || git -C "$top/src" checkout -q "$ref" || fail "rdma-core has no $ref"
(cd "$top" && cmake -GNinja -DIN_PLACE=1 -DNO_MAN_PAGES=1 -DPYTHON_EXECUTABLE=/usr/bin/python3 -S src -B build \
	>cmake.log && ninja -C build >ninja.log) || { tail -n 20 "$top"/*.log; fail "rdma-core was not built"; }

export PATH=$top/build/bin:$PATH LD_LIBRARY_PATH=$top/build/lib PYTHONPATH=$top/build/python
export SOFT_MLX5_NET=rdma-core.$$
trap 'rm -rf "/dev/shm/soft_mlx5.$(id -u).$SOFT_MLX5_NET"' EXIT
passed=0
failed=0
pair() { # SERVER... -- CLIENT...: both must end with 0
	local server=() pid
	while [ "$1" != -- ]; do server+=("$1"); shift; done
	shift
	timeout 60 "$soft" "${server[@]}" >"$top/server.log" 2>&1 &
	pid=$!
	sleep 1
	if timeout 60 "$soft" "$@" >"$top/client.log" 2>&1 && wait $pid; then
		passed=$((passed + 1))
		echo "ok: $*"
	else
		failed=$((failed + 1))
		echo "FAIL: $*"
		tail -n 5 "$top/client.log" "$top/server.log"
	fi
}
for program in ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong 'ibv_rc_pingpong -e'; do
	# shellcheck disable=SC2086
	pair $program -- $program localhost
done
pair rping -s -a 127.0.0.1 -C 10 -- rping -c -a 127.0.0.1 -C 10
pair ucmatose -c 4 -C 4 -- ucmatose -c 4 -C 4 -s 127.0.0.1

"$soft" /usr/bin/python3 "$top/src/tests/run_tests.py" -v >"$top/suite.log" 2>&1
read -r ran bad skipped < <(python3 - "$top/suite.log" <<'EOF'
import re, sys
text = open(sys.argv[1], errors='replace').read()
bad = re.findall(r'^(?:ERROR|FAIL): (\S+) ', text, re.M)
ran = re.search(r'^Ran (\d+) tests', text, re.M)
skipped = re.search(r'skipped=(\d+)', text)
for name in bad:
    print('FAIL:', name, file=sys.stderr)
print(ran[1] if ran else 0, len(bad), skipped[1] if skipped else 0)
EOF
)
[ "$ran" != 0 ] || { tail -n 5 "$top/suite.log"; bad=1; }
passed=$((passed + ran - bad - skipped))
echo "rdma-core $(git -C "$top/src" describe --always), log in $top/suite.log"
echo "$passed passed, $((failed + bad)) failed, $skipped skipped"
[ $((failed + bad)) = 0 ]
