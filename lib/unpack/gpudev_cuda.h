/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUDEV_CUDA_H
#define GPUDEV_CUDA_H

/**
 * @file
 * The few functions of the CUDA driver API that the engine uses, found at run time. Their types are
 * declared here, after NVIDIA's reference manual of the driver API, so that the host's part needs
 * neither CUDA's headers nor its libraries; gpudev_gather.cu compares all of it with cuda.h.
 *
 * Handles (CUcontext, CUmodule, CUstream, ...) are pointers, a CUdevice is an int, a CUdeviceptr an
 * unsigned number of 64 bits, and results are ints. The suffix _v2 is part of the library's names.
 */

#include <stddef.h>
#include <stdint.h>

#define GPUDEV_LIBRARY "libcuda.so.1"

#define GPUDEV_ERROR_NOT_READY          600
#define GPUDEV_ERROR_ALREADY_REGISTERED 712
#define GPUDEV_STREAM_NON_BLOCKING      1u
#define GPUDEV_EVENT_DISABLE_TIMING     2u
#define GPUDEV_REGISTER_PORTABLE        1u
#define GPUDEV_REGISTER_DEVICEMAP       2u
#define GPUDEV_ATTRIBUTE_MEMORY_TYPE    2
#define GPUDEV_ATTRIBUTE_DEVICE         9
#define GPUDEV_MEMORY_DEVICE            2u

/** X(our name, the library's, its arguments); each returns a CUresult. */
#define GPUDEV_CALLS(X)                                                                            \
	X(init, cuInit, unsigned int flags)                                                        \
	X(error_name, cuGetErrorName, int error, const char **name)                                \
	X(device_get, cuDeviceGet, int *dev, int ordinal)                                          \
	X(device_by_pci, cuDeviceGetByPCIBusId, int *dev, const char *pci)                         \
	X(primary_retain, cuDevicePrimaryCtxRetain, void **ctx, int dev)                           \
	X(primary_release, cuDevicePrimaryCtxRelease_v2, int dev)                                  \
	X(primary_reset, cuDevicePrimaryCtxReset_v2, int dev)                                      \
	X(ctx_push, cuCtxPushCurrent_v2, void *ctx)                                                \
	X(ctx_pop, cuCtxPopCurrent_v2, void **ctx)                                                 \
	X(module_load, cuModuleLoadData, void **module, const void *image)                         \
	X(module_function, cuModuleGetFunction, void **fn, void *module, const char *name)         \
	X(module_unload, cuModuleUnload, void *module)                                             \
	X(stream_create, cuStreamCreate, void **stream, unsigned int flags)                        \
	X(stream_query, cuStreamQuery, void *stream)                                               \
	X(stream_destroy, cuStreamDestroy_v2, void *stream)                                        \
	X(event_create, cuEventCreate, void **event, unsigned int flags)                           \
	X(event_record, cuEventRecord, void *event, void *stream)                                  \
	X(event_query, cuEventQuery, void *event)                                                  \
	X(event_destroy, cuEventDestroy_v2, void *event)                                           \
	X(host_register, cuMemHostRegister_v2, void *mem, size_t len, unsigned int flags)          \
	X(host_unregister, cuMemHostUnregister, void *mem)                                         \
	X(host_pointer, cuMemHostGetDevicePointer_v2, uint64_t *ptr, void *mem,                    \
		unsigned int flags)                                                                \
	X(attribute, cuPointerGetAttribute, void *value, int attribute, uint64_t ptr)              \
	X(mem_alloc, cuMemAlloc_v2, uint64_t *ptr, size_t len)                                     \
	X(mem_free, cuMemFree_v2, uint64_t ptr)                                                    \
	X(mem_read, cuMemcpyDtoH_v2, void *host, uint64_t ptr, size_t len)                         \
	X(launch, cuLaunchKernel, void *fn, unsigned int grid_x, unsigned int grid_y,              \
		unsigned int grid_z, unsigned int block_x, unsigned int block_y,                   \
		unsigned int block_z, unsigned int shared, void *stream, void **params,            \
		void **extra)

#define GPUDEV_MEMBER(name, symbol, ...) int (*name)(__VA_ARGS__);

/** One GPU, with the functions to use it. */
struct gpudev_dev {
	GPUDEV_CALLS(GPUDEV_MEMBER)
	int dev;
	void *ctx; /**< Its primary context, retained. */
};

/**
 * Open the library, retain a GPU's primary context and enter it: gpudev_leave() is the next step.
 *
 * @param arg
 *   As crpc_unpack_conf.arg.
 * @return
 *   0, -ENODEV or -EINVAL, logged.
 */
int __crpc_gpudev_open(struct gpudev_dev *d, const char *arg);
void __crpc_gpudev_close(struct gpudev_dev *d);

/** CUDA's name of a result. */
const char *__crpc_gpudev_error(const struct gpudev_dev *d, int result);

/** Make its context the current one until gpudev_leave(): a CUresult. */
static inline int
gpudev_enter(const struct gpudev_dev *d)
{
	return d->ctx_push(d->ctx);
}

static inline void
gpudev_leave(const struct gpudev_dev *d)
{
	void *ctx;

	d->ctx_pop(&ctx);
}

#endif
