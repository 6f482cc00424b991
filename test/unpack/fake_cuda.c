/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CUDA driver API as lib/unpack uses it; see fake_cuda.h. One lock for all.
 */
/* Everything that is not static is what the library is for. */
#pragma GCC visibility push(default)
#include "fake_cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gpudev_cuda.h"
#include "gpudev_gather.h"

/* Their declarations are those of gpudev_cuda.h, but for the names of arguments. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define INVALID_VALUE   1
#define NO_DEVICE       101
#define INVALID_CONTEXT 201
#define ILLEGAL_ADDRESS 700
#define DESTROYED       709
#define PCI_NAME        "0000:3b:00.0"
/* What the device calls host memory lies this far from where the host does. */
#define SHIFT (UINT64_C(1) << 52)

enum { RUNS_MAX = 256, REGIONS_MAX = 64, CALLS_MAX = 48, STREAMS_MAX = 8, EVENTS_MAX = 256 };

/* A kernel, or an event (grid_y is 0, and no arguments count). */
struct run {
	struct gpudev_args args;
	uint32_t grid_x, grid_y, block_x;
};

struct stream {
	pthread_t thread;
	uint64_t queued, ended; /* Runs, by number. */
	bool closing;
	struct run run[RUNS_MAX];
};

struct event {
	bool used;
	const struct stream *stream;
	uint64_t at; /* It is there when so many runs have ended. */
};

