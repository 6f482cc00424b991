#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Proves that devtools/bare.sh runs the commands of HEAD, and namespaces of theirs, in its root and in
# the order asked for, fails when one fails, and leaves neither processes nor files, also when it is
# interrupted. The root holds a few programs, by an mmdebstrap of our own, and the commands are those of
# a small repository.
# Argument: source root.
set -u

skip() {
	echo "skip: $*"
	exit 77
}

[ "$(id -u)" = 0 ] || skip "not root"
unshare --mount --pid --fork true 2>/dev/null || skip "no namespaces here"
grep -q '^VERSION_CODENAME=bookworm$' /etc/os-release || skip "this is not Debian 12"
command -v git >/dev/null || skip "git is not installed"

tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/bin" "$tmp/work" "$tmp/repo"/{devtools,usertools}
cat >"$tmp/bin/mmdebstrap" <<'EOF'
#!/bin/bash
# The root is the argument after the suite.
while [ "$1" != bookworm ]; do shift; done
mkdir -p "$2"/{bin,proc,sys,dev,tmp,mnt,srv,etc/apt}
for file in /bin/{bash,umount} $(ldd /bin/{bash,umount} | grep -o '^\s.*/[^ ]*' | grep -o '/[^ ]*'); do
	mkdir -p "$2$(dirname "$file")" && cp -L "$file" "$2$file"
done
cp /usr/bin/{env,nsenter} "$2/bin/"
EOF
cp "$1/devtools/bare.sh" "$tmp/repo/devtools/" || exit 99
printf '#!/bin/bash\nexit 0\n' >"$tmp/repo/devtools/packages.sh"
printf '#!/bin/bash\necho followed\n' >"$tmp/repo/devtools/follow.sh"
cat >"$tmp/repo/usertools/demo.sh" <<'EOF'
#!/bin/bash
echo "demo ran as process $$"
exec nsenter -t $$ -m bash -c ': </srv/copyrpc/usertools/demo.sh'
EOF
printf '#!/bin/bash\n: >/tmp/here || exit 1\necho "1 passed, 0 failed, 0 skipped"\n' >"$tmp/repo/devtools/test.sh"
chmod +x "$tmp/bin"/* "$tmp"/repo/*/*
export PATH=$tmp/bin:$PATH TMPDIR=$tmp/work
export GIT_AUTHOR_NAME=test GIT_AUTHOR_EMAIL=test GIT_COMMITTER_NAME=test GIT_COMMITTER_EMAIL=test

fail() {
	echo "FAIL: $*"
	cat "$tmp/log"
	exit 1
}

commit() {
	git -C "$tmp/repo" add -A && git -C "$tmp/repo" commit -q -m "$1" || exit 99
}

# bare STATUS ARG...: ends with the status, and leaves nothing.
bare() {
	local want=$1 rc
	shift
	timeout 60 "$tmp/repo/devtools/bare.sh" "$@" >"$tmp/log" 2>&1
	rc=$?
	[ $rc = "$want" ] || fail "bare.sh $*: status $rc instead of $want"
	[ -z "$(ls "$tmp/work")" ] || fail "bare.sh $*: left $(ls "$tmp/work")"
}

git -C "$tmp/repo" init -q
commit first
bare 2 --nonsense
bare 0
[ "$(tail -n 1 "$tmp/log")" = '1 passed, 0 failed, 0 skipped' ] || fail "the last line is not that of test.sh"
[ "$(grep -o '^bare: [a-z.]*  *status   0' "$tmp/log" | tr -s ' ' | cut -d' ' -f2 | xargs)" = \
	'root clone demo.sh test.sh follow.sh' ] || fail "not the five steps"
grep -q '^followed' "$tmp/log" || fail "the pages are not followed"
grep -q 'demo ran as process [0-9]$' "$tmp/log" || fail "demo.sh sees other processes"
bare 0 --order test-demo
[ "$(grep -o "^demo ran\|^1 passed" "$tmp/log" | head -n 1)" = "1 passed" ] || fail "not in the order asked for"
bare 0 --demo-only
grep -q '1 passed' "$tmp/log" && fail "--demo-only runs test.sh"

printf '#!/bin/bash\nexit 3\n' >"$tmp/repo/usertools/demo.sh"
bare 0 --demo-only # not committed
commit 'a demo that fails'
bare 1

printf '#!/bin/bash\nexec 9<>/dev/ptmx\necho waiting\nread -r -t 50 -u 9\n' >"$tmp/repo/usertools/demo.sh"
commit 'a demo that takes long'
"$tmp/repo/devtools/bare.sh" >"$tmp/log" 2>&1 &
bare=$!
for _ in $(seq 100); do
	grep -q '^waiting' "$tmp/log" && break
	sleep 0.1
done
kill -TERM $bare
wait $bare
[ $? = 143 ] || fail "a signal ends it with another status"
grep -q '^waiting' "$tmp/log" || fail "the demo did not start"
[ -z "$(ls "$tmp/work")" ] || fail "a signal leaves $(ls "$tmp/work")"
[ -z "$(pgrep -f "unshare.*$tmp/work")" ] || fail "a signal leaves processes"
echo ok
