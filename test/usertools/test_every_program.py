#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What holds for every program and tool: -h, --help and --version print that and nothing else and end with 0,
also before and behind a "--"; each option has one name, one name of its value and a text in all of them, within
80 columns; a name of version 0.1 is refused with that of today; tools that read or write files end with one line
and status 2 where they cannot, and where they are interrupted.
Arguments: source root, build root, version."""
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile

from program_list import programs, run

# Other words for what the vocabulary has (apps/common/app_opt.h).
SYNONYMS = re.compile(
    r'--(qd|queue-depth|in-?flight|open|msg-.*|message-.*|num-.*|n-.*|.*-(sizes|kb|mb|kib|mib|secs?)|check|verify-.*|'
    r'verification|validate|repeats|repetitions|rounds|runs|passes|iterations|duration|time|transports|protocol|'
    r'backends|dev|hca|output|output-.*|jsonl?-.*|random-seed|profile|'
    r'batch|batch-size|connections|folder|directory)$')
VALUES = {'N', 'BYTES', 'S', 'MS', 'US', 'R', 'X', 'OPS', 'PCT', 'NAME', 'NAMES', 'LIST', 'TEXT', 'UNIT', 'SLOT',
          'STATE', 'AXES', 'OCTAL', 'FILE', 'DIR', 'PATH', 'KEY', 'VALUE', ''}
bad = 0


def check(what, good, detail=''):
    global bad
    if not good:
        bad += 1
        print(f'{what}: {detail}')


def answers(p, version):
    for option in ('-h', '--help', '--version'):
        forms = [[option]]
        if p.eal:
            forms += [[option, '--'], ['--', option], ['--no-huge', '--', option], ['--no-huge', option]]
        for args in forms:
            r = run(p.path, *args)
            what = f'{p.name} {" ".join(args)}'
            check(what, r.returncode == 0 and r.stderr == '', f'status {r.returncode}, stderr {r.stderr!r}')
            check(what, 'EAL:' not in r.stdout, r.stdout)
            if option == '--version':
                check(what, r.stdout.startswith(f'{p.name} {version}') and r.stdout.count('\n') == 1, r.stdout)
            else:
                check(what, r.stdout.count('\n') > 2, r.stdout)
                check(what, not p.eal or
                      (r.stdout.startswith('usage: ') and '--eal-help' in r.stdout.splitlines()[-1]), r.stdout)
    if p.eal:
        r = run(p.path, '--eal-help')
        check(f'{p.name} --eal-help', r.returncode == 0 and 'EAL common options' in r.stdout, r.stdout + r.stderr)


def vocabulary(every):
    """One name for one thing, and one name for its value, in all help texts."""
    known = {}
    for p in every:
        for part in p.parts:
            what = f'{p.name} {part}'.rstrip()
            wide = [line for line in p.help_of(part).splitlines() if len(line) > 80]
            check(what, not wide, f'wider than 80 columns: {wide[:1]}')
            options = p.options(part)
            listed = set(re.findall(r'^  (?:-\w, )?(--?[a-z0-9-]+)', p.help_of(part), re.M))
            check(what, options or not listed, 'a help without options')
            check(what, p.name == 'shmbench' or not p.eal or listed == set(options),
                  f'not understood: {listed ^ set(options)}')
            for name, (value, text) in options.items():
                check(f'{what} {name}', text, 'no text')
                check(f'{what} {name}', not SYNONYMS.match(name), 'another word for one of the vocabulary')
                check(f'{what} {name}', value in VALUES, f'{value}: an unusual name of a value')
                # Benchmarks append to a file, tools print; kvd has a file of hosts, simkv a number, and models of
                # cards.
                if name not in ('--json', '--hosts') and known.setdefault(name, (what, value))[1] != value:
                    check(f'{what} {name} {value}', False, f'{known[name][0]} has {name} {known[name][1]}')
    for name in known:
        for other in (name + 's', name + 'es', name.replace('-', ''), name + '-size'):
            # --rank is a number of one, --ranks how many there are.
            check(name, other in (name, '--ranks', '--hosts') or other not in known,
                  f'{other} is so near that one of them is wrong')


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
        f.write('{"app": "benchkv", "record": "total", "bench": "lookup"}\n')
    for name in ('crpc-plot', 'crpc-diff'):
        tool = os.path.join(tools, name)
        refuses(f'{tool}: a file that is not there', tool, full, os.path.join(tmp, 'none'))
        refuses(f'{tool}: a folder in the place of a file', tool, full, tmp)
        refuses(f'{tool}: a file without JSON', tool, full, text)
        refuses(f'{tool}: a file without results', tool, full, empty)
    refuses(f'{tool}: results of another version', tool, full, full)
    plot = os.path.join(tools, 'crpc-plot')
    refuses('crpc-plot: a folder that cannot be made', plot, '-o', '/proc/self/none', full)
    refuses('crpc-plot: results of another version', plot, full)


def calibration(source, tools):
    """The instructions by which crpc-calibrate computes are those that are counted."""
    sys.path.append(tools)
    tool = runpy.run_path(os.path.join(tools, 'crpc-calibrate'))
    for file, names in (('copyrpc_instructions', {'CALL_OF_16': 'calls_8x16', 'CALL_OF_1': 'calls_1x1'}),
                        ('instructions_kv', {'OPERATION': 'kv_local', 'OPERATION_DEPTH_4': 'kv_local_depth_4',
                                             'TWO_RANKS_DEPTH_4': 'kv_two_ranks_depth_4', 'IDLE': 'kv_idle',
                                             'IDLE_TWO_RANKS': 'kv_idle_two_ranks'})):
        with open(os.path.join(source, 'test/golden', file + '.json')) as f:
            golden = json.load(f)['per_message']
        for name, counted in names.items():
            check(f'crpc-calibrate: {name} is {counted}', abs(tool[name] / golden[counted] - 1) < 0.1, golden[counted])


def report(tools, build, tmp):
    """Pages come from rows; what they quote must be there; two runs of a model are one."""
    tool, out = os.path.join(tools, 'crpc-report'), os.path.join(tmp, 'report')

    def ask(*args):
        r = run(tool, '--out', out, '--only', 'sim_clients', *args)
        return r.returncode, r.stdout + r.stderr
    status, text = ask('--quick', '--build', build)
    check('crpc-report: an experiment', status == 0, text)
    rows = os.path.join(out, 'sim_clients.jsonl')
    with open(rows) as f:
        once = f.read()
    os.unlink(rows)
    status, text = ask('--quick', '--build', build)
    with open(rows) as f:
        check('crpc-report: one seed twice', status == 0 and f.read() == once, text)
    check('crpc-report --stale', ask('--stale')[0] == 0, ask('--stale'))
    with open(os.path.join(out, 'sim_clients.md'), 'a') as f:
        f.write('a typed figure\n')
    check('crpc-report --stale: a changed page', ask('--stale')[0] == 1, ask('--stale'))
    ask('--pages')
    with open(rows, 'a') as f:
        f.write(once.splitlines(True)[0])
    ask('--pages')
    status, text = ask('--stale')
    check('crpc-report --stale: a picture of other rows', status == (os.path.exists(rows[:-5] + 'svg')), text)
    # Three rounds are one case, the median of them.
    with open(rows, 'w') as f:
        for rate in (30, 10, 20):
            for line in once.splitlines():
                row = json.loads(line)
                row['rate'].update(median=rate, min=rate, max=rate)
                f.write(json.dumps(row) + '\n')
    status, text = ask('--pages')
    with open(os.path.join(out, 'sim_clients.md')) as f:
        page = f.read()
    check('crpc-report: rounds', status == 0 and page.count('| 20 (10 to 30) |') == 5 and 'makes 20 M ops/s' in page,
          page)
    with open(rows, 'w') as f:
        f.writelines(line for line in once.splitlines(True) if '"clients": 16' not in line)
    status, text = ask('--pages')
    with open(os.path.join(out, 'sim_clients.md')) as f:
        page = f.read()
    check('crpc-report: a figure without a row', status == 1 and 'no row has clients=16' in page, text + page)
    fails = run(tool, '--out', out, '--only', 'lookup,sim_serial', '--quick', '--build', build, '--cores', '0,4095')
    check('crpc-report: one fails, the others go on', fails.returncode == 1 and fails.stderr.count('\n') == 1 and
          'lookup' in fails.stderr and os.path.exists(os.path.join(out, 'sim_serial.md')), fails.stdout + fails.stderr)
    refuses('crpc-report: no such experiment', tool, '--only', 'none')
    refuses('crpc-report: no results', tool, '--pages', '--out', tmp)


def quoted(tools, tmp):
    """A page of other experiments' rows: what is computed is right, and what has no row is not answered."""
    source, out = os.path.join(os.path.dirname(tools), 'doc/results'), os.path.join(tmp, 'quoted')
    shutil.copytree(source, out, ignore=lambda _, names: [n for n in names if not n.endswith('.jsonl')])

    def page():
        r = run(os.path.join(tools, 'crpc-report'), '--pages', '--only', 'stack', '--out', out)
        with open(os.path.join(out, 'stack.md')) as f:
            return r, f.read()
    r, text = page()
    layers = [line.split(' | ') for line in text.splitlines() if line.startswith('| ') and 'ns each' not in line][1:]
    check('crpc-report: rows of other experiments', r.returncode == 0 and os.listdir(out).count('rings.md') == 0 and
          len(layers) == 6 and all(abs(float(c[3]) * float(c[4]) - 1000) < 20 for c in layers), text + r.stderr)
    os.unlink(os.path.join(out, 'flux.jsonl'))
    r, text = page()
    check('crpc-report: rows of other experiments that are not there', r.returncode == 1 and
          'Not answered here: flux: no row' in text, text + r.stderr)


def main():
    source, build, version = sys.argv[1:]
    tools = os.path.join(source, 'usertools')
    os.environ['CRPC_BUILD'] = build
    every = programs(source, build)
    for p in every:
        answers(p, version)
    vocabulary(every)
    with tempfile.TemporaryDirectory() as tmp:
        calibration(source, tools)
        result_tools(tools, tmp)
        report(tools, build, tmp)
        quoted(tools, tmp)
    print(f'{bad} failures')
    return bad != 0


if __name__ == '__main__':
    sys.exit(main())