struct region {
	uint64_t ptr, len;
	uint8_t *mem; /* Where its bytes are. */
	bool device;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static struct {
	bool held, destroyed;
	int sticky, fault, refs;
	uint32_t objects;
	struct {
		const char *call;
		int error;
		uint32_t after;
	} fail;
	struct {
		const char *name;
		uint32_t n;
	} call[CALLS_MAX];
	struct region region[REGIONS_MAX];
	struct stream *stream[STREAMS_MAX];
	struct event event[EVENTS_MAX];
} f;
static int context, module, kernel; /* Their addresses are the handles. */
static _Thread_local int depth;

/* ---- control ---- */

void
fake_cuda_hold(bool hold)
{
	pthread_mutex_lock(&lock);
	f.held = hold;
	pthread_cond_broadcast(&moved);
	pthread_mutex_unlock(&lock);
}

void
fake_cuda_fail(const char *call, int error, uint32_t after)
{
	pthread_mutex_lock(&lock);
	f.fail.call = call;
	f.fail.error = error;
	f.fail.after = after;
	pthread_mutex_unlock(&lock);
}

void
fake_cuda_fault(int error)
{
	pthread_mutex_lock(&lock);
	f.fault = error;
	pthread_mutex_unlock(&lock);
}

static uint32_t *
count_of(const char *call)
{
	uint32_t i;

	for (i = 0; f.call[i].name != NULL && strcmp(f.call[i].name, call) != 0; i++)
		;
	f.call[i].name = call;
	return &f.call[i].n;
}

uint32_t
fake_cuda_calls(const char *call)
{
	uint32_t n;

	pthread_mutex_lock(&lock);
	n = *count_of(call);
	pthread_mutex_unlock(&lock);
	return n;
}

uint32_t
fake_cuda_left(void)
{
	uint32_t i, n;

	pthread_mutex_lock(&lock);
	n = f.objects + (uint32_t)f.refs + (uint32_t)depth;
	for (i = 0; i < REGIONS_MAX; i++)
		n += f.region[i].len != 0;
	pthread_mutex_unlock(&lock);
	return n;
}

/* Count a call and lock: its result if it is to fail, or 0. */
static int
begin(const char *call, bool needs_context)
{
	pthread_mutex_lock(&lock);
	(*count_of(call))++;
	if (f.fail.call != NULL && strcmp(f.fail.call, call) == 0 && f.fail.after-- == 0) {
		f.fail.call = NULL;
		return f.fail.error;
	}
	if (needs_context && depth == 0)
		return INVALID_CONTEXT;
	return needs_context ? f.sticky : 0;
}

static int
end(int rc)
{
	pthread_cond_broadcast(&moved);
	pthread_mutex_unlock(&lock);
	return rc;
}

/* ---- the device ---- */

static void
region_forget(struct region *r)
{
	if (r->device)
		munmap((void *)(uintptr_t)r->ptr, 2 * crpc_align_up(r->len, 4096));
	*r = (struct region){0};
}

/* Where bytes at an address of the device are, or NULL. */
static uint8_t *
reach(uint64_t ptr, uint64_t len)
{
	for (uint32_t i = 0; i < REGIONS_MAX; i++) {
		const struct region *r = &f.region[i];

		if (r->len != 0 && ptr - r->ptr < r->len && len <= r->len - (ptr - r->ptr))
			return r->mem + (ptr - r->ptr);
	}
	return NULL;
}

/* Addresses as the host's; with the lock. */
static bool
localize(struct run *run)
{
	for (uint32_t i = 0; i < run->grid_y; i++) {
		struct gpudev_desc *d = &run->args.desc[i];

		d->src = (uintptr_t)reach(d->src, d->len);
		d->dst = (uintptr_t)reach(d->dst, crpc_unpack_out_len(d->op, d->len));
		if (d->src == 0 || d->dst == 0)
			return false;
	}
	return true;
}

static void
execute(const struct run *run)
{
	uint32_t workers = run->grid_x * run->block_x, y, worker;

	for (y = 0; y < run->grid_y; y++)
		for (worker = 0; worker < workers; worker++)
			gpudev_gather(&run->args.desc[y], worker, workers);
}

static void *
stream_main(void *arg)
{
	struct stream *s = arg;
	struct run *run;

	pthread_mutex_lock(&lock);
	for (;;) {
		while (!s->closing && (f.held || s->ended == s->queued))
			pthread_cond_wait(&moved, &lock);
		if (s->closing)
			break;
		run = &s->run[s->ended % RUNS_MAX];
		if (f.sticky == 0 && run->grid_y != 0 && (f.fault != 0 || !localize(run)))
			f.sticky = f.fault != 0 ? f.fault : ILLEGAL_ADDRESS;
		if (f.sticky == 0) {
			pthread_mutex_unlock(&lock);
			execute(run);
			pthread_mutex_lock(&lock);
		}
		s->ended++;
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* With the lock, which it gives away for a while. */
static void
stream_close(uint32_t i)
{
	struct stream *s = f.stream[i];

	s->closing = true;
	pthread_cond_broadcast(&moved);
	pthread_mutex_unlock(&lock);
	pthread_join(s->thread, NULL);
	pthread_mutex_lock(&lock);
	free(s);
	f.stream[i] = NULL;
	f.objects--;
}

/* ---- the driver API ---- */

int
cuInit(unsigned int flags)
{
	return end(begin("cuInit", false));
}

int
cuGetErrorName(int error, const char **name)
{
	static const struct {
		int error;
		const char *name;
	} names[] = {{INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"},
		{NO_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
		{INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
		{ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
		{DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED"}, {719, "CUDA_ERROR_LAUNCH_FAILED"}};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].error == error)
			*name = names[i].name;
	return *name != NULL ? 0 : INVALID_VALUE;
}

int
cuDeviceGet(int *dev, int ordinal)
{
	int rc = begin("cuDeviceGet", false);

	*dev = 0;
	return end(rc != 0 || ordinal == 0 ? rc : NO_DEVICE);
}

int
cuDeviceGetByPCIBusId(int *dev, const char *pci)
{
	int rc = begin("cuDeviceGetByPCIBusId", false);

	*dev = 0;
	return end(rc != 0 || strcmp(pci, PCI_NAME) == 0 ? rc : NO_DEVICE);
}

int
cuDevicePrimaryCtxRetain(void **ctx, int dev)
{
	int rc = begin("cuDevicePrimaryCtxRetain", false);

	f.refs += rc == 0;
	*ctx = &context;
	return end(rc);
}

/* The last user ends the context: its errors, and that it was reset, are forgotten. */
int
cuDevicePrimaryCtxRelease_v2(int dev)
{
	int rc = begin("cuDevicePrimaryCtxRelease_v2", false);

	if (--f.refs == 0) {
		for (uint32_t i = 0; (f.sticky != 0 || f.destroyed) && i < REGIONS_MAX; i++)
			region_forget(&f.region[i]);
		f.sticky = f.fault = 0;
		f.destroyed = false;
	}
	return end(rc);
}

int
cuDevicePrimaryCtxReset_v2(int dev)
{
	int rc = begin("cuDevicePrimaryCtxReset_v2", false);

	if (rc != 0)
		return end(rc);
	f.destroyed = true;
	for (uint32_t i = 0; i < STREAMS_MAX; i++)
		if (f.stream[i] != NULL)
			stream_close(i);
	for (uint32_t i = 0; i < REGIONS_MAX; i++)
		region_forget(&f.region[i]);
	memset(f.event, 0, sizeof(f.event));
	f.objects = 0;
	return end(0);
}

int
cuCtxPushCurrent_v2(void *ctx)
{
	int rc = begin("cuCtxPushCurrent_v2", false);

	if (rc == 0 && (ctx != &context || f.refs == 0))
		rc = INVALID_CONTEXT;
	if (rc == 0 && f.destroyed)
		rc = DESTROYED;
	depth += rc == 0;
	return end(rc);
}

int
cuCtxPopCurrent_v2(void **ctx)
{
	int rc = begin("cuCtxPopCurrent_v2", false);

	*ctx = &context;
	depth--;
	return end(rc);
}

int
cuModuleLoadData(void **mod, const void *image)
{
	int rc = begin("cuModuleLoadData", true);

	if (rc == 0 && image == NULL)
		rc = INVALID_VALUE;
	f.objects += rc == 0;
	if (rc == 0)
		*mod = &module;
	return end(rc);
}

int
cuModuleGetFunction(void **fn, void *mod, const char *name)
{
	int rc = begin("cuModuleGetFunction", true);

	if (rc == 0 && (mod != &module || strcmp(name, GPUDEV_KERNEL) != 0))
		rc = INVALID_VALUE;
	*fn = &kernel;
	return end(rc);
}

int
cuModuleUnload(void *mod)
{
	int rc = begin("cuModuleUnload", true);

	f.objects--;
	return end(rc);
}

int
cuStreamCreate(void **stream, unsigned int flags)
{
	int rc = begin("cuStreamCreate", true);
	uint32_t i;

	for (i = 0; rc == 0 && i < STREAMS_MAX && f.stream[i] != NULL; i++)
		;
	if (rc == 0 && (flags != GPUDEV_STREAM_NON_BLOCKING || i == STREAMS_MAX))
		rc = INVALID_VALUE;
	if (rc != 0)
		return end(rc);
	f.stream[i] = calloc(1, sizeof(*f.stream[i]));
	pthread_create(&f.stream[i]->thread, NULL, stream_main, f.stream[i]);
	*stream = f.stream[i];
	f.objects++;
	return end(0);
}

int
cuStreamQuery(void *stream)
{
	const struct stream *s = stream;
	int rc = begin("cuStreamQuery", true);

	if (rc == 0 && s->ended != s->queued)
		rc = GPUDEV_ERROR_NOT_READY;
	return end(rc);
}

int
cuStreamDestroy_v2(void *stream)
{
	int rc = begin("cuStreamDestroy_v2", true);

	for (uint32_t i = 0; i < STREAMS_MAX; i++)
		if (f.stream[i] == stream)
			stream_close(i);
	return end(rc);
}

int
cuEventCreate(void **event, unsigned int flags)
{
	int rc = begin("cuEventCreate", true);
	uint32_t i;

	for (i = 0; i < EVENTS_MAX && f.event[i].used; i++)
		;
	if (rc == 0 && (flags != GPUDEV_EVENT_DISABLE_TIMING || i == EVENTS_MAX))
		rc = INVALID_VALUE;
	if (rc != 0)
		return end(rc);
	f.event[i] = (struct event){.used = true};
	*event = &f.event[i];
	f.objects++;
	return end(0);
}

static int
enqueue(struct stream *s, const struct run *run)
{
	if (s->queued - s->ended == RUNS_MAX)
		return INVALID_VALUE; /* The real one would wait, which the engine must not. */
	s->run[s->queued++ % RUNS_MAX] = *run;
	return 0;
}

int
cuEventRecord(void *event, void *stream)
{
	static const struct run nothing;
	struct event *e = event;
	int rc = begin("cuEventRecord", true);

	struct stream *s = stream;

	if (rc == 0)
		rc = enqueue(s, &nothing);
	if (rc == 0) {
		e->stream = s;
		e->at = s->queued;
	}
	return end(rc);
}

int
cuEventQuery(void *event)
{
	const struct event *e = event;
	int rc = begin("cuEventQuery", true);

	if (rc == 0 && e->stream != NULL && e->stream->ended < e->at)
		rc = GPUDEV_ERROR_NOT_READY;
	return end(rc);
}

int
cuEventDestroy_v2(void *event)
{
	int rc = begin("cuEventDestroy_v2", true);

	memset(event, 0, sizeof(struct event));
	f.objects--;
	return end(rc);
}

static int
region_add(uint64_t ptr, uint64_t len, uint8_t *mem, bool device)
{
	uint32_t i;

	for (i = 0; i < REGIONS_MAX && f.region[i].len != 0; i++)
		;
	if (i == REGIONS_MAX)
		return 2;
	f.region[i] = (struct region){ptr, len, mem, device};
	return 0;
}

int
cuMemHostRegister_v2(void *mem, size_t len, unsigned int flags)
{
	uint64_t ptr = (uintptr_t)mem + SHIFT;
	int rc = begin("cuMemHostRegister_v2", true);

	if (rc == 0 && (flags & GPUDEV_REGISTER_DEVICEMAP) == 0)
		rc = INVALID_VALUE;
	if (rc == 0 && reach(ptr, 1) != NULL)
		rc = GPUDEV_ERROR_ALREADY_REGISTERED;
	return end(rc != 0 ? rc : region_add(ptr, len, mem, false));
}

static int
region_remove(uint64_t ptr)
{
	for (uint32_t i = 0; i < REGIONS_MAX; i++)
		if (f.region[i].len != 0 && f.region[i].ptr == ptr) {
			region_forget(&f.region[i]);
			return 0;
		}
	return INVALID_VALUE;
}

int
cuMemHostUnregister(void *mem)
{
	int rc = begin("cuMemHostUnregister", true);

	return end(rc != 0 ? rc : region_remove((uintptr_t)mem + SHIFT));
}

int
cuMemHostGetDevicePointer_v2(uint64_t *ptr, void *mem, unsigned int flags)
{
	int rc = begin("cuMemHostGetDevicePointer_v2", true);

	*ptr = (uintptr_t)mem + SHIFT;
	return end(rc != 0 || reach(*ptr, 1) != NULL ? rc : INVALID_VALUE);
}

int
cuPointerGetAttribute(void *value, int attribute, uint64_t ptr)
{
	int rc = begin("cuPointerGetAttribute", true);

	bool device = reach(ptr, 1) != NULL;

	if (rc == 0 && !device && reach(ptr + SHIFT, 1) == NULL)
		rc = INVALID_VALUE;
	if (rc == 0)
		*(uint32_t *)value = attribute == GPUDEV_ATTRIBUTE_DEVICE ? 0 : device ? 2 : 1;
	return end(rc);
}

/* The first half is what the device calls it; the host can touch the second one only. */
int
cuMemAlloc_v2(uint64_t *ptr, size_t len)
{
	uint64_t whole = crpc_align_up(len, 4096);
	int rc = begin("cuMemAlloc_v2", true);
	uint8_t *mem;

	if (rc != 0)
		return end(rc);
	mem = mmap(NULL, 2 * whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED || mprotect(mem + whole, whole, PROT_READ | PROT_WRITE) != 0)
		return end(2);
	*ptr = (uintptr_t)mem;
	return end(region_add(*ptr, len, mem + whole, true));
}

int
cuMemFree_v2(uint64_t ptr)
{
	int rc = begin("cuMemFree_v2", true);

	return end(rc != 0 ? rc : region_remove(ptr));
}

int
cuMemcpyDtoH_v2(void *host, uint64_t ptr, size_t len)
{
	int rc = begin("cuMemcpyDtoH_v2", true);
	const uint8_t *from = reach(ptr, len);

	if (rc == 0 && from == NULL)
		rc = INVALID_VALUE;
	if (rc == 0)
		memcpy(host, from, len);
	return end(rc);
}

int
cuLaunchKernel(void *fn, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
		unsigned int block_x, unsigned int block_y, unsigned int block_z,
		unsigned int shared, void *stream, void **params, void **extra)
{
	struct run run = {.grid_x = grid_x, .grid_y = grid_y, .block_x = block_x};
	int rc = begin("cuLaunchKernel", true);

	if (rc == 0 &&
		(fn != &kernel || stream == NULL || grid_x == 0 || grid_y == 0 || grid_y > 65535 ||
			grid_z != 1 || block_x != GPUDEV_THREADS || block_y != 1 || block_z != 1 ||
			shared != 0 || extra != NULL))
		rc = INVALID_VALUE;
	if (rc == 0) {
		memcpy(&run.args, params[0], sizeof(run.args));
		rc = enqueue(stream, &run);
	}
	return end(rc);
}
