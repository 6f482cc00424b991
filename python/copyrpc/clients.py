# SPDX-License-Identifier: BSD-3-Clause
"""The clients. What each errno means is in crpc_kv.h and crpc_tensor_ipc.h."""
import ctypes
import errno
import time
from contextlib import contextmanager
from typing import Any, Iterator, NamedTuple, Optional, Sequence, Union

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ._lib import Handle, Lease, Scope, View, i32, load, ok, ptr, ref, struct, text, u8, u16, u32, u64

Bytes = Union[bytes, bytearray, memoryview, NDArray[Any]]
KvConf = struct('crpc_kv_conf', name=text, dir=text, connect_ms=u32, call_timeout_us=u64, trust_uid=u32)
KvHow = struct('crpc_kv_how', if_version=ctypes.c_bool, version=u64, ttl_ms=u32)
KvDone = struct('crpc_kv_done', cookie=u64, status=i32, len=u32, value=ptr, version=u64)
KvInfo = struct('kv_info', ranks=u32, rank=u32, daemons=u32, daemon=u32, keys=u32, key_size=u32, value_size=u32)
kv = load('kv', {
    'kv_connect': (ptr, ptr), 'kv_close': (None, ptr), 'kv_info': (ctypes.POINTER(KvInfo), ptr),
    'kv_get': (i32, ptr, ptr, u64), 'kv_put': (i32, ptr, ptr, ptr, u32, ptr, u64),
    'kv_delete': (i32, ptr, ptr, ptr, u64), 'kv_wait': (i32, ptr, ptr), 'log_last': (text,)})
MAX = 64  # arrays, and operations, of a batch
DTYPES = {np.dtype(name): i + 1 for i, name in enumerate('u1 i1 u2 i2 u4 i4 u8 i8 f2 - f4 f8'.split()) if name != '-'}
Conf = struct('crpc_ipc_client_conf', name=text, dir=text, timeout_ms=u32, probe_ms=u32, call_timeout_us=u64, arena=ptr,
              server=ptr)
Done = struct('crpc_done', cookie=u64, data=ptr, len=u32, status=i32)
Received = struct('crpc_ipc_block', ref=u64, data=ptr, size=u64)
Batch = struct('crpc_tensor_batch', len=u32, bytes=u64 * (2 + MAX * (20 + 2)))
Args = struct('crpc_tensor_args', nin=u8, nout=u8, arg=ctypes.c_int * 4, value=ctypes.c_double)
lib = load('tensor_ipc', {
    'shm_attach': (ptr, text, text, u32, u32, u32), 'shm_detach': (None, ptr), 'arena_attach': (ptr, ptr, u64),
    'arena_detach': (None, ptr), 'arena_join': (ptr, ptr, ptr), 'arena_leave': (None, ptr), 'log_last': (text,),
    'arena_alloc': (ptr, ptr, u64, ptr), 'arena_free': (i32, ptr, u64), 'ipc_client_connect': (ptr, ptr),
    'ipc_client_close': (None, ptr), 'ipc_client_poll': (u16, ptr, u64, ptr, u16),
    'ipc_client_take': (i32, ptr, ptr, ptr), 'tensor_init': (i32, ptr, i32, u32, ptr, u32, u64),
    'tensor_batch_init': (None, ptr, u32), 'tensor_batch_array': (i32, ptr, ptr),
    'tensor_ipc_status': (i32, ptr, ptr, u32), 'tensor_batch_op': (i32, ptr, u32, ptr),
    'tensor_ipc_call': (i32, ptr, u64, ptr, u64, u64)})


