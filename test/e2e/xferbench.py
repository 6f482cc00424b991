#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Proves that every path, direction, engine and transport of xferbench keeps the content on the software device with
two lcores, with one and in two ranks, that results have the keys they must have, that the arrays print what they
promise, that a run that loses a rank ends cleanly, and that its results become pictures.

Arguments: the program, the root of the source tree, libsoft_mlx5.so, the libcuda.so.1 of test/bulk; "ends", or
"ranks" for two ranks and arrays.
"""
import glob
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

QUICK = ['--repeat', '2', '--slice-ms', '2']
RANKS = ('ranks',) if shutil.which('mpirun') else ()
MPI_ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1')

failures = 0


def check(what, ok, detail=''):
    global failures
    if not ok:
        failures += 1
    print(('ok: ' if ok else 'FAIL: ') + what, detail if not ok else '', flush=True)


def command(lcores, args, eal=()):
    soft = [os.path.join(source, 'usertools', 'soft-mlx5'), '--net', f'xferbench{os.getpid()}', '--lib', library, '--']
    return soft + [program, '-l', lcores, '--no-huge', *eal, '--'] + args


def run(lcores, args, eal=(), **env):
    return subprocess.run(command(lcores, args, eal), capture_output=True, text=True, timeout=240,
                          env={**os.environ, **env})


def ranks_command(args, ranks=2, recovery=()):
    """One core each; what a launcher's daemon needs."""
    soft = command('0', args)
    del soft[soft.index('-l'):soft.index('-l') + 2]
    bind = ['--map-by', 'core', '--bind-to', 'core'] if os.cpu_count() >= ranks else ['--bind-to', 'none']
    return ['mpirun', '-np', str(ranks), '--oversubscribe', *bind, *recovery, *soft]


def run_ranks(args, ranks=2):
    return subprocess.run(ranks_command(args, ranks), capture_output=True, text=True, timeout=240, env=MPI_ENV)


def results(what, lcores, args):
    out = os.path.join(tmp, 'out.jsonl')
    if os.path.exists(out):
        os.remove(out)
    args = args + ['--json', out]
    r = run_ranks(args) if lcores == 'ranks' else run(lcores, args)
    check(what, r.returncode == 0 and r.stderr == '', f'{r.returncode}: {r.stdout[-2000:]} {r.stderr}')
    rows = [json.loads(line) for line in open(out)] if os.path.exists(out) else []
    with open(os.path.join(tmp, 'all.jsonl'), 'a') as f:
        f.writelines(json.dumps(row) + '\n' for row in rows)
    return r.stdout, rows


def content():
    """Everything, proved slice by slice."""
    for lcores in ('0,1', '0'):
        _, rows = results(f'lcores {lcores}: content', lcores, QUICK + [
            '--verify', '--size', '4Ki,3000000', '--chunk', '64Ki', '--rails', '1,3', '--direction', 'one,both',
            '--path', 'eager,rendezvous,rendezvous_read', '--depth', '3'])
        ours = {(r['size'], r['rails'], r['path'], r['both_directions']) for r in rows if r['transport'] == 'bulk'}
        check('  every case', len(ours) == 2 * 2 * 3 * 2, len(ours))
        check('  figures', all(0 < r['bandwidth']['min'] and 0 < r['latency']['min'] for r in rows))
        stages = {(r['path'], k) for r in rows if r['transport'] == 'bulk' for k in r}
        check('  stages', ('eager', 'time_unpack') in stages and ('rendezvous', 'time_wire') in stages and
              ('rendezvous', 'time_unpack') not in stages, stages)


def arrays_content():
    """Arrays with operations, proved slice by slice: several open, one way and both, fused."""
    for direction in ('one', 'both'):
        _, rows = results(f'{direction} direction: arrays', '0', QUICK + [
            '--verify', '--size', '4Ki,1000004', '--chunk', '64Ki', '--direction', direction, '--ops', '3',
            '--transport', 'tensor_net,tensor_net_bf16', '--depth', '3'])
        ours = {(r['size'], r['transport'], r['path']) for r in rows if r.get('ops') == 3}
        check('  every case', len(ours) == 2 * 3, ours)


