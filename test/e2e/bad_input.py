#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Proves that every program and tool refuses what it cannot take: status 2, nothing on stdout, exactly one line on
stderr that names the option or the value, in bounded time, nothing left behind. Most cases are made from the help
of each: an unknown option, and for each option no value, an empty one, no number, a number below, above and far
beyond its range, a choice that does not exist, a file that cannot be written. What depends on several options, on
the machine or on another process stands in a list.

Arguments: source root, build root, libsoft_mlx5.so or "none".
"""
import concurrent.futures
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

source, build, library = sys.argv[1:]
sys.path.insert(0, os.path.join(source, 'test', 'usertools'))
from program_list import programs  # noqa: E402

NUMBERS = ('N', 'BYTES', 'S', 'MS', 'US', 'R', 'X', 'OPS', 'PCT')
UNITS = {'': 1, 'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30}
MPI_ENV = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}
NET = f'test.bad_input.{os.getpid()}'
FIRST = str(min(os.sched_getaffinity(0)))
# Program, part, arguments, what the line says.
RELATIONS = [
    ('ringbench', '', '--slots 12', 'not a power of two'),
    ('ringbench', '', '--slots 1024 --depth 1024', 'not below the --slots 1024'),
    ('ringbench', '', '--size 12', '--size 12'),
    ('ringbench', '', 'left', "unknown option 'left'"),
    ('rpcbench', 'ipc', '--size 12', '--size 12 is not a multiple of 8'),
    ('rpcbench', 'ipc', '--clients 1,x', "'x' is not a whole number"),
    ('rpcbench', 'ipc', '--connected 4 --active 5', 'more than --connected 4'),
    ('rpcbench', 'ipc', '--clients ' + ','.join(map(str, range(1, 18))), 'more than 16'),
    ('rpcbench', 'net', '--size 12', 'not a multiple of 8'),
    ('rpcbench', 'net', '--ring 5000', 'not a power of two'),
    ('rpcbench', 'tensor', '--size 6', 'not a multiple of 4'),
    ('rpcbench', 'tensor', '--clients 2', '--clients'),
    ('rpcbench', '', '', 'no layer was given'),
    ('rpcbench', '', 'icp', "layer 'icp' is unknown; give one of: ipc"),
    ('shmbench', '', '', 'no benchmark'),
    ('shmbench', '', 'frobnicate', "'frobnicate' is no benchmark"),
    ('shmbench', 'lookup', '--huge', '--huge'),
    ('shmbench', 'transfer', '--huge=yes', '--huge'),
    ('xferbench', '', '--chunk 5000', 'not a power of two'),
    ('benchkv', '', 'clients', 'clients'),
    ('benchkv', '', '-c 3', '-c'),
    ('benchkv', '', '--value-size 8B', '--value-size'),
    ('benchkv', '', '--value-size 8-2M', '--value-size'),
    ('benchkv', '', '--key-size 7', '--key-size'),
    ('benchkv', '', '--key-size 8-64', '--key-size'),
    ('benchkv', '', '--read-ratio 0.6 --delete-ratio 0.6', '--delete-ratio'),
    ('benchkv', '', '--verify --keys 8M --clients 512', '--verify'),
    ('benchkv', '', '--attach no_such_daemon', '--attach'),
    ('benchkv-client', '', '--attach no_such_daemon', 'no_such_daemon'),
    ('benchkv', '', '--sweep nonsense', '--sweep'),
    ('benchkv', '', '--keys 4M --value-size 4096', 'with -m'),
    ('benchkv', '', '--name a/b', 'segment name'),
    ('benchkv-client', '', '--clients 1', '--attach'),
    ('benchkv-client', '', '--attach x --clients 0', '--clients'),
    ('benchkv-client', '', '--attach no_such_daemon', 'no_such_daemon'),
    ('soft-mlx5', '', '--progress fast true', '--progress'),
    ('soft-mlx5', '', '--net a/b true', '--net'),
    ('soft-mlx5', '', '--lib /no/such true', '/no/such'),
    ('crpc-shm', '', '', 'list or clean'),
    ('crpc-shm', '', 'frobnicate', 'frobnicate'),
    ('crpc-shm', 'list', '--dry-run', '--dry-run'),
    ('crpc-lincheck', '', '', 'file'),
    ('crpc-lincheck', '', '/no/such', '/no/such'),
    ('crpc-top', '', '--interval 0', '--interval'),
    ('crpc-top', '', '--show kv,nothing', 'nothing'),
    ('crpc-top', '', '--once no_such_program', 'no_such_program'),
    ('demo.sh', '', '--ranks 0', '--ranks'),
]
failures = 0


def leftovers():
    """Of this test; what runs beside it has other names."""
    return sorted(glob.glob(f'/dev/shm/*.{NET}*') + glob.glob('/dev/shm/*bad_input*') +
                  glob.glob(runtime + '/dpdk/*/*'))


def refused(what, command, said, env=(), ours='', **more):
    """True if it is; ours: only lines that begin so are the program's."""
    try:
        r = subprocess.run(['timeout', '-k', '2', '60', *command], capture_output=True, text=True,
                           stdin=subprocess.DEVNULL, env={**os.environ, **dict(env)}, **more)
    except (OSError, ValueError) as e:
        return f'{what}: {e}'
    lines = [line for line in r.stderr.splitlines() if line.startswith(ours)]
    if r.returncode == 2 and len(lines) == 1 and said in lines[0] and (ours or r.stdout == ''):
        return ''
    return f'{what}: status {r.returncode}, expected 2 and one line with {said!r}: {r.stderr!r} {r.stdout[:200]!r}'


