#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What holds for every program and tool: -h, --help and --version print that and nothing else and end with 0,
also before and behind a "--"; tools that read or write files end with one line and status 2 where they cannot,
and where they are interrupted.
Arguments: source root, build root, version."""
import os
import signal
import subprocess
import sys
import tempfile
import time

EAL_PROGRAMS = ['ringbench', 'rpcbench', 'shmbench', 'xferbench', 'benchkv']
bad = 0


def check(what, good, detail=''):
    global bad
    if not good:
        bad += 1
        print(f'{what}: {detail}')


def run(*cmd, **more):
    return subprocess.run(cmd, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL, **more)


def programs(source, build):
    """(name, path) of each."""
    for name in EAL_PROGRAMS + ['benchkv-client']:
        yield name, os.path.join(build, 'apps', 'benchkv' if name == 'benchkv-client' else name, name)
    tools = os.path.join(source, 'usertools')
    for name in sorted(os.listdir(tools)):
        path = os.path.join(tools, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            yield name, path


def answers(name, path, version):
    for option in ('-h', '--help', '--version'):
        forms = [[option]]
        if name in EAL_PROGRAMS:
            forms += [[option, '--'], ['--', option], ['--no-huge', '--', option], ['--no-huge', option]]
        for args in forms:
            r = run(path, *args)
            what = f'{name} {" ".join(args)}'
            check(what, r.returncode == 0 and r.stderr == '', f'status {r.returncode}, stderr {r.stderr!r}')
            check(what, 'EAL:' not in r.stdout, r.stdout)
            if option == '--version':
                check(what, r.stdout.startswith(f'{name} {version}') and r.stdout.count('\n') == 1, r.stdout)
            else:
                check(what, r.stdout.count('\n') > 2, r.stdout)
                check(what, name not in EAL_PROGRAMS or
                      (r.stdout.startswith('usage: ') and '--eal-help' in r.stdout.splitlines()[-1]), r.stdout)
    if name in EAL_PROGRAMS:
        r = run(path, '--eal-help')
        check(f'{name} --eal-help', r.returncode == 0 and 'EAL common options' in r.stdout, r.stdout + r.stderr)


def refuses(what, *cmd):
    r = run(*cmd)
    check(what, r.returncode == 2 and r.stderr.count('\n') == 1, f'status {r.returncode}, stderr {r.stderr!r}')


def result_tools(tools, tmp):
    text, empty = os.path.join(tmp, 'text'), os.path.join(tmp, 'empty')
    with open(text, 'w') as f:
        f.write('no JSON\n')
    open(empty, 'w').close()
    full = os.path.join(tmp, 'full.jsonl')
    with open(full, 'w') as f:
        f.write('{"app": "benchkv", "scope": "total", "bench": "lookup"}\n')
    for name in ('crpc-plot', 'crpc-diff'):
        tool = os.path.join(tools, name)
        refuses(f'{tool}: a file that is not there', tool, full, os.path.join(tmp, 'none'))
        refuses(f'{tool}: a folder in the place of a file', tool, full, tmp)
        refuses(f'{tool}: a file without JSON', tool, full, text)
        refuses(f'{tool}: a file without results', tool, full, empty)
        refuses(f'{tool}: no arguments', tool)
        refuses(f'{tool}: an option that does not exist', tool, '--frobnicate', full, full)
    refuses(f'{tool}: results of another version', tool, full, full)
    plot = os.path.join(tools, 'crpc-plot')
    refuses('crpc-plot: a folder that cannot be made', plot, '-o', '/proc/self/none', full)
    refuses('crpc-plot: results of another version', plot, full)


def interrupted(tools, tmp):
    """A fake benchkv that runs until the signal comes."""
    folder = os.path.join(tmp, 'apps/benchkv')
    os.makedirs(folder)
    fake = os.path.join(folder, 'benchkv')
    with open(fake, 'w') as f:
        f.write('#!/bin/sh\nexec sleep 20\n')
    os.chmod(fake, 0o755)
    p = subprocess.Popen([os.path.join(tools, 'benchkv-targets'), '--only', 'local', '--build', tmp],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    p.stdout.readline()
    time.sleep(0.2)
    os.killpg(p.pid, signal.SIGINT)
    _, err = p.communicate(timeout=30)
    check('benchkv-targets, interrupted', p.returncode == 2 and err.count('\n') == 1, f'{p.returncode}, {err!r}')


def main():
    source, build, version = sys.argv[1:]
    tools = os.path.join(source, 'usertools')
    os.environ['CRPC_BUILD'] = build
    for name, path in programs(source, build):
        if os.path.exists(path):
            answers(name, path, version)
    with tempfile.TemporaryDirectory() as tmp:
        result_tools(tools, tmp)
        interrupted(tools, tmp)
    print(f'{bad} failures')
    return bad != 0


if __name__ == '__main__':
    sys.exit(main())