def ranks_content():
    """Every transport between two ranks, proved slice by slice; the lines are those of one process."""
    if not RANKS:
        print('no mpirun: two ranks are not tested')
        return
    _, rows = results('two ranks: content', 'ranks', QUICK + [
        '--verify', '--size', '300004', '--chunk', '64Ki', '--direction', 'both', '--transport', 'all',
        '--path', 'eager,rendezvous,rendezvous_read', '--depth', '3', '--ops', '2'])
    check('  two of one host', all(r['ranks'] == 2 and r['hosts'] == 1 for r in rows))
    ours = {(r['transport'], r.get('path')) for r in rows}
    check('  every lane', len([t for t, _ in ours if t in ('bulk', 'tensor_net')]) == 6 and
          {t for t, _ in ours} >= {'memcpy', 'memcpy_two', 'tensor_net_bf16'}, ours)
    stages = {k for r in rows if r.get('path') == 'eager' for k in r}
    check("  both sides' stages", stages >= {'time_post', 'time_wire', 'time_unpack', 'time_consume'}, stages)


def arrays():
    out, rows = results('arrays', '0,1', ['--preset', 'arrays', '--size', '64Ki', '--repeat', '2', '--slice-ms', '1'])
    beside = {r['path'] for r in rows if r['transport'] == 'tensor_net' and r.get('ratio_bulk')}
    check('  beside bulk', beside == {'eager', 'rendezvous'} and 'bulk' in out, rows)
    check('  beside one by one', all('ratio_separate' in r for r in rows if r.get('fused') and r['ops'] > 1 and
                                     r['depth'] == 1), rows)
    fused = {(r['ops'], r['fused']) for r in rows if r['transport'] == 'tensor_net'}
    check('  fused and one by one', fused == {(1, True), *((n, f) for n in (2, 4, 8) for f in (True, False))}, fused)


def rank_pids(number):
    """Ranks of this test with that number."""
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            env = open(f'/proc/{pid}/environ', 'rb').read().split(b'\0')
            name = os.readlink(f'/proc/{pid}/exe')
        except OSError:
            continue
        if b'PMIX_RANK=%d' % number in env and f'SOFT_MLX5_NET=xferbench{os.getpid()}'.encode() in env and \
                name == os.path.realpath(program):
            yield int(pid)


def ranks():
    """What only two ranks have: the loss of one, an interruption of one, too many of them."""
    if not RANKS:
        print('no mpirun: two ranks are not tested')
        return
    r = run_ranks(QUICK, 3)
    check('three ranks are refused', '3 ranks; give one, or two' in r.stderr and r.returncode != 0, r.stderr)
    r = run_ranks(['--window', '0'])
    check('a bad option is reported once', r.stderr.count('--window') == 1 and r.returncode != 0, r.stderr)
    lose_rank_at_start()
    seed = random.randrange(1 << 32)
    rnd = random.Random(seed)
    for sig, wait_s in ((signal.SIGKILL, 2), *((signal.SIGKILL, rnd.random()) for _ in range(6)),
                        (signal.SIGTERM, 2)):
        lose_rank(sig, wait_s, seed)


def lose_rank_at_start():
    """A rank that dies while it starts the EAL is known to be dead at once, and its peer reports it."""
    for number in (0, 1):
        p = subprocess.Popen(ranks_command(QUICK, recovery=['--enable-recovery']),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=MPI_ENV)
        until = time.monotonic() + 60
        killed = []
        while not killed and time.monotonic() < until:
            killed = [pid for pid in rank_pids(number) if in_eal(pid)]
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        try:
            _, err = p.communicate(timeout=40)
        except subprocess.TimeoutExpired:
            p.terminate()
            _, err = p.communicate()
        check(f'rank {number} dies at the start: its peer ends', killed and time.monotonic() - began < 20,
              f'{time.monotonic() - began:.1f} s {err}')
        check('  and says so', err.count('xferbench: ') == 1 and 'rank' in err, err)


def in_eal(pid):
    """Whether a process has the threads of the EAL."""
    tasks = f'/proc/{pid}/task'
    try:
        return any('eal-intr' in open(f'{tasks}/{task}/comm').read() for task in os.listdir(tasks))
    except OSError:
        return False


