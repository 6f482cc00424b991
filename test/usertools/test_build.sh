#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Proves that devtools/build.sh sets a build folder up again when what is installed has changed, keeps
# its options and what it compiled, and that devtools/test.sh gives the reason of each skip and counts a
# skip that packages could have prevented as failed, says at its end what failed and how, and with --again
# lets a test fail once. All in a small project of its own, at a path with a space. Argument: source root.
set -u

tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
tree="$tmp/a tree"
mkdir -p "$tree/devtools" "$tmp/pc"
cp "$1"/devtools/{build,test}.sh "$tree/devtools/" || exit 99
printf '#!/bin/bash\necho none-such\n' >"$tree/devtools/packages.sh"
chmod +x "$tree/devtools/packages.sh"
export PKG_CONFIG_PATH=$tmp/pc
unset MAKEFLAGS NINJA_STATUS

cat >"$tree/meson_options.txt" <<'EOF'
option('flavour', type: 'string', value: 'plain')
EOF
cat >"$tree/meson.build" <<'EOF'
project('small', 'c')
peer = dependency('crpc-test-peer', required: false)
summary({'peer': peer.found(), 'flavour': get_option('flavour')})
configure_file(input: 'found.in', output: 'found.txt',
    configuration: {'PEER': peer.found().to_string(), 'FLAVOUR': get_option('flavour')})
executable('always', 'always.c')
test('passes', find_program('pass.sh'), suite: 'fast')
test('lacks', find_program('lacks.sh'), suite: 'fast')
test('cannot', find_program('cannot.sh'), suite: 'fast')
EOF
echo '@PEER@ @FLAVOUR@' >"$tree/found.in"
echo 'int main(void) { return 0; }' >"$tree/always.c"
printf '#!/bin/sh\nexit 0\n' >"$tree/pass.sh"
printf '#!/bin/sh\necho skip: frob is not installed\necho later >&2\nexit 77\n' >"$tree/lacks.sh"
printf '#!/bin/sh\necho two cores are needed\nexit 77\n' >"$tree/cannot.sh"
chmod +x "$tree"/*.sh

fail() {
	echo "FAIL: $*"
	tail -n 40 "$tmp/log"
	exit 1
}

# build FOUND COMPILED [ARG...]: found.txt holds FOUND then, and always.c was compiled or not.
build() {
	local found=$1 compiled=$2
	shift 2
	"$tree/devtools/build.sh" "$@" >"$tmp/log" 2>&1 || fail "build.sh $*: status $?"
	[ "$(cat "$tree/build/found.txt")" = "$found" ] || fail "expected '$found': $(cat "$tree/build/found.txt")"
	[ "$(grep -c 'Compiling.*always' "$tmp/log")" = "$compiled" ] || fail "compiled, expected: $compiled"
}

peer() {
	printf 'Name: peer\nDescription: peer\nVersion: 1\n' >"$tmp/pc/crpc-test-peer.pc"
}

build 'false sweet' 1 --target always -- -Dflavour=sweet
build 'false sweet' 0
peer
build 'true sweet' 0
rm "$tmp/pc/crpc-test-peer.pc"
build 'false sweet' 0
build 'false sour' 0 -- -Dflavour=sour
peer
build 'true sour' 0
# A setup that fails is repeated, also when the packages are again those of before.
mv "$tree/found.in" "$tmp/" && rm "$tmp/pc/crpc-test-peer.pc"
"$tree/devtools/build.sh" >"$tmp/log" 2>&1 && fail "a setup without found.in succeeds"
mv "$tmp/found.in" "$tree/" && peer
build 'true sour' 0

"$tree/devtools/test.sh" >"$tmp/log" 2>&1 && fail "a preventable skip passes"
[ "$(tail -n 1 "$tmp/log")" = '1 passed, 1 failed, 1 skipped' ] || fail "the counts of test.sh"
"$tree/devtools/test.sh" --no-packages >"$tmp/log" 2>&1 || fail "test.sh --no-packages: status $?"
[ "$(tail -n 3 "$tmp/log")" = 'skipped: cannot: two cores are needed
skipped: lacks: frob is not installed
1 passed, 0 failed, 2 skipped' ] || fail "the last lines of test.sh"

# A test that fails the first time, one that always fails, and one with a finding.
cat >>"$tree/meson.build" <<'EOF'
test('once', find_program('once.sh'), suite: 'fast')
EOF
printf '#!/bin/sh\n[ -e "%s/ran" ] || { touch "%s/ran"; echo too slow; exit 1; }\n' "$tmp" "$tmp" >"$tree/once.sh"
chmod +x "$tree/once.sh"
"$tree/devtools/test.sh" --no-packages >"$tmp/log" 2>&1 && fail "a test that fails passes"
[ "$(tail -n 3 "$tmp/log")" = 'failed: once: (fail)
failed: once: too slow
1 passed, 1 failed, 2 skipped' ] || fail "the last lines of a failed test"
rm "$tmp/ran"
"$tree/devtools/test.sh" --no-packages --again >"$tmp/log" 2>&1 || fail "--again: status $?"
grep -q '^unsteady: once: ' "$tmp/log" && [ "$(tail -n 1 "$tmp/log")" = '2 passed, 0 failed, 2 skipped' ] ||
	fail "the last lines of --again"
printf '#!/bin/sh\n[ -e "%s/ran2" ] || { touch "%s/ran2"; echo ERROR: AddressSanitizer: x; exit 1; }\n' \
	"$tmp" "$tmp" >"$tree/once.sh"
"$tree/devtools/test.sh" --no-packages --again >"$tmp/log" 2>&1 && fail "--again passes a finding"
printf '#!/bin/sh\nexit 1\n' >"$tree/once.sh"
"$tree/devtools/test.sh" --no-packages --again >"$tmp/log" 2>&1 && fail "--again passes what always fails"
echo ok
