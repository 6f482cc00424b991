#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Plants the faults of test/mutants/mutants.txt one at a time in a copy of HEAD, builds the contract
tests that each names, and runs them. Each of these tests has to fail. Prints what finds the fault.
With --chaos: the faults of protocol.txt, each of which simkv --chaos has to find; the table that is
printed has the seed and the CPU time that it took, a crash and a run without an end included.
Exit status: 0 each fault was found; 1 one was not, or it cannot be planted or built; 2 bad usage."""
import argparse
import os
import pathlib
import re
import resource
import shutil
import subprocess
import signal
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEST_SECONDS = 120
# simkv runs so many seeds at a time, which take a tenth of the CPU time that they get.
SEEDS = 100
SEEDS_SECONDS = 60


class Mutant:
    def __init__(self, name):
        self.name = name
        self.tests, self.fault = [], ''
        self.changes = []  # [folder, function, old text, new text]


class NotPlanted(Exception):
    pass


def mutants_read(path):
    mutants, place = [], None
    for line in path.read_text().splitlines():
        key, _, rest = line.strip().partition(' ')
        if not line or line.startswith('#') or key == 'shows:':
            continue
        if not line.startswith(' '):
            mutants.append(Mutant(line))
        elif key == 'fault:':
            mutants[-1].fault = rest
        elif key == 'tests:':
            mutants[-1].tests = rest.split()
        elif key == 'in:':
            place = rest.split()
        elif key == '-':
            mutants[-1].changes.append([*place, rest, ''])
        elif key == '+':
            mutants[-1].changes[-1][3] += rest + '\n'
        else:
            sys.exit(f'{path}: not understood: {line}')
    return mutants


def function_find(folder, name, changed):
    """The file of a function's definition, its text, and where that begins and ends. folder may be a file."""
    pattern = re.compile(rf'^{name}\([^;{{]*\)\n\{{.*?^\}}', re.M | re.S)
    found = [(path, text, match) for path in (sorted(folder.glob('*.[ch]')) or [folder])
             for text in [changed.get(path) or path.read_text()] for match in pattern.finditer(text)]
    if len(found) != 1:
        raise NotPlanted(f'{len(found)} functions {name} in {folder.name}')
    path, text, match = found[0]
    return path, text, match.start(), match.end()


def changes_of(mutant, tree):
    """What the files that it changes were, and what they become."""
    before, after = {}, {}
    for folder, name, old, new in mutant.changes:
        path, text, begin, end = function_find(tree / folder, name, after)
        pattern = r'\s+'.join(re.escape(word) for word in old.split())
        body, n = re.subn(pattern, lambda _: new.rstrip('\n'), text[begin:end])
        if n != 1:
            raise NotPlanted(f'{n} times in {name}: {old}')
        before.setdefault(path, path.read_text())
        after[path] = text[:begin] + body + text[end:]
    return before, after