def lose_rank(sig, wait_s, seed):
    """A rank may die anywhere, also between its answer to the other's call and its own."""
    said = 'rank 1 is lost' if sig == signal.SIGKILL else 'interrupted: results so far'
    before = {name for name in os.listdir('/dev/shm') if name.startswith('crpc.party.')}
    p = subprocess.Popen(ranks_command(['--repeat', '1000', '--size', '1Mi', '--transport', 'bulk,memcpy'],
                                       recovery=['--enable-recovery']),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=MPI_ENV)
    p.stdout.readline()
    time.sleep(wait_s)
    for pid in rank_pids(1):
        os.kill(pid, sig)
    try:
        out, err = p.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        p.terminate()
        out, err = p.communicate()
        err = f'seed {seed}: not ended 60 s after\n{err}'
    segments = {name for name in os.listdir('/dev/shm') if name.startswith('crpc.party.')}
    check(f'{sig.name} of rank 1 after {wait_s:.3f} s is reported by rank 0', err.count(said) == 1, err)
    check('  and no segment is left', not segments - before, segments - before)
    if sig == signal.SIGTERM:
        check('  and both end well', p.returncode == 0, f'{out} {err}')


def dma():
    """The engine on DPDK's software DMA device, where DPDK has it; without a device it is refused."""
    args = QUICK + ['--verify', '--size', '1Mi', '--chunk', '64Ki', '--path', 'eager', '--transport', 'bulk,memcpy']
    r = run('0,1', args + ['--engine', 'dmadev'])
    check('dmadev without a device', r.returncode == 1 and 'dma_skeleton' in r.stderr, r.stderr)
    r = run('0,1', args + ['--engine', 'cpu,dmadev'], ['--vdev=dma_skeleton'])
    if 'no free DMA device' in r.stderr:
        print('DPDK has no dma_skeleton: not tested')
        return
    check('dmadev with one', r.returncode == 0 and ' dmadev ' in r.stdout, r.stdout[-1000:] + r.stderr)
    unpacked('dmadev', r=run('0,1', args + ['--engine', 'dmadev', '--unpack', 'all'], ['--vdev=dma_skeleton']))


def unpacked(engine, r):
    """Every way to give it chunks, proved slice by slice."""
    ways = [way for way in ('batched', 'list', 'each', 'sync', 'remade') if f' {engine} {way} ' in
            re.sub(' +', ' ', r.stdout)]
    check(f'{engine} in every way', r.returncode == 0 and len(ways) == 5, f'{ways} {r.stdout[-2000:]} {r.stderr}')


def gpu():
    """The engine on a GPU, by the tests' driver; without a driver, or not built, it says what is missing."""
    args = QUICK + ['--verify', '--size', '1Mi', '--chunk', '64Ki', '--path', 'eager', '--transport', 'bulk,memcpy',
                    '--direction', 'one,both', '--depth', '2']
    r = run('0,1', args + ['--engine', 'gpudev'])
    if r.returncode == 2:
        check('gpudev is not built', 'nvcc' in r.stderr and r.stderr.count('\n') == 1, r.stderr)
        return
    check('gpudev without a driver, or with a GPU',
          (r.returncode == 1 and 'libcuda.so.1' in r.stderr) or
          (r.returncode == 0 and ' gpudev ' in r.stdout), r.stdout[-1000:] + r.stderr)
    r = run('0,1', args + ['--engine', 'cpu,gpudev', '--gpu', '0'], LD_LIBRARY_PATH=os.path.dirname(fake_cuda))
    check('gpudev', r.returncode == 0 and ' gpudev ' in r.stdout, r.stdout[-1000:] + r.stderr)
    unpacked('gpudev', r=run('0,1', args + ['--engine', 'gpudev', '--gpu', '0', '--unpack', 'all'],
                             LD_LIBRARY_PATH=os.path.dirname(fake_cuda)))


