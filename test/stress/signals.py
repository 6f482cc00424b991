#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Send random signals to random processes of every program, and prove that nothing hangs or stays.

Each round starts one program as a user does, alone or under mpirun, and sends SIGKILL, SIGTERM,
SIGINT, or SIGSTOP and later SIGCONT, to its processes at random times. Proved of every round:
- all its processes end within --limit seconds of the last signal, but for an mpirun without ranks;
- when all rounds are over and each program has run once undisturbed, /dev/shm holds what it held
  after such runs before the first round.
As root the rounds have a /dev/shm of their own, so that other programs on the machine neither
disturb the comparison nor suffer from it. A seed gives the same rounds; the times at which signals
arrive are the scheduler's.
"""
import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

MARK = 'CRPC_SIGNALS_ROUND'
HARD = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def programs(build, tools, scratch):
    """name: a function that draws a command line for a run of some seconds."""
    soft = [os.path.join(tools, 'soft-mlx5'), '--build', build, '--net', 'signals', '--']
    two = ['mpirun', '-np', '2', '--allow-run-as-root', '--oversubscribe', '--bind-to', 'none']

    def app(name, *words):
        return [os.path.join(build, 'apps', name, name)] + [str(word) for word in words]

    def benchkv(rng, seconds):
        return ['--no-huge', '-m', 64, '--', '--clients', rng.choice((1, 4, 16)),
                '--depth', rng.choice((1, 4)), '--daemons', rng.choice((1, 1, 2)),
                '--value-size', rng.choice((8, 100, 1000)), '--seconds', seconds, '--quiet']

    def ranks(rng, seconds):
        recover = ['--enable-recovery'] if rng.random() < 0.5 else []
        backend = rng.choice(('copyrpc', 'copyrpc', 'copyrpc', 'direct', 'delegation', 'erpc'))
        words = benchkv(rng, seconds)
        if backend != 'copyrpc':
            words[words.index('--daemons') + 1] = 1
            words += ['--backend', backend]
        return two + recover + soft + app('benchkv', *words)

    def served(rng, seconds):
        name = 'signals'  # one name: who serves it next removes what a killed server left
        client = os.path.join(build, 'apps', 'benchkv', 'benchkv-client')
        more = ['--snapshot', os.path.join(scratch, 'snapshot')] if rng.random() < 0.3 else []
        return ['sh', '-c', 'client=$1 name=$2 seconds=$3; shift 3; '
                # A daemon that outlives its timeout, which may be killed, would serve for ever.
                'timeout "$seconds" setpriv --pdeathsig TERM '
                '"$0" --no-huge -m 64 -- --name "$name" --keys 1024 "$@" & '
                '"$client" --attach "$name" --seconds "$seconds" --clients 2; wait'] + \
            app('kvd') + [client, name, str(seconds)] + more

    def slices(count):
        return max(1, int(count))
    return {
        'benchkv': lambda rng, s: app('benchkv', *benchkv(rng, s)),
        'benchkv ranks': ranks,
        'kvd': served,
        'ringbench': lambda rng, s: app(
            'ringbench', '-l', '0,1', '--no-huge', '--',
            '--pattern', rng.choice(('rpc', 'stream', 'flux', 'mesh')), '--seconds', s / 20,
            '--repeat', 2),
        'rpcbench ipc': lambda rng, s: app('rpcbench', '-l', '0,1', '--no-huge', '--', 'ipc',
                                           '--repeat', slices(s)),
        'rpcbench tensor': lambda rng, s: app('rpcbench', '-l', '0,1', '--no-huge', '--', 'tensor',
                                              '--repeat', slices(s)),
        'rpcbench net': lambda rng, s: soft + app('rpcbench', '-l', '0,1', '--no-huge', '--', 'net',
                                                  '--repeat', slices(s)),
        'shmbench': lambda rng, s: app('shmbench', rng.choice(('allocation', 'lookup', 'transfer')),
                                       '--repeat', slices(s)),
        'xferbench': lambda rng, s: soft + app('xferbench', '-l', '0,1', '--no-huge', '--',
                                               '--size', '16Mi', '--repeat', slices(s)),
        'xferbench ranks': lambda rng, s: two + soft + app(
            'xferbench', '--no-huge', '--', '--size', '16Mi', '--transport', 'bulk,memcpy',
            '--repeat', slices(s)),
    }


def processes(mark):
    """Processes of a round: pid and state; dead ones that wait for their parent do not count."""
    needle, found = ('%s=%s' % (MARK, mark)).encode(), []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open('/proc/%s/environ' % pid, 'rb') as file:
                if needle not in file.read().split(b'\0'):
                    continue
            with open('/proc/%s/stat' % pid) as file:
                state = file.read().rsplit(')', 1)[1].split()[0]
        except OSError:
            continue
        if state not in 'ZX' and int(pid) != os.getpid():
            found.append((int(pid), state))
    return sorted(found)


def send(pid, number):
    try:
        os.kill(pid, number)
        return 1
    except ProcessLookupError:
        return 0


def play(command, plan, rng, mark, log):
    """Run a command and send what is planned: (delay, signal, delay until SIGCONT). Their number."""
    with open(log, 'wb') as out:
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                         env=dict(os.environ, **{MARK: mark}), start_new_session=True)
    sent = 0
    for delay, number, pause in plan:
        time.sleep(delay)
        alive = processes(mark)
        if not alive:
            break
        victim = rng.choice(alive)[0]
        sent += send(victim, number)
        if number == signal.SIGSTOP:
            time.sleep(pause)
            sent += send(victim, signal.SIGCONT)
    return sent


def ends(mark, limit):
    """None when all processes of a round have ended in time, else those that have not."""
    deadline = time.monotonic() + limit
    while True:
        left = processes(mark)
        if not left:
            return None
        if time.monotonic() > deadline:
            return left
        time.sleep(0.02)


def describe(pid):
    try:
        with open('/proc/%d/cmdline' % pid, 'rb') as file:
            return file.read().replace(b'\0', b' ').decode(errors='replace')[:160]
    except OSError:
        return '?'


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def draw_plan(rng):
    plan = []
    for _ in range(rng.randint(0, 3)):
        plan.append((rng.uniform(0, 0.6), signal.SIGSTOP, rng.uniform(0.01, 0.5)))
    plan.append((rng.uniform(0, 1.5), rng.choice(HARD), 0))
    while rng.random() < 0.5:
        plan.append((rng.uniform(0, 0.2), rng.choice(HARD), 0))
    return plan


def undisturbed(table, names, rng, scratch):
    """Run each program once, which takes over what killed ones left; return what is in /dev/shm."""
    for name in names:
        mark = '%d.%s' % (os.getpid(), name.replace(' ', '-'))
        play(table[name](rng, 0.5), [], rng, mark, os.path.join(scratch, 'undisturbed.log'))
        if ends(mark, 120):
            sys.exit('signals: %s does not end undisturbed; its output is in %s' % (name, scratch))
        reap()
    return {os.path.join(path, name) for path, dirs, files in os.walk('/dev/shm')
            for name in dirs + files}


def own_shm():
    """Start again with a /dev/shm of our own, where that is allowed."""
    if os.getuid() != 0 or MARK in os.environ:
        return
    probe = ['unshare', '-m', 'mount', '-t', 'tmpfs', 'tmpfs', '/dev/shm']
    if subprocess.run(probe, stderr=subprocess.DEVNULL).returncode == 0:
        os.environ[MARK] = 'parent'
        os.execvp('unshare', ['unshare', '-m', 'sh', '-c', 'mount -t tmpfs tmpfs /dev/shm && exec "$@"',
                              'sh', sys.executable] + sys.argv)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('build', help='build folder')
    parser.add_argument('tools', help='usertools/ of the tree')
    parser.add_argument('--signals', type=int, default=60, help='signals to send (%(default)s)')
    parser.add_argument('--seed', type=int, default=1, help='of the rounds (%(default)s)')
    parser.add_argument('--limit', type=float, default=60,
                        help='seconds after the last signal (%(default)s)')
    parser.add_argument('--only', help='programs whose name begins so')
    args = parser.parse_args()
    own_shm()
    rng = random.Random(args.seed)
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1')
    scratch = tempfile.mkdtemp(prefix='crpc-signals-')
    table = programs(os.path.abspath(args.build), os.path.abspath(args.tools), scratch)
    names = [name for name in table if name.startswith(args.only or '')]
    print('seed %d, logs in %s' % (args.seed, scratch), flush=True)
    before, sent, rounds, launchers, failures = undisturbed(table, names, rng, scratch), 0, 0, 0, []
    while sent < args.signals and len(failures) < 5:
        name = names[rounds % len(names)]
        mark, log = '%d.%d' % (os.getpid(), rounds), os.path.join(scratch, '%d.log' % rounds)
        command = table[name](rng, 4)
        plan = draw_plan(rng)
        sent += play(command, plan, rng, mark, log)
        left = ends(mark, args.limit)
        # Where a rank is killed, Open MPI's launcher itself may wait for ever: none of ours is left then.
        if left and all(describe(pid).startswith('mpirun ') for pid, _ in left):
            launchers += 1
            print('round %d, %s: mpirun alone did not end' % (rounds, name), flush=True)
        elif left:
            failures.append('round %d, %s: %s after %s' % (
                rounds, name, ', '.join('%d %s %s' % (pid, state, describe(pid))
                                        for pid, state in left),
                ' '.join('%s at +%.3f' % (number.name, delay) for delay, number, _ in plan)))
            print('HANG: ' + failures[-1] + '\n  ' + ' '.join(command), flush=True)
        else:
            os.unlink(log)
        for pid, _ in left or ():
            send(pid, signal.SIGKILL)
        reap()
        rounds += 1
        if rounds % 20 == 0:
            print('%d rounds, %d signals' % (rounds, sent), flush=True)
    stays = sorted(undisturbed(table, names, rng, scratch) - before)
    if stays:
        failures.append('left in /dev/shm: ' + ' '.join(stays))
    for failure in failures:
        print('FAILED: ' + failure)
    print('%d rounds, %d signals, %d times mpirun alone did not end, %d failures' % (
        rounds, sent, launchers, len(failures)))
    if failures:
        return 1
    shutil.rmtree(scratch)
    return 0


if __name__ == '__main__':
    sys.exit(main())
