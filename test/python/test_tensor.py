#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Proves the tensor client of the Python package against the server of the example in C: results, statuses, arrays that
cannot be used while the server has their block or once it is freed or lost, and each error as the OSError that it is.

Arguments: the example tensor_ipc_sum, the example tensor_numpy.py.
"""
import errno
import os
import subprocess
import sys
import threading

import numpy as np

from copyrpc import Op, TensorClient
from test_lib import check, finish, raises, server, stop

program, example = sys.argv[1:]
NAME = f'pytensor{os.getpid()}'
ADD, SUM = 256, 257


def results(client):
    with client.block(65536) as block:
        x, y, total = block.tensor('f4', (50, 20)), block.tensor('f4', (50, 20)), block.tensor('f4')
        x.np[:] = np.arange(1000).reshape(50, 20)
        for times in 1, 2, 3:
            y.np[:] = 1
            client.call(block, [Op(ADD, [x], [y], float(times)), Op(SUM, [y], [total])])
            check(f'sum {times}', total.np == times * 499500 + 1000 and y.np[1, 1] == times * 21 + 1, total.np)
        integers, empty = block.tensor('i8', (3,)), block.tensor('f4', (0, 7))
        raises('a type that the operation does not take', OSError,
               lambda: client.call(block, [Op(SUM, [integers], [total])]), errno.EINVAL)
        raises('and those after it are not run', OSError, lambda: client.call(
            block, [Op(1, [y], []), Op(300, [y], []), Op(SUM, [y], [total])]), errno.ENOSYS)
        check('the block is back after both', total.np == 3 * 499500 + 1000)
        raises('an output that is an input', OSError, lambda: client.call(block, [Op(ADD, [x], [x])]), errno.ENOTUNIQ)
        client.call(block, [Op(SUM, [empty], [total])])
        check('the sum of nothing', total.np == 0)
        client.call(block, [])
        raises('too many tensors', OSError, lambda: client.call(block, [Op(1, [x] * 5, [])]), errno.EINVAL)
        raises('more than the server takes', OSError, lambda: client.call(block, [Op(1, [x], [])] * 5), errno.EMSGSIZE)
        raises('more than a batch takes', OSError, lambda: client.call(block, [Op(1, [x], [])] * 65), errno.ENOSPC)
        complex_ = block.tensor('c8')
        raises('a type of no tensor', OSError, lambda: client.call(block, [Op(1, [complex_], [])]), errno.EINVAL)
        raises('no room', ValueError, lambda: block.tensor('f4', (65536,)))
        raises('less than nothing', ValueError, lambda: block.tensor('f4', (-1,)))
        raises('objects', ValueError, lambda: block.tensor(object, (1,)))
        with client.block(64) as other:
            raises('a tensor of another block', OSError, lambda: client.call(other, [Op(1, [x], [])]), errno.EINVAL)
    raises('a block without an end', OSError, lambda: client.block(1 << 40), errno.EMSGSIZE)
    raises('a block of nothing', OSError, lambda: client.block(0), errno.EINVAL)
    raises('a block below nothing', OSError, lambda: client.block(-1), errno.EINVAL)
    raises('a block of more than 64 bits', OSError, lambda: client.block(2 ** 64), errno.EMSGSIZE)


def views(client):
    with client.block(4096) as block:
        x, total = block.tensor('f4', (100,)), block.tensor('f4')
        kept = [x.np[5:].reshape(5, 19)]
        kept[0][:] = 2
        raises('a call while a slice exists', BufferError, lambda: client.call(block, [Op(SUM, [x], [total])]))
        raises('close() of the block', BufferError, block.close)
        other = client.block(64)
        y = other.tensor('f4')
        raises('close() of the client', BufferError, client.close)
        check('another block stays as well', y.np == y.np)
        other.close()
        check('the slice is as it was', (kept[0] == 2).all())
        kept.clear()
        x.np[:] = 1
        client.call(block, [Op(SUM, [x], [total])])
        check('without it the call is made', total.np == 100)
    raises('a block that was freed', ValueError, lambda: x.np)
    raises('a call with it', ValueError, lambda: client.call(block, [Op(SUM, [x], [total])]))
    raises('a call with it and without operations', ValueError, lambda: client.call(block, []))
    block.close()
    for _ in range(100):  # 64 MiB of arena, blocks of 8 MiB: they are freed
        client.block(8 << 20).close()
    raises('an exception goes first', ZeroDivisionError, lambda: interrupted(client))


def interrupted(client):
    with client.block(4096) as block:
        array = block.tensor('f4', (100,)).np
        return array / (1 // 0)


def owners(client):
    thread = threading.Thread(target=lambda: raises('another thread', RuntimeError, lambda: client.block(64)))
    thread.start()
    thread.join()
    pid = os.fork()
    if pid == 0:
        try:
            client.block(64)
        except RuntimeError:
            os._exit(0)
        os._exit(1)
    check('a forked child', os.waitpid(pid, 0)[1] == 0)


def dies(process):
    client = TensorClient(NAME, timeout_us=300000)
    blocks = [client.block(4096) for _ in range(3)]
    tensors = [b.tensor('f4', (10,)) for b in blocks]
    stop(process)
    raises('a server that does not answer', TimeoutError, lambda: client.call(blocks[0], []), errno.ETIMEDOUT)
    raises('the block is lost', ValueError, lambda: tensors[0].np)
    threading.Timer(0.1, process.kill).start()
    raises('one that is killed during a call', ConnectionResetError, lambda: client.call(blocks[1], []),
           errno.ECONNRESET)
    raises('that block is lost', ValueError, lambda: tensors[1].np)
    raises('afterwards', ConnectionResetError, lambda: client.call(blocks[2], []), errno.ECONNRESET)
    tensors[2].np[:] = 4
    check('what was not sent stays', tensors[2].np.sum() == 40)
    client.close()
    raises('but not after close()', ValueError, lambda: tensors[2].np)
    blocks[2].close()
    raises('a closed client', ValueError, lambda: client.block(64))
    raises('a dead server', ConnectionRefusedError, lambda: TensorClient(NAME), errno.ECONNREFUSED)


raises('no server', FileNotFoundError, lambda: TensorClient(NAME), errno.ENOENT)
with server(NAME, program, NAME) as process:
    with TensorClient(NAME, connect_ms=20000) as client:
        results(client)
        views(client)
        owners(client)
    done = subprocess.run([sys.executable, example, NAME], capture_output=True, text=True, timeout=20)
    check('the example', done.stdout == 'the sum of 2 * 3 + 1, 1000 times: 7000\n', done)
    dies(process)
finish()