def numbers(text):
    """Values that are outside the range in the help, and other than whole numbers where it has those."""
    yield from ('x', '99999999999999999999999' if '.' not in text else '1e999', '-1')
    m = re.search(r'\(([\d.e+-]+)([KMG]?) to ([\d.e+-]+)([KMG]?)[;)]', text)
    if m is None:
        return
    low, high = float(m[1]) * UNITS[m[2]], float(m[3]) * UNITS[m[4]]
    yield f'{low - 1:.0f}' if low >= 1 else '-0.5'
    yield f'{high + 1:.0f}' if high < 1e15 else '1e16'


def made(p, part):
    """Cases from the help: arguments, what the line says."""
    yield ['--frobnicate'], '--frobnicate'
    for name, (value, text) in p.options(part).items():
        if value == '':
            continue
        yield [name], name
        if p.eal or value in NUMBERS:
            yield [name, ''], name
        if value in NUMBERS:
            for bad in numbers(text):
                if bad != '-1' or '(' in text:
                    yield [f'{name}={bad}' if p.eal else name, *([] if p.eal else [bad])], name
        if value == 'NAME' and 'default' in text and p.eal:
            yield [name, 'no_such_name'], name
        if value == 'FILE' and p.eal:
            yield [name, '/no/such/file'], '/no/such/file' if name == '--config' else name


def cases(every):
    for p in every.values():
        for part in p.parts:
            for args, said in made(p, part):
                yield f'{p.name} {part} {args}', p.command(part, *args), said
    for name, part, args, said in RELATIONS:
        yield f'{name} {part} {args}', every[name].command(part, *args.split()), said


def machine(every):
    """What the arguments of the EAL, the cores, the memory and the launcher do not allow."""
    kv = every['benchkv'].path
    yield [kv, '--frobnicate', '--no-huge', '--', '--clients', '1'], '--frobnicate', ()
    yield [kv, '--clients', '16'], '--clients', ()
    yield [kv, '--no-huge', '-l', '1023', '--', '--clients', '1'], 'lcore', ()
    yield [kv, '--no-huge', '-m', '100000000', '--', '--clients', '1'], 'ess with -m', ()
    yield [kv, '--no-huge', '--', '--clients', '1'], 'PMIx', {'OMPI_COMM_WORLD_SIZE': '2'}
    yield [kv, '--no-huge', '--', '--clients', '1'], 'PMIx', {'PMIX_NAMESPACE': 'unknown', 'PMIX_RANK': '0'}
    yield [every['ringbench'].path, '--no-huge', '-l', FIRST], 'two are needed', ()
    yield [every['rpcbench'].path, '--no-huge', '-l', FIRST, '--', 'ipc'], 'two lcores are needed', ()
    with open('/proc/meminfo') as f:
        pages = dict(line.split(':') for line in f)
    if 'Hugepagesize' in pages:
        total, free, size = (int(pages[k].split()[0]) for k in ('HugePages_Total', 'HugePages_Free', 'Hugepagesize'))
        if free == 0:
            yield [kv, '--', '--clients', '1'], 'nr_hugepages', ()
        # As many free pages as -m needs, besides those that are in use.
        yield [kv, '-m', '100000000', '--', '--clients', '1'], f'echo {total - free + 100000000 * 1024 // size} >', ()
    if not os.path.exists('/sys/class/infiniband'):
        yield every['rpcbench'].command('net'), 'no RDMA device', ()


