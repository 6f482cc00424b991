#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Wrap comment paragraphs that run past column 100, in place: wrap-comments.py FILE...

Only a paragraph with a line that is too long is touched: the lines next to each other that start
with the same prefix (" * ", "# ") and the same indentation. Pictures, lists and code lines, which
are indented further, stay as they are; a list item is wrapped with its own continuation lines.
"""
import re
import sys

LIMIT = 100
# Prefix (indentation and comment mark), then the mark of a list item or nothing, then text.
LINE = re.compile(r'^([ \t]*(?:\*|#|//) +)((?:- |[0-9]+\. )?)(\S.*)$')


def columns(text):
    return len(text.expandtabs(8))


def wrap(prefix, mark, words):
    lines, line = [], prefix + mark
    empty = True
    for word in words:
        if not empty and columns(line + ' ' + word) > LIMIT:
            lines.append(line)
            line, empty = prefix + ' ' * len(mark) + word, False
            continue
        line += word if empty else ' ' + word
        empty = False
    return lines + [line]


def paragraphs(lines):
    """Yields (first, end, prefix, mark): lines[first:end] is one paragraph of a comment."""
    i = 0
    while i < len(lines):
        m = LINE.match(lines[i])
        if not m:
            i += 1
            continue
        first, prefix, mark = i, m.group(1), m.group(2)
        inner = prefix + ' ' * len(mark)
        i += 1
        while i < len(lines):
            m = LINE.match(lines[i])
            if not m or m.group(1) != inner or m.group(2) or m.group(3)[0] in '@|+':
                break
            i += 1
        yield first, i, prefix, mark


def main():
    for name in sys.argv[1:]:
        with open(name, encoding='utf-8') as f:
            old = f.read().split('\n')
        new, done = [], 0
        for first, end, prefix, mark in paragraphs(old):
            new += old[done:first]
            part = old[first:end]
            done = end
            # A picture or a directive: leave it to its author.
            drawn = any(re.search(r'\S {3,}\S|[<-]-->|\*/|^\s*#\s*(include|define|if|el|end)', x)
                        for x in part)
            if drawn or all(columns(x) <= LIMIT for x in part):
                new += part
                continue
            words = ' '.join(LINE.match(x).group(3) for x in part).split()
            new += wrap(prefix, mark, words)
        new += old[done:]
        if new != old:
            with open(name, 'w', encoding='utf-8') as f:
                f.write('\n'.join(new))
            print('wrapped', name)


main()
