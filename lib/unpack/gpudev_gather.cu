/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel: one row of blocks for each descriptor of a wave. nvcc compiles it for several GPUs;
 * the result is data of the library (lib/unpack/meson.build), which the driver loads.
 */
#include <cuda.h>

#include <type_traits>

#define _Static_assert static_assert
#include "gpudev_cuda.h"
#include "gpudev_gather.h"

extern "C" __global__ void
__launch_bounds__(GPUDEV_THREADS)
crpc_gpudev_gather(const struct gpudev_args args)
{
	gpudev_gather(&args.desc[blockIdx.y], blockIdx.x * GPUDEV_THREADS + threadIdx.x,
			gridDim.x * GPUDEV_THREADS);
}

/* What gpudev_cuda.h declares by itself is what CUDA says. */
static_assert(CUDA_ERROR_NOT_READY == GPUDEV_ERROR_NOT_READY, "result");
static_assert(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED == GPUDEV_ERROR_ALREADY_REGISTERED,
		"result");
static_assert(CU_STREAM_NON_BLOCKING == GPUDEV_STREAM_NON_BLOCKING, "flag");
static_assert(CU_EVENT_DISABLE_TIMING == GPUDEV_EVENT_DISABLE_TIMING, "flag");
static_assert(CU_MEMHOSTREGISTER_PORTABLE == GPUDEV_REGISTER_PORTABLE, "flag");
static_assert(CU_MEMHOSTREGISTER_DEVICEMAP == GPUDEV_REGISTER_DEVICEMAP, "flag");
static_assert(CU_POINTER_ATTRIBUTE_MEMORY_TYPE == GPUDEV_ATTRIBUTE_MEMORY_TYPE, "attribute");
static_assert(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL == GPUDEV_ATTRIBUTE_DEVICE, "attribute");
static_assert(CU_MEMORYTYPE_DEVICE == GPUDEV_MEMORY_DEVICE, "memory type");

template <bool...> struct flags;

/* Functions whose arguments have the same sizes, and are pointers in the same places. */
template <class F, class G> struct alike;
template <class R, class... A, class S, class... B> struct alike<R (*)(A...), S (*)(B...)>
	: std::is_same<flags<true, (sizeof(A) == sizeof(B) &&
					std::is_pointer<A>::value == std::is_pointer<B>::value)...>,
			flags<(sizeof(A) == sizeof(B) &&
				std::is_pointer<A>::value == std::is_pointer<B>::value)..., true>> {
};

#define ALIKE(name, symbol, ...)                                                                   \
	static_assert(alike<decltype(&symbol), int (*)(__VA_ARGS__)>::value, #symbol);
GPUDEV_CALLS(ALIKE)

static_assert(sizeof(CUdevice) == sizeof(int) && sizeof(CUdeviceptr) == sizeof(uint64_t) &&
				sizeof(CUresult) == sizeof(int) && sizeof(CUstream) == sizeof(void *),
		"types");
static_assert(sizeof(struct gpudev_args) <= 4096, "arguments");