def ucx_loses_its_device():
    """An RDMA device that fails under UCX ends the lane, not the program."""
    r = run('0,1', QUICK + ['--size', '64Ki', '--transport', 'ucx,memcpy'], SOFT_MLX5_FAULTS='seed=1,access=1')
    notes = [line for line in r.stderr.splitlines() if line.startswith('xferbench: ')]
    check('UCX on a device that fails is left out', r.returncode == 1 and notes and 'memcpy' in r.stdout and
          all('left out' in line for line in notes), f'{r.returncode} {r.stderr[:1000]}')


def ucx_uses_the_device():
    """UCX is measured on the device that --device names, as lib/bulk is."""
    r = run('0,1', QUICK + ['--size', '64Ki', '--transport', 'ucx', '--device', 'mlx5_soft1'],
            SOFT_MLX5_DEVICES='2', UCX_LOG_LEVEL='info')
    used = set(re.findall(r'rc_verbs/(\w+)', r.stdout + r.stderr))
    check('UCX uses --device', r.returncode == 0 and used == {'mlx5_soft1'},
          f'{r.returncode} {used} {r.stdout[-1000:]} {r.stderr[:1000]}')


def limits():
    """Too few open files or too little memory is a line and an exit code: DPDK, UCX and ZeroMQ would abort."""
    text = open(program, 'rb').read()
    if b'__asan_init' in text or b'__tsan_init' in text:
        return  # sanitizers map more than any limit
    for what, limit in [(resource.RLIMIT_NOFILE, n) for n in (12, 20, 44, 64, 96)] + \
            [(resource.RLIMIT_AS, n << 20) for n in (200, 300, 450, 600, 900)]:
        def lower():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(what, (limit, limit))
        p = subprocess.Popen(command('0,1', QUICK + ['--size', '64Ki', '--transport', 'all']), text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=lower)
        try:
            _, err = p.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            p.kill()
            _, err = p.communicate()
        check(f'limit {limit} of {what} is no abort and no hang', p.returncode in (1, 2) and 'xferbench: ' in err,
              f'{p.returncode} {err[:500]}')


def chunks_and_windows():
    _, rows = results('chunks and windows', '0,1', QUICK + [
        '--size', '2Mi', '--chunk', '64Ki,512Ki', '--window', '1,4,16', '--path', 'eager',
        '--transport', 'bulk,memcpy'])
    ours = [r for r in rows if r['transport'] == 'bulk']
    check('  every case', len({(r['chunk'], r['window']) for r in ours}) == 6, rows)
    check('  with a bound, beside a copy', all(r['bound'] and r['ratio_memcpy'] for r in ours), ours)
    memory = {(r['chunk'], r['window']): r['memory'] for r in ours}
    check('  memory is that of the window and 1 MiB at most',
          all(most < chunk * window + (1 << 20) for (chunk, window), most in memory.items()), memory)


def pictures(names=('bandwidth-size', 'bandwidth-chunk', 'bandwidth-window', 'time-stages')):
    plot = os.path.join(source, 'usertools', 'crpc-plot')
    if shutil.which('gnuplot') is None:
        print('no gnuplot: no pictures')
        return
    r = subprocess.run([plot, os.path.join(tmp, 'all.jsonl')], capture_output=True, text=True)
    check('crpc-plot draws', r.returncode == 0, r.stderr)
    for name in names:
        paths = glob.glob(os.path.join(tmp, f'xferbench-{name}*.svg'))
        check(f'  {name}', paths and all('</svg>' in open(path).read() for path in paths))


def pictures_of_arrays():
    pictures(('latency-size', 'latency-ops'))


ENDS = (ucx_loses_its_device, ucx_uses_the_device, limits, content, dma, gpu, chunks_and_windows,
        pictures)
ARRAYS = (arrays_content, arrays, ranks_content, ranks, pictures_of_arrays)
program, source, library, fake_cuda, part = sys.argv[1:]
if os.environ.get('XFERBENCH_LACKS'):
    print(f'skip: {os.environ["XFERBENCH_LACKS"]} is not installed')
    sys.exit(77)
with tempfile.TemporaryDirectory() as tmp:
    for step in {'ends': ENDS, 'ranks': ARRAYS}[part]:
        began = time.monotonic()
        step()
        print(f'{step.__name__}: {time.monotonic() - began:.1f} s')
print(f'{failures} failures')
sys.exit(1 if failures else 0)
