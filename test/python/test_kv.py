#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Proves the key-value client of the Python package against a kvd: each operation, arrays of several types, values in
and out of line, views that cannot be used once their memory is reused, and each error as the OSError that it is.

Arguments: kvd, the example kv_numpy.py.
"""
import errno
import gc
import os
import subprocess
import sys
import threading

import numpy as np

import copyrpc
from test_lib import check, finish, raises, server, stop

kvd, example = sys.argv[1:]
NAME = f'pykv{os.getpid()}'
KEY, LARGE = b'a key...', 100000


def operations(kv):
    check('sizes', (kv.key_size, kv.value_size) == (8, LARGE), (kv.key_size, kv.value_size))
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    first = kv.put(KEY, array)
    found, version = kv.get(KEY, np.float32)
    check('get gives what put wrote', np.array_equal(found, array.ravel()) and version == first, (found, version))
    check('a column is written as it is seen', kv.put(KEY, array[:, 1]) > first and
          np.array_equal(kv.get(KEY, np.float32)[0], [1, 5, 9]))
    second = kv.put(KEY, b'8 bytes.', if_version=kv.get(KEY)[1])
    check('compare-and-swap', kv.get(KEY)[0].tobytes() == b'8 bytes.' and kv.get(KEY)[1] == second)
    raises('with an old version', OSError, lambda: kv.put(KEY, b'8 bytes!', if_version=first), errno.ESTALE)
    raises('with 0, of a key that exists', OSError, lambda: kv.put(KEY, b'8 bytes!', if_version=0), errno.ESTALE)
    raises('delete of an old version', OSError, lambda: kv.delete(KEY, if_version=first), errno.ESTALE)
    kv.delete(KEY, if_version=second)
    raises('get of no key', FileNotFoundError, lambda: kv.get(KEY), errno.ENOENT)
    raises('delete of no key', FileNotFoundError, lambda: kv.delete(KEY), errno.ENOENT)
    pairs = np.array([(1, 2.5), (3, 4.5)], np.dtype([('a', '<i4'), ('b', '<f8')]))
    kv.put(KEY, pairs)
    check('fields of a structured type', np.array_equal(kv.get(KEY, pairs.dtype)[0]['b'], [2.5, 4.5]))
    large = np.random.default_rng(1).integers(0, 256, LARGE, np.uint8)
    kv.put(np.frombuffer(KEY, np.uint8), large)
    check('a large value', np.array_equal(kv.get(bytearray(KEY))[0], large))


def wrong(kv):
    for key in b'', b'7 bytes', b'9 bytes..':
        raises(f'a key of {len(key)} bytes', OSError, lambda: kv.get(key), errno.EINVAL)
    raises('a value of 4 bytes', OSError, lambda: kv.put(KEY, b'four'), errno.EINVAL)
    raises('a value above value_size', OSError, lambda: kv.put(KEY, np.zeros(LARGE + 1, np.uint8)), errno.EINVAL)
    raises('a key that is text', TypeError, lambda: kv.get('a key...'))
    raises('a value that is text', TypeError, lambda: kv.put(KEY, 'some text'))
    raises('a value of objects', TypeError, lambda: kv.put(KEY, np.array([None, None])))
    kv.put(KEY, b'9 bytes..')
    raises('a value that is no number of such elements', ValueError, lambda: kv.get(KEY, np.int64))
    raises('elements that are objects', ValueError, lambda: kv.get(KEY, np.dtype([('a', object), ('b', 'u1')])))
    raises('time to live beyond the limit', OSError, lambda: kv.put(KEY, b'8 bytes.', ttl_ms=2 ** 31), errno.EINVAL)
    for number in 2 ** 32, np.int64(2 ** 32), -1:
        raises(f'and one of {number}', OverflowError, lambda: kv.put(KEY, b'8 bytes.', ttl_ms=number))
    raises('a value of 4 GiB and 8 bytes', OSError, lambda: kv.put(
        KEY, np.lib.stride_tricks.as_strided(np.zeros(8, np.uint8), (2 ** 32 + 8,), (1,))), errno.EINVAL)


def views(kv):
    kv.put(KEY, np.arange(1000))
    with kv.view(KEY, np.int64) as (value, _):
        check('a view shows the value', value.np.sum() == 499500 and not value.np.flags.owndata)
        array = value.np
        raises('it cannot be written', ValueError, lambda: array.__setitem__(0, 1))
        raises('nor be made writable', ValueError, lambda: array.setflags(write=True))
        del array
    raises('after the with', ValueError, lambda: value.np)
    with kv.view(KEY, np.int64) as (value, _):
        kv.get(KEY)
        raises('after the next operation', ValueError, lambda: value.np)
    kept = []

    def keep():
        with kv.view(KEY, np.int64) as (value, _):
            kept.append(value.np[10:20])
    raises('a slice that is kept: the with ends', BufferError, keep)
    raises('and no operation reuses its memory', BufferError, lambda: kv.get(KEY))
    raises('nor does close()', BufferError, kv.close)
    check('so it still shows its value', np.array_equal(kept[0], np.arange(10, 20)), kept)
    kept.clear()
    check('without it the next call works', kv.get(KEY, np.int64)[0].sum() == 499500)


def owners():
    kv = copyrpc.Kv(NAME, connect_ms=5000)
    found = []
    thread = threading.Thread(target=lambda: raises('another thread', RuntimeError, lambda: kv.get(KEY)))
    thread.start()
    thread.join()
    with kv.view(KEY, np.int64) as (value, _):
        array = value.np
        del kv, value
        gc.collect()
        check('an array keeps its connection', array.sum() == 499500)
        found.append(copyrpc.Kv(NAME, connect_ms=5000))
        del array
    found[0].close()
    found[0].close()
    raises('a closed connection', ValueError, lambda: found[0].get(KEY))


def dies(process):
    kv = copyrpc.Kv(NAME, connect_ms=5000, timeout_us=300000)
    with kv.view(KEY, np.int64) as (value, _):
        stop(process)
        check('a value stays while its server stands still', value.np.sum() == 499500)
    raises('a server that does not answer', TimeoutError, lambda: kv.get(KEY), errno.ETIMEDOUT)
    threading.Timer(0.1, process.kill).start()
    raises('one that is killed during a call', ConnectionResetError, lambda: kv.get(KEY), errno.ECONNRESET)
    raises('and afterwards', ConnectionResetError, lambda: kv.get(KEY), errno.ECONNRESET)
    kv.close()
    raises('a dead server', ConnectionRefusedError, lambda: copyrpc.Kv(NAME), errno.ECONNREFUSED)


raises('no server', FileNotFoundError, lambda: copyrpc.Kv(NAME), errno.ENOENT)
raises('no name', OSError, lambda: copyrpc.Kv('/'), errno.EINVAL)
with server(NAME, kvd, '--no-huge', '--no-telemetry', '--log-level=error', '--', '--name', NAME, '--keys', '1000',
            '--value-size', str(LARGE), '--clients', '3') as process:
    with copyrpc.Kv(NAME, connect_ms=20000) as kv:
        operations(kv)
        wrong(kv)
        views(kv)
        done = subprocess.run([sys.executable, example, NAME], capture_output=True, text=True, timeout=20)
        check('the example', done.stdout == 'the largest of 8 counters is 700\n', done)
        owners()
        places = [copyrpc.Kv(NAME, connect_ms=5000) for _ in range(2)]
        raises('no place for a client more', OSError, lambda: copyrpc.Kv(NAME), errno.EUSERS)
    del places
    dies(process)
finish()
