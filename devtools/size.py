#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Print how large the tree is, beside an earlier commit.

Counted are lines that are neither blank nor comment, in every language, of C after formatting with
the tree's .clang-format, so that neither style nor comments change the figure. Moved lines count
where they land. Data (corpora, golden bytes, JSON) is not counted.
"""
import argparse
import concurrent.futures
import os
import re
import subprocess
import sys

AREAS = ('lib', 'drivers', 'apps', 'usertools', 'test', 'devtools')
PROGRAM = ('lib', 'drivers', 'apps', 'usertools')
C_ENDINGS = ('.c', '.h', '.cu', '.cc', '.cpp', '.hpp')
OTHER_ENDINGS = ('.sh', '.py', '.awk', '.gp', '.build', '.map', '.service')
LONG_FUNCTION = 50
LONG_FILE = 600


def git(*words, data=None):
    if not os.path.exists('.git'):
        sys.exit('size.sh: this tree has no .git, and the size is compared with an earlier commit: run it in a clone')
    return subprocess.run(('git',) + words, input=data, stdout=subprocess.PIPE, check=True).stdout


def language(name, text):
    """'c', 'hash' (comments begin with #) or None (not counted)."""
    ending = os.path.splitext(name)[1]
    if ending in C_ENDINGS:
        return 'c'
    if ending in OTHER_ENDINGS or os.path.basename(name) == 'meson_options.txt':
        return 'hash'
    return 'hash' if not ending and text.startswith('#!') else None


def strip_c(text):
    """The text without comments; strings stay as they are."""
    pattern = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/'

    def keep(match):
        word = match.group(0)
        return word if word[0] in '"\'' else '\n' * word.count('\n')
    return re.sub(pattern, keep, text, flags=re.S)


def long_functions(lines):
    """Function bodies of more than LONG_FUNCTION lines; formatted code opens them in column 0."""
    count, start = 0, None
    for number, line in enumerate(lines):
        if line.startswith('{'):
            start = number
        elif line.startswith('}') and start is not None:
            count += number - start - 1 > LONG_FUNCTION
            start = None
    return count


def measure(name, text, style):
    kind = language(name, text)
    if kind is None:
        return None
    functions, names = 0, set()
    if kind == 'c':
        text = subprocess.run(('clang-format', '--style=' + style, '--assume-filename=' + name),
                              input=text, stdout=subprocess.PIPE, check=True, text=True).stdout
        functions = long_functions(text.split('\n'))
        lines = [line for line in strip_c(text).split('\n') if line.strip()]
        if re.search(r'/crpc_\w+\.h$', name):
            names = set(re.findall(r'\b(crpc_\w+)\(', '\n'.join(lines)))
    else:
        lines = [line for line in text.split('\n')
                 if line.strip() and not line.lstrip().startswith('#')]
    return name.split('/')[0], len(lines), functions, len(lines) > LONG_FILE, names


def read_tree(commit):
    """Name and text of each file: of a commit, or of the work tree where commit is None."""
    if commit is None:
        names = git('ls-files', '-z', *AREAS).decode().split('\0')
        for name in names:
            if name and os.path.isfile(name) and not os.path.islink(name):
                with open(name, encoding='utf-8', errors='replace') as file:
                    yield name, file.read()
        return
    names = git('ls-tree', '-r', '-z', '--name-only', commit, *AREAS).decode().split('\0')
    for name in names:
        if name:
            yield name, git('show', commit + ':' + name).decode(errors='replace')


def size(commit, style):
    """area: [lines, long functions, long files, exported names]"""
    table = {area: [0, 0, 0, set()] for area in AREAS}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(measure, name, text, style) for name, text in read_tree(commit)]
        for job in jobs:
            row = job.result()
            if row:
                area, lines, functions, long_file, names = row
                table[area][0] += lines
                table[area][1] += functions
                table[area][2] += long_file
                table[area][3] |= names
    return {area: row[:3] + [len(row[3])] for area, row in table.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--base', default='2b2a140', metavar='COMMIT',
                        help='the earlier commit (default %(default)s)')
    parser.add_argument('--commit', metavar='COMMIT',
                        help='measure this commit instead of the files as they are')
    args = parser.parse_args()
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
    style = 'file:' + os.path.abspath('.clang-format')
    try:
        now, base = size(args.commit, style), size(args.base, style)
    except FileNotFoundError as error:
        sys.exit('size: %s is not installed; run devtools/packages.sh test' % error.filename)
    except subprocess.CalledProcessError as error:
        sys.exit('size: "%s" failed with status %d' %
                 (' '.join(error.cmd), error.returncode))
    heads = ('lines', 'functions > %d' % LONG_FUNCTION, 'files > %d' % LONG_FILE, 'names exported')
    print('%-22s' % '' + ''.join('%24s' % head for head in heads))
    rows = [(area, now[area], base[area]) for area in AREAS]
    rows.insert(len(PROGRAM), ('program',) + tuple(
        [sum(column) for column in zip(*(tree[area] for area in PROGRAM))]
        for tree in (now, base)))
    for label, new, old in rows:
        cells = ['%d (%d, %+.1f %%)' % (n, o, 100.0 * (n - o) / o if o else 0)
                 for n, o in zip(new, old)]
        print('%-22s' % label + ''.join('%24s' % cell for cell in cells))
    print('now (%s, change)' % args.base)


if __name__ == '__main__':
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
