/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_UNPACK_DMADEV_H
#define CRPC_UNPACK_DMADEV_H

/**
 * @file
 * An unpack engine on a DPDK DMA device: the copy out of bounce memory costs the CPU nothing but a
 * descriptor.
 *
 *     EAL --vdev=dma_skeleton, or a device that the EAL finds
 *     crpc_unpack_dmadev_register()                      once, before threads start
 *     u = crpc_unpack_create("dmadev", &conf)            conf.arg: the device's name, or NULL
 *     conf_of_bulk.engine = u
 *
 *     submit(desc[n])  -->  n copies into the device's ring, which are not started yet
 *     kick()           -->  one doorbell for all of them
 *     done(job)        -->  what the device has completed since; copies end in order
 *
 * A state has a device of its own: channel 0, configured by create and stopped by free. The same
 * device can be used again after that.
 *
 * Addresses are those of the process, so the device must be able to use them (RTE_DMA_CAPA_SVA):
 * the users' buffers are any memory, which the EAL has no other addresses of. It does not convert.
 *
 * A copy that the device reports as failed ends its job with -EIO. stop() waits for the device, and
 * where that takes longer than a tenth of a second, restarts it.
 *
 * Threads: a state belongs to one thread, as in crpc_unpack.h. The EAL is started before create.
 */

#include "crpc_config.h"

CRPC_BEGIN_DECLS

/**
 * Make the engine "dmadev" known.
 *
 * @return
 *   As crpc_unpack_register(); calling it again is -EEXIST and harmless.
 */
int crpc_unpack_dmadev_register(void);

CRPC_END_DECLS

#endif