def build(tree, targets, jobs):
    command = [tree / 'devtools/build.sh', '--jobs', str(jobs)]
    for target in targets:
        command += ['--target', target]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def first_failure(tree, test):
    """The first clause that fails, hangs or crashes; None: all hold."""
    run = subprocess.Popen(['timeout', str(TEST_SECONDS), tree / f'build/test/contract/contract_{test}'],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    clause = 'nothing'
    for line in run.stdout:
        if '[  FAILED  ]' in line:
            run.terminate()
            run.wait()
            return line.split()[-1]
        if '[ RUN' in line:
            clause = line.split()[-1]
    return None if run.wait() == 0 else f'{clause} (exit status {run.returncode})'


def contract(mutant, tree):
    """Whether each test of the mutant finds it, and what does."""
    found = {test: first_failure(tree, test) for test in mutant.tests}
    return None not in found.values(), ', '.join(
        f'{test}: {clause or "SURVIVES"}' for test, clause in found.items())


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def chaos(tree, minutes):
    """Whether a seed finds what is wrong with simkv, and a row of the table: seed, CPU time, what was found."""
    begin, first = cpu_seconds(), 1
    limit = (resource.RLIMIT_CPU, (SEEDS_SECONDS, SEEDS_SECONDS + 5))
    while cpu_seconds() - begin < minutes * 60:
        run = subprocess.run([tree / 'build/apps/simkv/simkv', '--chaos', str(first), '--draws', str(SEEDS)],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                             preexec_fn=lambda: resource.setrlimit(*limit))
        if run.returncode != 0:
            said = re.search(r'simkv: seed (\d+): (.*)', run.stderr)
            if said is None and run.returncode > 0:
                return False, f'- | - | **status {run.returncode}**: {run.stderr.strip()}'
            seed, what = said.groups() if said else (
                f'{first} to {first + SEEDS - 1}',
                'it has no end' if run.returncode == -signal.SIGXCPU else f'it ends by signal {-run.returncode}')
            return True, f'{seed} | {cpu_seconds() - begin:.1f} | {what}'
        first += SEEDS
    return False, f'none to {first - 1} | {cpu_seconds() - begin:.0f} | **not found**'


def check(mutant, tree, jobs, targets, judge):
    """What judge() says of a program with the mutant in it."""
    before = {}
    try:
        before, after = changes_of(mutant, tree)
        for path, text in after.items():
            path.write_text(text)
        built = build(tree, targets, jobs)
        return (False, 'it does not build\n' + built.stdout[-2000:]) if built.returncode != 0 else judge()
    except NotPlanted as e:
        return False, str(e)
    finally:
        for path, text in before.items():
            path.write_text(text)


def targets_of(tests, chaos_too):
    return ['apps/simkv/simkv'] if chaos_too else [f'test/contract/contract_{test}' for test in tests]


def all_read(folder):
    """The faults of all files. Two with the same name are bad usage."""
    mutants = [m for path in sorted(folder.glob('*.txt')) for m in mutants_read(path)]
    names = [m.name for m in mutants]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        sys.exit(f'{folder}: names that are not unique: ' + ' '.join(twice))
    return mutants


def fit(mutants):
    """Whether each can be planted; changes nothing."""
    bad = 0
    for m in mutants:
        try:
            changes_of(m, ROOT)
        except NotPlanted as e:
            print(f'{m.name}: {e}')
            bad += 1
    print(f'mutants.sh: {len(mutants)} faults, {bad} do not fit')
    return bad != 0


def main():
    parser = argparse.ArgumentParser(prog='devtools/mutants.sh', description=__doc__)
    parser.add_argument('--chaos', action='store_true', help='plant the faults of the protocol in simkv')
    parser.add_argument('--minutes', type=float, default=10, help='chaos: of CPU time for each (default: 10)')
    parser.add_argument('--dir', help='where the copy lies and stays (default: a new folder, removed at the end)')
    parser.add_argument('--fit', action='store_true',
                        help='only see that each fault of test/mutants can be planted in the working tree')
    parser.add_argument('--jobs', type=int, default=os.cpu_count(), help='parallel jobs (default: one per core)')
    parser.add_argument('mutants', nargs='*', metavar='MUTANT', help='names (default: all)')
    args = parser.parse_args()
    folder = ROOT / 'test/mutants'
    mutants = all_read(folder) if args.fit else \
        mutants_read(folder / ('protocol.txt' if args.chaos else 'mutants.txt'))
    if unknown := set(args.mutants) - {m.name for m in mutants}:
        parser.error('no such mutant: ' + ' '.join(unknown))
    mutants = [m for m in mutants if not args.mutants or m.name in args.mutants]
    if args.fit:
        return fit(mutants)
    with tempfile.TemporaryDirectory() as tmp:
        tree = pathlib.Path(args.dir or tmp).resolve() / 'tree'
        tree.mkdir(parents=True, exist_ok=True)
        for old in tree.iterdir():  # all but what was built
            if old.name != 'build':
                shutil.rmtree(old) if old.is_dir() else old.unlink()
        pack = ['git', '-C', ROOT, 'archive', 'HEAD'] if (ROOT / '.git').exists() else \
            ['tar', '-c', '-C', ROOT, '--exclude=./build*', '.']
        archive = subprocess.run(pack, stdout=subprocess.PIPE, check=True)
        subprocess.run(['tar', '-x', '-m', '-C', tree], input=archive.stdout, check=True)
        return run_all(mutants, tree, args)


def run_all(mutants, tree, args):
    tests = sorted({test for m in mutants for test in m.tests})
    head = build(tree, targets_of(tests, args.chaos), args.jobs)
    if head.returncode != 0:
        sys.exit(head.stdout[-2000:] + 'mutants.sh: HEAD does not build')
    for test in tests:
        if failure := first_failure(tree, test):
            sys.exit(f'mutants.sh: HEAD itself fails: {test}: {failure}')
    if args.chaos:
        found, text = chaos(tree, 0.1)
        if found or 'status' in text:
            sys.exit(f'mutants.sh: HEAD itself fails: {text}')
        print('| fault | seed | CPU s | what it shows |\n| --- | --- | --- | --- |')
    bad = 0
    for m in mutants:
        found, text = check(m, tree, args.jobs, targets_of(m.tests, args.chaos),
                            lambda m=m: chaos(tree, args.minutes) if args.chaos else contract(m, tree))
        bad += not found
        print(f'| {m.name}: {m.fault} | {text} |' if args.chaos else f'{m.name:<40} {text}', flush=True)
    return bad != 0


if __name__ == '__main__':
    sys.exit(main())
