#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Arrays in another process, from Python: as tensor_ipc_sum.c, whose server alone must run.

    ./sum NAME & python3 tensor_numpy.py NAME
"""
import sys

import numpy as np

import copyrpc

ADD, SUM = 256, 257  # the operations of that server
N = 1000

with copyrpc.TensorClient(sys.argv[1], connect_ms=5000) as client, client.block(3 * 64 + 8 * N) as block:
    x, y, total = block.tensor(np.float32, (N,)), block.tensor(np.float32, (N,)), block.tensor(np.float32)
    x.np[:] = 3  # `np` gives the array each time: one that is kept would stop the call
    y.np[:] = 1
    # y = 2 * x + y, and the sum of y: two operations, one message, no copy of an array.
    client.call(block, [copyrpc.Op(ADD, [x], [y], value=2.0), copyrpc.Op(SUM, [y], [total])])
    print(f'the sum of 2 * 3 + 1, {N} times: {total.np:g}')
