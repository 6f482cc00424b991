#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Wrap lines that run past column 100, in place: wrap-lines.py FILE...

Comments: only a paragraph with a line that is too long is touched: the lines next to each other
that start with the same prefix (" * ", "# ") and the same indentation. Pictures and code in
comments, which are indented further, stay as they are; a list item is wrapped with its own
continuation lines. A comment behind code that does not fit goes before the code. Code:
clang-format, where installed, lays out the statements that are too long and nothing else. Texts in
quotes are never broken.
"""
import re
import shutil
import subprocess
import sys

LIMIT = 100
# Prefix (indentation and comment mark), then the mark of a list item or nothing, then text.
OPENING = re.compile(r'^([ \t]*)((?:[^/"]|"[^"]*")*[^/ \t])?[ \t]*(/\*\*?<?) (\S.*)$')
QUOTED = re.compile(r'^[ \t]*"([^"\\]|\\.)*"[,;)]*$')
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
        alone = m.group(3) == '@file'
        i += 1
        while i < len(lines) and not alone:
            m = LINE.match(lines[i])
            if not m or m.group(1) != inner or m.group(2) or m.group(3)[0] in '@|+':
                break
            i += 1
        yield first, i, prefix, mark


def comment_block(indent, doc, text):
    """The text as one comment on lines of its own."""
    opening = '/**' if doc else '/*'
    if columns(indent + opening + ' ' + text + ' */') <= LIMIT:
        return [indent + opening + ' ' + text + ' */']
    return [indent + opening] + wrap(indent + ' * ', '', text.split()) + [indent + ' */']


def lift(lines):
    """A comment that starts on a line with text and does not fit goes on lines of its own."""
    out, i = [], 0
    while i < len(lines):
        m = OPENING.match(lines[i])
        end = i
        while m and end < len(lines) and not lines[end].rstrip().endswith('*/'):
            end += 1
        if not m or end - i > 12 or end == len(lines) or \
                all(columns(x) <= LIMIT for x in lines[i:end + 1]):
            out.append(lines[i])
            i += 1
            continue
        indent, code, opening, first = m.groups()
        text = ' '.join([first] + [x.strip().lstrip('*').strip() for x in lines[i + 1:end + 1]])
        out += comment_block(indent, opening.startswith('/**'), text.rstrip('/').rstrip('* '))
        if code:
            out.append(indent + code)
        i = end + 1
    return out


def layout_code(name):
    """Has clang-format lay out the lines of code that are still too long."""
    with open(name, encoding='utf-8') as f:
        lines = f.read().split('\n')
    long = [i for i, x in enumerate(lines, 1)
            if columns(x) > LIMIT and not QUOTED.match(x) and not x.lstrip().startswith(('*', '/'))]
    if long and shutil.which('clang-format'):
        subprocess.run(['clang-format', '-i', '-style=file', name] +
                       ['--lines=%d:%d' % (i, i) for i in long], check=True)
        print('laid out', name)


def main():
    for name in sys.argv[1:]:
        with open(name, encoding='utf-8') as f:
            before = f.read().split('\n')
        old = lift(before)
        new, done = [], 0
        for first, end, prefix, mark in paragraphs(old):
            new += old[done:first]
            part = old[first:end]
            done = end
            # A picture or a directive: leave it to its author.
            drawn = len(prefix) - len(prefix.rstrip()) > 3 or any(
                re.search(r'\S {3,}\S|[<-]-->|\*/', LINE.match(x).group(3)) or
                re.match(r'\s*#\s*(include|define|if|el|end)', x) for x in part)
            if drawn or all(columns(x) <= LIMIT for x in part):
                new += part
                continue
            words = ' '.join(LINE.match(x).group(3) for x in part).split()
            new += wrap(prefix, mark, words)
        new += old[done:]
        if new != before:
            with open(name, 'w', encoding='utf-8') as f:
                f.write('\n'.join(new))
            print('wrapped', name)
        if name.endswith(('.c', '.h')):
            layout_code(name)


main()
