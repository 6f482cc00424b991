#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The documentation as HTML: the site in build/doc/site, made of the tree's Markdown by Sphinx, with the
# API reference, made of the public headers by Doxygen, in its folder api. Fails on
# - a public function without a comment, a parameter that is missing or named wrongly (members and
#   macros whose name says all need no comment; names with __crpc_ are internal);
# - a link to a file or a heading that is not there, a page that nothing links, a library or program
#   without a page;
# - a picture that is not what doc/pictures/draw.py draws, a page of results or a quoted figure that is
#   not what the rows of doc/results give, a page of programs on soft_mlx5 that is not what
#   devtools/conformance.py found;
# - a program in README.md, kv.md or tutorial.md that no example has.
set -u

cd "$(dirname "$0")/.." || exit 1
out=${1:-build/doc}
python=/usr/bin/python3 # for which Debian's packages are
if ! command -v doxygen >/dev/null || ! $python -c "import sphinx, myst_parser, furo" 2>/dev/null; then
	echo "docs.sh: needs doxygen, sphinx, myst_parser and furo; run devtools/packages.sh docs" >&2
	exit 1
fi
headers=(config/crpc_config.h)
for header in lib/*/crpc_*.h drivers/paper_nic/crpc_paper_nic.h drivers/soft_mlx5/soft_mlx5.h; do
	case $header in
	*_pvt.h | *_private.h) ;;
	*) [ -f "$header" ] && headers+=("$header") ;;
	esac
done
doc/pictures/draw.py --check && usertools/crpc-report --stale && devtools/conformance.py --check || exit 1
$python - README.md doc/guides/{kv,tutorial,python}.md doc/examples/*.{c,h,py} <<'EOF' || exit 1
import glob, os, re, sys
readme, kv, tutorial, python, *examples = [open(name, encoding="utf-8").read() for name in sys.argv[1:]]
for code in re.findall(r"^```(?:c|python)\n(.*?)^```$", readme + kv + tutorial + python, re.M | re.S):
    if not any(code in example for example in examples):
        sys.exit("docs.sh: a page has a program that no file of doc/examples has:\n" + code)
missing = 0
for page in set(glob.glob("**/*.md", recursive=True)) - set(glob.glob("build*/**", recursive=True)):
    for link in re.findall(r"\]\(([^)#\s]+)", open(page, encoding="utf-8").read()):
        if "://" not in link and not os.path.exists(os.path.join(os.path.dirname(page), link)):
            print(f"docs.sh: {page}: there is no {link}", file=sys.stderr)
            missing = 1
for part in os.listdir("lib"):
    # The contract, and what all use, stand in architecture.md; parts for EAL and of tensor beside their library.
    name = {"common": "architecture", "rpc": "architecture", "mem_eal": "mem", "tensor_bulk": "tensor",
            "tensor_ipc": "tensor"}.get(part, part)
    if os.path.isdir("lib/" + part) and not os.path.exists(f"doc/guides/{name}.md"):
        print(f"docs.sh: lib/{part} has no page doc/guides/{name}.md", file=sys.stderr)
        missing = 1
for app in glob.glob("apps/*/meson.build"):
    name = os.path.basename(os.path.dirname(app))
    if name != "common" and not os.path.exists(f"apps/{name}/README.md"):
        print(f"docs.sh: apps/{name} has no README.md", file=sys.stderr)
        missing = 1
sys.exit(missing)
EOF
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
$python -m sphinx -q -W --keep-going -c doc -d "$out/trees" . "$out/site" || exit 1
cp "$out/site/README.html" "$out/site/index.html" || exit 1
rm -rf "$out/site/api" && cp -r "$out/html" "$out/site/api" || exit 1
pages=$(find "$out/site" -name '*.html' -not -path '*/api/*' | wc -l)
echo "docs: ${#headers[@]} headers and $pages pages in $out/site/index.html"
