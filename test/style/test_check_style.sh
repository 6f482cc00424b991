#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Proves that devtools/check-style.sh finds one example of every rule, and nothing in a good tree.
# Method: make a small tree in a temporary folder, put one offence in, look for its finding.
set -u

check=$1/devtools/check-style.sh
tree=$(mktemp -d) || exit 99
trap 'rm -rf "$tree"' EXIT
failures=0
cases=0

# A tree that keeps every rule; each case starts from it.
good_tree() {
	rm -rf "$tree"
	mkdir -p "$tree/lib/sample" "$tree/lib/ipc" "$tree/drivers/nic" "$tree/test/sample"
	cat >"$tree/lib/sample/crpc_sample.h" <<'EOF'
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_SAMPLE_H
#define CRPC_SAMPLE_H

/**
 * @file
 * A sample. Words in comments are free: printf(), exit(), volatile.
 */

int crpc_sample_get(const char *name);

#endif
EOF
	cat >"$tree/lib/sample/crpc_sample.c" <<'EOF'
/* SPDX-License-Identifier: BSD-3-Clause */
#include "crpc_sample.h"

/*
 * In comments and strings everything may stand:
 * abort(), rte_smp_mb(), memory_order_seq_cst.
 */
int
crpc_sample_get(const char *name)
{
	const char *text = "printf(\"volatile\")"; /* exit(1) */

	if (name == text)
		return 1; // malloc(1)
	return my_exit(1) + snprintf(0, 0, "%d", 1);
}
EOF
	printf '# SPDX-License-Identifier: BSD-3-Clause\nsources = []\n' \
		>"$tree/lib/sample/meson.build"
}

# expect RULE FILE: the checker fails and names the file with this rule.
expect() {
	local rule=$1 file=$2 out rc
	cases=$((cases + 1))
	out=$("$check" --root "$tree" 2>&1)
	rc=$?
	if [ $rc != 1 ] || ! grep -q "^$file:[0-9]*: $rule: " <<<"$out"; then
		echo "expected '$rule' for $file, got status $rc and:"
		echo "$out"
		failures=$((failures + 1))
	fi
	good_tree
}

source_file() {
	printf '/* SPDX-License-Identifier: BSD-3-Clause */\n%b\n' "$2" >"$tree/$1"
}

good_tree
if ! out=$("$check" --root "$tree" 2>&1); then
	echo "a good tree has findings:"
	echo "$out"
	failures=$((failures + 1))
fi
cases=$((cases + 1))

# Forbidden tokens, each in a folder where it does not belong.
while IFS='|' read -r file code; do
	source_file "$file" "void\nf(void)\n{\n\t$code\n}"
	expect "forbidden token" "$file"
done <<'EOF'
lib/sample/a.c|printf("x");
lib/sample/a.c|vprintf (f, ap);
drivers/nic/a.c|exit(1);
drivers/nic/a.c|abort();
lib/sample/a.c|rte_exit(1, "x");
lib/sample/a.c|fprintf(stderr, "x");
lib/sample/nic_wqe.c|p = malloc(4);
drivers/nic/nic_cqe.c|pthread_mutex_lock(\&m);
drivers/nic/nic_tx.c|usleep(1);
lib/sample/a.c|volatile int x;
lib/sample/a.c|rte_smp_wmb();
lib/sample/a.c|rte_mb();
lib/sample/a.c|rte_atomic32_inc(p);
lib/sample/a.c|__sync_synchronize();
lib/sample/a.c|__atomic_thread_fence(__ATOMIC_SEQ_CST);
lib/sample/a.c|atomic_thread_fence(x);
lib/sample/a.c|__atomic_load_n(p, 0);
lib/sample/a.c|y(memory_order_seq_cst);
drivers/nic/a.c|atomic_store(p, 1);
drivers/nic/a.c|atomic_load_explicit(p, memory_order_acquire);
lib/sample/a.c|strcpy(a, b);
lib/sample/a.c|x = rand();
lib/sample/a.c|"a /* b"; /* c */ exit(1);
EOF

while IFS='|' read -r file include; do
	source_file "$file" "#include $include"
	expect dependency "$file"
done <<'EOF'
lib/sample/a.c|<infiniband/verbs.h>
lib/ipc/a.c|<rte_eal.h>
lib/sample/a.c|"../ipc/x.h"
EOF

source_file lib/sample/a.c 'int x; \t'
expect "white space" lib/sample/a.c
source_file lib/sample/a.c 'int x;\r'
expect "white space" lib/sample/a.c
source_file lib/sample/a.c "/* $(printf '%0100d' 0) */"
expect "line length" lib/sample/a.c
source_file lib/sample/a.c "\t\t\t\t\t\t\t\t\t\t\t\t/* 0123456789 */"
expect "line length" lib/sample/a.c
source_file lib/sample/a.c '    int x;'
expect indentation lib/sample/a.c
source_file lib/sample/a.c '/* TODO: later */'
expect "open end" lib/sample/a.c
source_file lib/sample/a.c 'int f(void)\n{\n}'
expect "return type" lib/sample/a.c
source_file lib/sample/a.c "int\nf(void)\n{\n$(yes '\tx();\n' | head -71 | tr -d '\n')}"
expect "function length" lib/sample/a.c
source_file lib/sample/a.c "$(yes 'int x;\n' | head -801 | tr -d '\n')"
expect "file length" lib/sample/a.c
echo 'int x;' >"$tree/lib/sample/a.c"
expect licence lib/sample/a.c
source_file lib/sample/a.h '#ifndef B_H\n#define B_H\n#endif'
expect "header guard" lib/sample/a.h
source_file lib/sample/crpc_a.h '#ifndef CRPC_A_H\n#define CRPC_A_H\n#endif'
expect manual lib/sample/crpc_a.h
echo 'See /ho''me/someone/notes.' >"$tree/README.md"
expect "private reference" README.md
mkdir -p "$tree/apps/sample"
echo 'The device tells its rate.' >"$tree/apps/sample/README.md"
expect word apps/sample/README.md
rm -rf "$tree/apps"
printf 'See [it](lib/sample) and [that](lib/none.md).\n' >"$tree/README.md"
expect link README.md
printf '#!/bin/bash\n# SPDX-License-Identifier: BSD-3-Clause\nif\n' >"$tree/a.sh"
expect shell a.sh

# Symbols: a library that exports a name without the prefix.
mkdir -p "$tree/build/lib"
echo 'int stray(void); int stray(void) { return 0; } int crpc_fine(void) { return 0; }' |
	${CC:-cc} -xc -c -o "$tree/build/lib/a.o" - && ar rc "$tree/build/lib/libcrpc_a.a" \
	"$tree/build/lib/a.o"
out=$("$check" --root "$tree" --build "$tree/build" 2>&1)
cases=$((cases + 1))
if ! grep -q 'symbol: stray ' <<<"$out" || grep -q crpc_fine <<<"$out"; then
	echo "expected the symbol 'stray' and not 'crpc_fine', got:"
	echo "$out"
	failures=$((failures + 1))
fi

echo "$cases cases, $failures failures"
[ $failures = 0 ]