class Kv(Handle):
    """A connection to a kvd of this host, with one operation open at a time.

    Keys have key_size bytes, values 8 to value_size. OSError of an operation: ENOENT no such key, ESTALE it has another
    version, EINVAL a key or value of a wrong size, ENOSPC the store is full; ETIMEDOUT, EHOSTDOWN, ECONNRESET no
    answer, and a change may have been made. After ECONNRESET close it and connect again.
    """

    def __init__(self, name: str, *, dir: Optional[str] = None, connect_ms: int = 0, timeout_us: int = 0,
                 trust_uid: int = 0) -> None:
        """Connect. OSError: ENOENT no service of that name in connect_ms, EACCES, EUSERS all places taken, EPROTO.
        timeout_us: the deadline of each operation; 0: 2 s. trust_uid: connect to a service of this user, too."""
        super().__init__()
        conf = KvConf(name.encode(), dir.encode() if dir else None, connect_ms, timeout_us, trust_uid)
        self._kv = self._made(kv, f"service '{name}'", kv.crpc_kv_connect(ref(conf)), kv.crpc_kv_close)
        info = kv.crpc_kv_info(self._kv).contents
        self.key_size, self.value_size = int(info.key_size), int(info.value_size)

    def _ask(self, function: Any, key: Bytes, *args: Any) -> Any:
        self.check()
        name, done = np.frombuffer(key, np.uint8).tobytes(), KvDone()
        if len(name) != self.key_size:
            ok(-errno.EINVAL, f'key {name!r} of {len(name)} bytes: this service has keys of {self.key_size}')
        self.end_leases()  # the wait below reuses the memory
        self._cookie += 1
        rc = function(self._kv, name, *args, self._cookie)
        while rc == 0 and done.cookie != self._cookie:  # others are of calls that an exception interrupted
            done.cookie = self._cookie
            rc = kv.crpc_kv_wait(self._kv, ref(done))
            rc = rc if done.cookie == self._cookie else 0
        ok(rc, f'key {name!r}')
        return done

    @contextmanager
    def view(self, key: Bytes, dtype: DTypeLike = np.uint8) -> Iterator[tuple[View, int]]:
        """The value of a key where it lies, for reading, and its version; for a `with`, or to the next operation."""
        kind, done = np.dtype(dtype), self._ask(kv.crpc_kv_get, key)
        if done.len % max(kind.itemsize, 1) != 0:
            raise ValueError(f'a value of {done.len} bytes is no array of {kind}')
        lease = Lease(self, done.value, done.len, readonly=True)
        yield View(lease, kind, (done.len // max(kind.itemsize, 1),)), int(done.version)
        lease.end()

    def get(self, key: Bytes, dtype: DTypeLike = np.uint8) -> tuple[NDArray[Any], int]:
        """A copy of the value, and its version."""
        with self.view(key, dtype) as (value, version):
            return value.np.copy(), version

    def put(self, key: Bytes, value: Bytes, *, if_version: Optional[int] = None, ttl_ms: int = 0) -> int:
        """Write the bytes of an array. Returns the new version.

        if_version makes it a compare-and-swap: only if the key has that version, 0: only if there is no such key; else
        OSError ESTALE, or ENOENT if it is gone. ttl_ms: the value ends after that; 0: never.
        """
        data, how = np.ascontiguousarray(value), KvHow(if_version is not None, if_version or 0, ttl_ms)
        if data.dtype.hasobject or data.dtype.kind == 'U':
            raise TypeError(f'a value of type {data.dtype}: expected bytes or numbers')
        return int(self._ask(kv.crpc_kv_put, key, data.ctypes.data, data.nbytes, ref(how)).version)

    def delete(self, key: Bytes, *, if_version: Optional[int] = None) -> None:
        """Take a key out; if_version: as put()."""
        self._ask(kv.crpc_kv_delete, key, ref(KvHow(if_version is not None, if_version or 0, 0)))


class Op(NamedTuple):
    """An operation of the server: its code, tensors that it reads, tensors that it writes, a number."""
    code: int
    inputs: Sequence[View]
    outputs: Sequence[View]
    value: float = 0.0


class Block(Scope):
    """Memory of the server's arena, for the tensors of a call, until close()."""

    def __init__(self, client: 'TensorClient', number: int, lease: Lease) -> None:
        self.client, self.ref, self.lease, self._used = client, number, lease, 0

    def tensor(self, dtype: DTypeLike, shape: Sequence[int] = ()) -> View:
        """The next array of the block, not set to anything. ValueError: there is no room for it."""
        tensor = View(self.lease, np.dtype(dtype), tuple(shape), self._used)
        self._used += (tensor.np.nbytes + 63) // 64 * 64
        return tensor

    def close(self) -> None:
        """Free it. BufferError: an array on it exists."""
        if self.lease.valid:
            self.client.check()
            self.lease.end()
            lib.crpc_arena_free(self.client.member, self.ref)


class TensorClient(Handle):
    """A connection to a tensor server, whose arena is at byte 4096 of the segment NAME.arena."""

    def __init__(self, name: str, *, connect_ms: int = 0, timeout_us: int = 2000000) -> None:
        """Connect. OSError: ENOENT no such server in connect_ms, EUSERS, EACCES, EPROTO; timeout_us: of each call."""
        super().__init__()
        what, at = f"tensor server '{name}'", name.encode()
        seg = self._made(lib, what, lib.crpc_shm_attach(None, at + b'.arena', 0, 0, connect_ms), lib.crpc_shm_detach)
        arena = self._made(lib, what, lib.crpc_arena_attach(seg, 4096), lib.crpc_arena_detach)
        self.member = self._made(lib, what, lib.crpc_arena_join(arena, None), lib.crpc_arena_leave)
        conf = Conf(at, None, connect_ms, 0, timeout_us, self.member, None)
        self._ipc = self._made(lib, what, lib.crpc_ipc_client_connect(ref(conf)), lib.crpc_ipc_client_close)

    def block(self, size: int) -> Block:
        """Memory of at least that many bytes. OSError: ENOMEM no room, EMSGSIZE above the arena's largest."""
        self.check()
        number = u64()
        data = lib.crpc_arena_alloc(self.member, size, ref(number))
        if not data:
            ok(-ctypes.get_errno(), f'block of {size} bytes', lib)
        return Block(self, number.value, Lease(self, data, size))

    def call(self, block: Block, ops: Sequence[Op]) -> None:
        """Run operations on tensors of the block in the server, in order, and wait.

        The block is the server's meanwhile: BufferError, and nothing is sent, while an array on it exists. OSError:
        that of the first operation that failed, the block is back and later ones were not run; or the block is lost:
        ETIMEDOUT, ECONNRESET the server died (close, and connect again), or what else the server answered.
        """
        self.check()
        lease, batch, status, done, back = block.lease, Batch(), (i32 * MAX)(), Done(), Received()
        lease.check()
        lib.crpc_tensor_batch_init(ref(batch), 1)  # stop at the first that fails
        numbers: dict[int, int] = {}
        for op in ops:
            self._add(batch, numbers, lease, op)
        lease.end()
        self._cookie += 1
        rc = lib.crpc_tensor_ipc_call(self._ipc, time.monotonic_ns(), ref(batch), block.ref, self._cookie)
        lease.valid = rc != 0
        ok(rc, 'tensor call', lib)
        while done.cookie != self._cookie:  # others are of calls that an exception interrupted
            if lib.crpc_ipc_client_poll(self._ipc, time.monotonic_ns(), ref(done), 1) == 0:
                time.sleep(0)
        ok(lib.crpc_tensor_ipc_status(ref(done), status, len(ops)), 'tensor call')
        ok(lib.crpc_ipc_client_take(self._ipc, ref(done), ref(back)), 'block of a tensor call')
        block.ref, lease.address, lease.size, lease.valid = back.ref, back.data, back.size, True
        for i, code in enumerate(status[:len(ops)]):
            ok(code, f'operation {i} of a tensor call')

    @staticmethod
    def _add(batch: Any, numbers: dict[int, int], lease: Lease, op: Op) -> None:
        tensors = [*op.inputs, *op.outputs]
        if len(tensors) > 4 or any(t.lease is not lease for t in tensors):
            ok(-errno.EINVAL, f'operation {op.code}: expected 4 tensors at most, in the block that is sent')
        for t in (t for t in tensors if id(t) not in numbers):
            rank, shape, descriptor = len(t.shape), (u64 * len(t.shape))(*t.shape), (u64 * 20)()
            rc = lib.crpc_tensor_init(descriptor, DTYPES.get(t.dtype, 0), rank, shape, 0, t.offset)
            rc = rc or lib.crpc_tensor_batch_array(ref(batch), descriptor)
            numbers[id(t)] = ok(rc, f'operation {op.code}, tensor of {t.shape} {t.dtype}', lib)
        args = Args(len(op.inputs), len(op.outputs), (ctypes.c_int * 4)(*(numbers[id(t)] for t in tensors)), op.value)
        ok(lib.crpc_tensor_batch_op(ref(batch), op.code, ref(args)), f'operation {op.code}')
