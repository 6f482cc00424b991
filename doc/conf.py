# SPDX-License-Identifier: BSD-3-Clause
"""The site: README, guides, formats and release notes as they stand in the tree, and the API reference.

devtools/docs.sh calls Sphinx with the tree's root as the source folder, so that links between pages
are the same here, in a checkout, and on a forge.
"""
import os
import re

root = os.path.abspath("..")
project = "copyrpc"
author = "the authors in MAINTAINERS"
with open(os.path.join(root, "VERSION"), encoding="utf-8") as version_file:
    release = version_file.read().strip()

extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["[A-Z]*.md", "doc/**.md", "apps/*/README.md", "test/fuzz/README.md"]
exclude_patterns = ["build*"]
myst_heading_anchors = 4
# Files that are no pages (programs, headers, scripts) are linked in a checkout alone.
suppress_warnings = ["myst.xref_missing_file", "misc.highlighting_failure"]
highlight_language = "none"
html_theme = "furo"
html_title = f"copyrpc {release}"
html_show_sphinx = False
html_show_copyright = False


def contents(app, docname, source):
    """Make the navigation of the links of doc/guides/index.md: a caption, then a list."""
    if docname != root_doc:
        return
    with open(os.path.join(root, "doc/guides/index.md"), encoding="utf-8") as f:
        lines = f.read().split("\n")
    tree = []
    for line in lines:
        caption = re.match(r"(\w[\w ]*\w)(?: \(.*\))?:$", line)
        if caption:
            tree += ["```", ""] * bool(tree) + ["```{toctree}", ":hidden:", f":caption: {caption[1]}", ""]
        elif line.startswith("- "):
            tree += [os.path.normpath(os.path.join("doc/guides", link))[:-3]
                     for link in re.findall(r"\]\(([^)#]+\.md)", line)]
    tree += ["doc/guides/index", "```", "", '<p><a href="api/index.html">API reference</a></p>', ""]
    source[0] += "\n" + "\n".join(tree)


def setup(app):
    app.connect("source-read", contents)
