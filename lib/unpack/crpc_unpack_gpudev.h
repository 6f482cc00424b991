/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_UNPACK_GPUDEV_H
#define CRPC_UNPACK_GPUDEV_H

/**
 * @file
 * An unpack engine on a GPU, by CUDA: a kernel gathers what lies in bounce memory, straight into
 * the GPU's own memory, and converts floats on the way if requested.
 *
 *     crpc_unpack_gpudev_register()                      once, before threads start
 *     u = crpc_unpack_create("gpudev", &conf)            conf.arg: which GPU, see below
 *     crpc_unpack_attach(u, tensor, len)                 once for each destination
 *     conf_of_bulk.engine = u                            bulk attaches its bounce memory itself
 *
 *     submit(desc[n])  -->  the job's descriptors join a wave; a wave that is full is launched
 *     kick()           -->  the wave is launched: one kernel for all of it, and an event behind it
 *     done(job)        -->  queries the event, never waits
 *
 *     bounce memory (host)  --- PCIe, read by the kernel --->  device memory, or host memory
 *
 * conf.arg names the GPU: a number ("0"), or a PCI address ("0000:3b:00.0", which is also the name
 * of a device of rte_gpudev); NULL: the first one. The engine uses the GPU's *primary* context, as
 * the CUDA runtime, PyTorch and DPDK's own CUDA driver do, so memory that these allocate can be a
 * destination as it is. No call changes the current context of its thread.
 *
 * State is made once by create: the context is retained, the kernel loaded, and a stream (one that
 * does not wait for the default stream) and CRPC_GPUDEV_WAVES events are made. A job costs no
 * system call; the descriptors travel as the kernel's arguments, so there is no memory of ours that
 * the device reads. However many jobs are open, one turn of polls queries the device once.
 *
 * Memory: source and destination lie in memory that was attached. Host memory is page-locked and
 * mapped for the device by that, which takes milliseconds; device memory is only looked at. A
 * descriptor that names anything else is refused (-EFAULT), because the access would end the whole
 * context. What is at the destination is visible to whatever is launched behind done() = 0; kernels
 * of the user's own that run at the same time do not see it in any order. Bounce memory of lib/bulk
 * is host memory; a source in device memory that a NIC has written needs that NIC's write to be
 * flushed to the device first, which is the business of whoever knows the NIC.
 *
 * Errors: a wave that can not be launched fails its jobs with -EIO and no more. An error that comes
 * from the device's execution is the end of a CUDA context: all open jobs end with -EIO, and
 * submit() returns -EIO from then on; the log has CUDA's name of it. stop() waits for what was
 * launched, which are bounded copies. If none ends for two seconds, the GPU's primary context is
 * reset: nothing of this process runs on it any more, neither ours nor the user's, and
 * its memory is gone. That is the only way in which CUDA takes a kernel back.
 *
 * Why not rte_gpudev, DPDK's class for GPUs: it names devices, allocates and registers memory and
 * keeps lists of packets, all by a driver for CUDA that Debian does not build; it can neither
 * launch a kernel nor ask an event. For these the CUDA driver API is needed in any case, and it has
 * memory and names, too. Memory of rte_gpu_mem_alloc() can be attached.
 *
 * This engine is built where nvcc is found (the build option cuda). It does not link CUDA: the
 * driver's libcuda.so.1 is opened by create, so programs run on hosts without it, where create logs
 * what is missing.
 *
 * Threads: a state belongs to one thread, as in crpc_unpack.h. Many states may share a GPU.
 */

#include <stdint.h>

#include "crpc_config.h"

CRPC_BEGIN_DECLS

/**
 * Make the engine "gpudev" known. It looks for no GPU: crpc_unpack_create() does, with -ENODEV and
 * what is missing in the log.
 *
 * @return
 *   As crpc_unpack_register(); calling it again is -EEXIST and harmless.
 */
int crpc_unpack_gpudev_register(void);

/*
 * Device memory for programs that do not use CUDA otherwise: tools and tests. Not for a datapath.
 */

/**
 * Allocate memory of a GPU.
 *
 * @param arg
 *   Which GPU, as conf.arg.
 * @param len
 *   Bytes, above 0.
 * @return
 *   Its address, which the CPU can not use, aligned to 256; or NULL with errno: ENODEV, ENOMEM.
 */
void *crpc_unpack_gpudev_alloc(const char *arg, uint64_t len);

/** Copy from device memory of that GPU: 0, -ENODEV, -EIO. Waits until it is done. */
int crpc_unpack_gpudev_read(const char *arg, void *host, const void *mem, uint64_t len);

/** Free what crpc_unpack_gpudev_alloc() gave; it must be detached. NULL is allowed. */
void crpc_unpack_gpudev_free(const char *arg, void *mem);

CRPC_END_DECLS

#endif
