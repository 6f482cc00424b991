# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of the Python package share: checks, and a server that is ended."""
import contextlib
import glob
import os
import signal
import subprocess
import sys

failures = 0


def check(what, ok, detail=''):
    global failures
    failures += not ok
    print(('ok: ' if ok else 'FAIL: ') + what, '' if ok else detail, flush=True)


def raises(what, kind, call, code=None):
    """The call must raise that exception, an OSError with that errno."""
    try:
        found = call()
    except BaseException as e:
        check(what, type(e) is kind and (code is None or e.errno == code), repr(e))
    else:
        check(what, False, f'it returned {found!r}')


@contextlib.contextmanager
def server(name, *command):
    """A server whose segments begin with that name; killed at the end if it still runs."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for path in glob.glob(f'/dev/shm/crpc.{name}*'):
            os.unlink(path)


def stop(process):
    os.kill(process.pid, signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


def finish():
    print(f'{failures} failures')
    sys.exit(failures != 0)