def ranks(every):
    """Under mpirun, which adds lines of its own."""
    kv = ['mpirun', '-np', '2', '--oversubscribe', '--bind-to', 'none']
    for soft, args, said in ((False, '--frobnicate', '--frobnicate'), (False, '--keys 9M', '--keys 9000000 on 2 ranks'),
                             (False, '--clients 1', 'RDMA device'), (True, '--device no_such_device', 'no_such_device'),
                             (True, '--keys 2M --value-size 4096', 'with -m')):
        yield kv + (SOFT if soft else []) + every['benchkv'].command('', *args.split()), said


def attached(every):
    """A service that lives: a client that asks for too much, a name that is taken, a segment of another version."""
    client, name = every['benchkv-client'], f'bad_input.{os.getpid()}'
    env = dict(os.environ, RUNTIME_DIRECTORY=runtime)
    with subprocess.Popen(every['kvd'].command('', *f'--clients 2 --name {name}'.split()), env=env,
                          stderr=subprocess.PIPE, text=True) as daemon:
        try:
            if not any(f"serves '{name}'" in line for line in daemon.stderr):
                yield 'the service did not start'
                return
            yield refused('too many clients', client.command('', '--attach', name, '--clients', '3'),
                          'larger --clients')
            yield refused('a name that is taken', every['benchkv'].command('', '--name', name), name)
            with open(f'/dev/shm/crpc.{name}', 'rb') as f:
                text = bytearray(f.read())
            text[8] = 255
            with open(f'/dev/shm/crpc.{name}.old', 'wb') as f:
                f.write(text)
            yield refused('another version', client.command('', '--attach', f'{name}.old'), 'version')
            os.unlink(f'/dev/shm/crpc.{name}.old')
        finally:
            daemon.terminate()


def report(problem):
    global failures
    if problem:
        failures += 1
        print('FAIL:', problem, flush=True)


SOFT = [os.path.join(source, 'usertools', 'soft-mlx5'), '--net', NET, '--progress', 'inline', '--lib', library, '--']
with tempfile.TemporaryDirectory() as runtime:
    os.environ.update(CRPC_BUILD=build, RUNTIME_DIRECTORY=runtime)
    every = {p.name: p for p in programs(source, build)}
    with concurrent.futures.ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:
        jobs = [pool.submit(refused, *case) for case in cases(every)]
        for job in jobs:
            report(job.result())
    print(f'{len(jobs)} cases')
    for command, said, env in machine(every):
        report(refused(' '.join(command), command, said, env))
    if library != 'none':
        for p in every.values():
            for part in p.parts:
                for option in {'--device', '--driver'} & set(p.options(part)):
                    command = SOFT + p.command(part, option, 'no_such_one')
                    report(refused(f'{p.name} {part} without its {option}', command, 'no_such_one'))
        if shutil.which('mpirun'):
            for command, said in ranks(every):
                report(refused(' '.join(command), command, said, MPI_ENV, ours='benchkv:'))
    for problem in attached(every):
        report(problem)
    left = leftovers()
    report(f'left behind: {left}' if left else '')
for path in glob.glob(f'/dev/shm/soft_mlx5.*.{NET}'):
    shutil.rmtree(path, ignore_errors=True)
print(f'{failures} failures')
sys.exit(1 if failures else 0)
