#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Manual pages: of a program from its --help, of a library from the opening comments of its headers.

    manual.py program OUT NAME "what it is" VERSION COMMAND [PART...]
    manual.py library OUT NAME "what it is" VERSION HEADER...
"""
import os
import re
import subprocess
import sys
import textwrap
import time


def escape(text):
    for plain, name in ('\\', 'e'), ('-', '-'), ('"', '(dq'), ("'", '(aq'), ('`', '(ga'):
        text = text.replace(plain, '\\' + name)
    return '\\&' + text if text.startswith('.') else text


def verbatim(lines):
    return ['.PP', '.nf', *(escape(line) for line in lines), '.fi']


def options(lines):
    """Entries '  --name VALUE  text', the text over several lines."""
    out = []
    for line in lines:
        entry = re.match(r' {1,4}(-\S*(?: \S+)*)(?: {2,}(\S.*))?$', line)
        if entry:
            out += ['.TP', '\\fB' + escape(entry[1]) + '\\fR'] + ([escape(entry[2])] if entry[2] else [])
        else:
            out.append(escape(line.strip()))
    return out


def block(lines):
    """One block between blank lines: options, a table or a drawing as it stands, or prose."""
    for i, line in enumerate(lines):
        if re.match(r' {1,4}-', line):
            return (block(lines[:i]) if i else []) + options(lines[i:])
    if any(re.search(r'^\s|\S {2,}\S', line) for line in lines):
        start = next(i for i, line in enumerate(lines) if re.search(r'^\s|\S {2,}\S', line))
        return (block(lines[:start]) if start else []) + verbatim(lines[start:])
    return ['.PP', *(escape(line) for line in lines)]


def blocks(text):
    return [line for part in re.split(r'\n\s*\n', text.strip('\n')) if part for line in block(part.split('\n'))]


def synopsis(text, name):
    """The lines that show how it is called, and the rest of the help."""
    lines = text.rstrip().split('\n')
    call = re.compile(r'(usage: |\s*)(mpirun .*)?' + re.escape(name) + r' ')
    first = next(i for i, line in enumerate(lines) if call.match(line))
    last = first + 1
    while last < len(lines) and lines[last].strip() and (lines[last].startswith('       ') or call.match(lines[last])):
        last += 1
    calls = textwrap.dedent('\n'.join(re.sub(r'^usage:', '      ', line) for line in lines[first:last]))
    return verbatim(calls.split('\n'))[1:], '\n'.join(lines[:first] + lines[last:])


def program(name, command, *parts):
    called = re.sub('^crpc-(?!diff|plot|shm|lincheck)', '', name)

    def help_of(*args):
        text = subprocess.run([command, *args, '--help'], capture_output=True, text=True, timeout=60, check=True).stdout
        return re.sub(r'(?<![-\w/])' + re.escape(called) + r'(?![-\w])', name, text)

    calls, rest = synopsis(help_of(), name)
    out = ['.SH SYNOPSIS', *calls, '.SH DESCRIPTION', *blocks(rest)]
    for part in parts:
        calls, rest = synopsis(help_of(part), name)
        out += [f'.SH {part.upper()}', *calls, *blocks(rest)]
    return out


def library(name, *headers):
    out = ['.SH SYNOPSIS', '.nf']
    out += [f'\\fB#include <{os.path.basename(header)}>\\fR' for header in headers]
    out += ['', escape(f'cc ... $(pkg-config --cflags --libs {name})'), '.fi', '.SH DESCRIPTION']
    for header in headers:
        with open(header, encoding='utf-8') as f:
            comment = re.search(r'/\*\*\n \* @file\n(.*?)\n \*/', f.read(), re.S)
        if comment:
            out += [f'.SS {escape(os.path.basename(header))}'] if len(headers) > 1 else []
            out += blocks(re.sub(r'^ \* ?', '', comment[1], flags=re.M))
    return out + ['.PP', 'Every function is described in its header.']


def main(kind, path, name, what, version, *args):
    page = program(name, *args) if kind == 'program' else library(name, *args)
    section = 1 if kind == 'program' else 3
    date = time.strftime('%Y-%m-%d', time.gmtime(int(os.environ.get('SOURCE_DATE_EPOCH', time.time()))))
    head = [f'.TH {escape(name)} {section} "{date}" "copyrpc {version}" "copyrpc"',
            '.SH NAME', f'{escape(name)} \\- {escape(what)}']
    text = re.sub(r'(^\.S[HS] .*\n)\.PP\n', r'\1', '\n'.join(head + page) + '\n', flags=re.M)
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text)


main(*sys.argv[1:])
