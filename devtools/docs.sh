#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# API reference from the comments of the public headers, as HTML in build/doc/html. Fails on a
# public function without a comment, a parameter that is missing or named wrongly, a broken link.
# Members and macros whose name says all need no comment; names with __crpc_ are internal.
set -u

cd "$(dirname "$0")/.." || exit 1
out=${1:-build/doc}
if ! command -v doxygen >/dev/null; then
	echo "docs.sh: doxygen is not installed; run devtools/packages.sh docs" >&2
	exit 1
fi
headers=(config/crpc_config.h)
for header in lib/*/crpc_*.h drivers/paper_nic/crpc_paper_nic.h drivers/soft_mlx5/soft_mlx5.h; do
	case $header in
	*_pvt.h | *_private.h) ;;
	*) [ -f "$header" ] && headers+=("$header") ;;
	esac
done
mkdir -p "$out" || exit 1
{
	cat doc/Doxyfile
	echo "PROJECT_NUMBER = $(cat VERSION)"
	echo "INPUT = ${headers[*]}"
	echo "OUTPUT_DIRECTORY = $out"
	echo "WARN_LOGFILE = $out/warnings"
} | doxygen - || { cat "$out/warnings"; exit 1; }
obvious='(variable|macro definition|enumeration value|typedef)\) of .* is not documented'
missing=$(grep -vE "$obvious|Member __crpc_|^ " "$out/warnings")
if [ -n "$missing" ]; then
	sed "s,^$PWD/,," <<<"$missing"
	echo "docs.sh: complete these comments" >&2
	exit 1
fi
echo "docs: ${#headers[@]} headers documented in $out/html/index.html"
