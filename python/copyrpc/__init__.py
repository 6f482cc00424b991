# SPDX-License-Identifier: BSD-3-Clause
"""copyrpc from Python: the key-value client, and tensors in shared memory, with numpy arrays.

    with copyrpc.Kv('kv') as kv:                          kvd --name kv runs
        version = kv.put(b'8 bytes.', numpy.arange(4))
        array, version = kv.get(b'8 bytes.', numpy.int64)

Memory: Kv.view() and TensorClient copy nothing: a View is of memory that is this process's for a while. Its property
`np` gives the array meanwhile, and raises ValueError afterwards; what would give the memory back raises BufferError
while an array on it, or a slice of one, exists. So no array ever shows memory of another owner. Only an address
(ndarray.ctypes) is not guarded.

Errors of the libraries are OSError with errno, of the subclass that Python has for it (FileNotFoundError: no such
server or key; ConnectionResetError: the server died; TimeoutError). The text is the library's.

Threads: an object belongs to the thread that made it, not to others and not to a forked child, which get RuntimeError.
Objects are context managers; close() may be called again. A wait lets other threads of the interpreter run.

The libraries are loaded by name (libcrpc_kv.so.0): they are installed, or LD_LIBRARY_PATH has their folder.
"""
from ._lib import View
from .clients import Block, Kv, Op, TensorClient

__all__ = ['Block', 'Kv', 'Op', 'TensorClient', 'View']
