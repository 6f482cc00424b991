/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs gather in a wave until kick(), which launches one kernel for all of them. Waves have numbers
 * and end in the order of the stream, so two counters suffice: waves below `over` have ended,
 * those below `head` were launched, and `head` is being filled.
 *
 *      0 ......... over ......... head
 *        ended     |   launched   | being filled           wave n lies in place n % WAVES
 */
#include "crpc_unpack_gpudev.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_clock.h"
#include "crpc_log.h"
#include "crpc_unpack.h"
#include "gpudev_cuda.h"
#include "gpudev_gather.h"

#define STOP_NS UINT64_C(2000000000)
/* Bytes that a thread moves, and blocks of a descriptor at most. */
#define THREAD_BYTES 64u
#define BLOCKS_MAX   64u
#define JOB_BITS     16 /* CRPC_UNPACK_JOBS_MAX */

/* The kernel for several GPUs, as nvcc made it. */
extern const unsigned char __crpc_gpudev_fatbin[];

struct wave {
	struct gpudev_args args;
	uint64_t number;
	uint32_t ndesc, max_len;
	uint32_t named; /* Jobs so far: the next one's name. */
	uint32_t open;  /* Jobs whose end was not reported yet. */
	int rc;
	bool no_event; /* It could not be recorded: the stream is queried. */
	void *event;
};

/* Memory that was attached. */
struct region {
	uintptr_t mem;
	uint64_t len;
	uint64_t ptr; /* The same for the device. */
	bool locked;  /* By us. */
};

struct gpu {
	struct gpudev_dev d;
	void *module, *kernel, *stream;
	uint64_t over, head;
	uint32_t running; /* Jobs of waves that were launched and have not ended. */
	uint32_t skip;    /* Questions to answer without asking the device. */
	uint64_t stop_ns; /* When stop() was called first since a wave ended; 0: it was not. */
	bool dead;        /* The context has failed. */
	bool reset;       /* It is gone, with all that was made in it. */
	uint32_t nregions;
	struct region region[CRPC_GPUDEV_REGIONS_MAX]; /* By address. */
	struct wave wave[CRPC_GPUDEV_WAVES];
};

static struct wave *
wave_of(struct gpu *g, uint64_t number)
{
	return &g->wave[number % CRPC_GPUDEV_WAVES];
}

/* ---- memory ---- */

/* Where a region at mem is, or would be. */
static uint32_t
region_at(const struct gpu *g, uintptr_t mem)
{
	uint32_t low = 0, high = g->nregions, mid;

	while (low < high) {
		mid = (low + high) / 2;
		if (g->region[mid].mem <= mem)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* The device's address of memory, or 0: it was not attached. */
static uint64_t
address(const struct gpu *g, const void *mem, uint64_t len)
{
	uint32_t i = region_at(g, (uintptr_t)mem);
	const struct region *r = &g->region[i - (i != 0)];
	uint64_t at = (uintptr_t)mem - r->mem;

	return i != 0 && at <= r->len && len <= r->len - at ? r->ptr + at : 0;
}

static bool
on_device(const struct gpudev_dev *d, uint64_t ptr)
{
	uint32_t type = 0;
	int dev = -1;

	return d->attribute(&type, GPUDEV_ATTRIBUTE_MEMORY_TYPE, ptr) == 0 &&
		type == GPUDEV_MEMORY_DEVICE &&
		d->attribute(&dev, GPUDEV_ATTRIBUTE_DEVICE, ptr) == 0 && dev == d->dev;
}

/* Host memory becomes the device's, too; somebody else may have done that. 0 or a CUresult. */
static int
region_map(const struct gpudev_dev *d, struct region *r)
{
	void *first = (void *)r->mem, *last = (void *)(r->mem + r->len - 1);
	uint64_t end = 0;
	int rc;

	if (on_device(d, r->mem) && on_device(d, r->mem + r->len - 1)) {
		r->ptr = r->mem;
		return 0;
	}
	rc = d->host_register(first, r->len, GPUDEV_REGISTER_PORTABLE | GPUDEV_REGISTER_DEVICEMAP);
	r->locked = rc == 0;
	if (rc != 0 && rc != GPUDEV_ERROR_ALREADY_REGISTERED)
		return rc;
	rc = d->host_pointer(&r->ptr, first, 0);
	if (rc == 0)
		rc = d->host_pointer(&end, last, 0);
	if (rc == 0 && end - r->ptr != r->len - 1)
		rc = GPUDEV_ERROR_ALREADY_REGISTERED; /* In parts. */
	if (rc != 0 && r->locked)
		d->host_unregister(first);
	return rc;
}

static int
gpu_attach(void *state, void *mem, uint64_t len)
{
	struct gpu *g = state;
	struct region r = {.mem = (uintptr_t)mem, .len = len};
	uint32_t i = region_at(g, r.mem);
	int rc;

	if (g->nregions == CRPC_GPUDEV_REGIONS_MAX)
		return -ENOSPC;
	if ((i != 0 && r.mem - g->region[i - 1].mem < g->region[i - 1].len) ||
		(i != g->nregions && g->region[i].mem - r.mem < len))
		return -EEXIST;
	rc = gpudev_enter(&g->d);
	if (rc == 0) {
		rc = region_map(&g->d, &r);
		gpudev_leave(&g->d);
	}
	if (rc != 0)
		return crpc_fail(-ENOMEM,
			"gpudev: %llu bytes at %p can not be mapped for GPU %d: %s",
			(unsigned long long)len, mem, g->d.dev, __crpc_gpudev_error(&g->d, rc));
	memmove(&g->region[i + 1], &g->region[i], (g->nregions - i) * sizeof(r));
	g->region[i] = r;
	g->nregions++;
	return 0;
}

static void
gpu_detach(void *state, void *mem)
{
	struct gpu *g = state;
	uint32_t i = region_at(g, (uintptr_t)mem);

	if (i == 0 || g->region[i - 1].mem != (uintptr_t)mem)
		return;
	if (g->region[i - 1].locked && !g->reset && gpudev_enter(&g->d) == 0) {
		g->d.host_unregister(mem);
		gpudev_leave(&g->d);
	}
	memmove(&g->region[i - 1], &g->region[i], (g->nregions - i) * sizeof(g->region[0]));
	g->nregions--;
}

/* ---- state ---- */

/* What lies in the context, which is current. */
static void
objects_free(struct gpu *g)
{
	for (uint32_t i = 0; i < CRPC_GPUDEV_WAVES; i++)
		if (g->wave[i].event != NULL)
			g->d.event_destroy(g->wave[i].event);
	if (g->stream != NULL)
		g->d.stream_destroy(g->stream);
	if (g->module != NULL)
		g->d.module_unload(g->module);
}

static int
objects_make(struct gpu *g)
{
	const char *what = "loading the kernel";
	int rc = g->d.module_load(&g->module, __crpc_gpudev_fatbin);

	if (rc == 0)
		rc = g->d.module_function(&g->kernel, g->module, GPUDEV_KERNEL);
	if (rc == 0) {
		what = "making a stream and its events";
		rc = g->d.stream_create(&g->stream, GPUDEV_STREAM_NON_BLOCKING);
	}
	for (uint32_t i = 0; i < CRPC_GPUDEV_WAVES && rc == 0; i++)
		rc = g->d.event_create(&g->wave[i].event, GPUDEV_EVENT_DISABLE_TIMING);
	if (rc == 0)
		return 0;
	crpc_err("gpudev: GPU %d: %s: %s", g->d.dev, what, __crpc_gpudev_error(&g->d, rc));
	objects_free(g);
	return -ENODEV;
}

static int
gpu_create(const struct crpc_unpack_conf *conf, void **state)
{
	int rc;
	struct gpu *g = calloc(1, sizeof(*g));

	if (g == NULL)
		return -ENOMEM;
	/* Number 0 is what places that were never used have. */
	g->over = g->head = 1;
	rc = __crpc_gpudev_open(&g->d, conf->arg);
	if (rc == 0) {
		rc = objects_make(g);
		gpudev_leave(&g->d);
		if (rc == 0) {
			*state = g;
			return 0;
		}
		__crpc_gpudev_close(&g->d);
	}
	free(g);
	return rc;
}

static void
gpu_free(void *state)
{
	struct gpu *g = state;

	while (g->nregions != 0)
		gpu_detach(g, (void *)g->region[g->nregions - 1].mem);
	if (!g->reset && gpudev_enter(&g->d) == 0) {
		objects_free(g);
		gpudev_leave(&g->d);
	}
	__crpc_gpudev_close(&g->d);
	free(g);
}

/* ---- waves ---- */

static int
launch(struct gpu *g, struct wave *w)
{
	uint32_t blocks = w->max_len / (THREAD_BYTES * GPUDEV_THREADS) + 1;
	void *params[] = {&w->args};
	int rc = 0;

	if (w->ndesc != 0)
		rc = g->d.launch(g->kernel, (uint32_t)crpc_min(blocks, BLOCKS_MAX), w->ndesc, 1,
			GPUDEV_THREADS, 1, 1, 0, g->stream, params, NULL);
	if (rc == 0)
		w->no_event = g->d.event_record(w->event, g->stream) != 0;
	return rc;
}

static void
gpu_kick(void *state)
{
	struct gpu *g = state;
	struct wave *w = wave_of(g, g->head);
	int rc;

	g->skip = 0;
	if (w->number != g->head || w->open == 0)
		return;
	g->head++;
	g->running += w->open;
	rc = gpudev_enter(&g->d);
	if (rc == 0) {
		rc = launch(g, w);
		gpudev_leave(&g->d);
	}
	if (rc == 0)
		return;
	w->rc = -EIO;
	crpc_err("gpudev: GPU %d: launching %u descriptors: %s", g->d.dev, w->ndesc,
		__crpc_gpudev_error(&g->d, rc));
}

/*
 * True if a wave that was launched touches nothing any more. rc is not 0 if its context could not
 * be made current: somebody has destroyed it.
 */
static bool
wave_ended(struct gpu *g, struct wave *w, int rc)
{
	if (w->rc != 0)
		return true;
	if (rc == 0)
		rc = w->no_event ? g->d.stream_query(g->stream) : g->d.event_query(w->event);
	if (rc == GPUDEV_ERROR_NOT_READY)
		return false;
	if (rc == 0)
		return true;
	w->rc = -EIO;
	if (!g->dead)
		crpc_err("gpudev: GPU %d: %s; the context is lost, and with it every job", g->d.dev,
			__crpc_gpudev_error(&g->d, rc));
	g->dead = true;
	return true;
}

/* Count the waves that have ended since. */
static void
collect(struct gpu *g)
{
	int rc;

	if (g->over == g->head)
		return;
	rc = gpudev_enter(&g->d);
	while (g->over != g->head && wave_ended(g, wave_of(g, g->over), rc)) {
		g->running -= wave_of(g, g->over)->open;
		g->over++;
		g->stop_ns = 0; /* It goes on: stop() has patience. */
	}
	if (rc == 0)
		gpudev_leave(&g->d);
	/* What is behind the oldest one has not ended either: the others need not ask. */
	g->skip = g->running > 1 ? g->running - 1 : 0;
}

/* Room for n descriptors in the wave that is being filled. NULL: not now. */
static struct wave *
wave_fill(struct gpu *g, uint32_t n)
{
	struct wave *w = wave_of(g, g->head);

	if (w->number == g->head && w->ndesc + n > CRPC_UNPACK_DESCS_MAX) {
		gpu_kick(g);
		w = wave_of(g, g->head);
	}
	if (w->number == g->head && w->open != 0)
		return w;
	if (w->open != 0) /* Not all of its jobs were reported. */
		return NULL;
	w->number = g->head;
	w->ndesc = w->max_len = w->named = 0;
	w->rc = 0;
	w->no_event = false;
	return w;
}

/* ---- jobs ---- */

/* One descriptor as the device sees it: 0, -EFAULT or -EINVAL, logged. */
static int
translate(const struct gpu *g, const struct crpc_unpack_desc *desc, struct gpudev_desc *to)
{
	uint32_t from_elem = crpc_unpack_elem(desc->op, true);
	uint32_t to_elem = crpc_unpack_elem(desc->op, false);

	to->src = address(g, desc->src, desc->len);
	to->dst = address(g, desc->dst, crpc_unpack_out_len(desc->op, desc->len));
	to->len = desc->len;
	to->op = desc->op;
	if (to->src == 0 || to->dst == 0)
		return crpc_fail(-EFAULT,
			"gpudev: the %s of %u bytes at %p is not in memory that was attached; "
			"crpc_unpack_attach() does it",
			to->src == 0 ? "source" : "destination", desc->len,
			to->src == 0 ? desc->src : desc->dst);
	if (to->src % from_elem == 0 && to->dst % to_elem == 0)
		return 0;
	return crpc_fail(-EINVAL,
		"gpudev: conversion %u from %p to %p: elements have %u and %u bytes, and their "
		"alignment",
		desc->op, desc->src, desc->dst, from_elem, to_elem);
}

static int
gpu_submit(void *state, const struct crpc_unpack_desc *desc, uint32_t n, uint64_t *id)
{
	struct gpu *g = state;
	struct wave *w;
	uint32_t ndesc;
	int rc;

	if (g->dead)
		return -EIO;
	w = wave_fill(g, n);
	if (w == NULL)
		return -EAGAIN;
	ndesc = w->ndesc;
	for (uint32_t i = 0; i < n; i++) {
		if (desc[i].len == 0)
			continue;
		rc = translate(g, &desc[i], &w->args.desc[ndesc++]);
		if (rc != 0)
			return rc;
	}
	for (uint32_t i = w->ndesc; i < ndesc; i++)
		w->max_len = (uint32_t)crpc_max(w->max_len, w->args.desc[i].len);
	w->ndesc = ndesc;
	w->open++;
	*id = g->head << JOB_BITS | w->named++;
	return 0;
}

static int
gpu_done(void *state, uint64_t id)
{
	struct gpu *g = state;
	uint64_t number = id >> JOB_BITS;
	struct wave *w = wave_of(g, number);

	if (number >= g->over) {
		if (g->skip == 0)
			collect(g);
		else
			g->skip--;
	}
	if (number >= g->over)
		return -EAGAIN;
	w->open--;
	return w->rc;
}

/* Nothing is under way: all jobs are given up. */
static int
forget(struct gpu *g)
{
	for (uint32_t i = 0; i < CRPC_GPUDEV_WAVES; i++)
		g->wave[i].open = 0;
	g->over = g->head;
	g->running = g->skip = 0;
	g->stop_ns = 0;
	return 0;
}

static int
gpu_stop(void *state)
{
	struct gpu *g = state;
	uint64_t now = crpc_clock_ns();
	int rc;

	collect(g);
	if (g->over == g->head)
		return forget(g);
	if (g->stop_ns == 0)
		g->stop_ns = now;
	if (now - g->stop_ns < STOP_NS)
		return -EAGAIN;
	rc = g->d.primary_reset(g->d.dev);
	crpc_err("gpudev: GPU %d does not end %u jobs; its context is reset: %s", g->d.dev,
		g->running,
		rc == 0 ? "nothing runs there any more" : __crpc_gpudev_error(&g->d, rc));
	g->stop_ns = 0; /* If that failed, the next try comes as late. */
	if (rc != 0)
		return -EAGAIN;
	g->dead = g->reset = true;
	return forget(g);
}

static const struct crpc_unpack_ops gpudev = {
	.name = "gpudev",
	.flags = CRPC_UNPACK_CAN_CONVERT | CRPC_UNPACK_DEVICE_MEMORY,
	.create = gpu_create,
	.free = gpu_free,
	.submit = gpu_submit,
	.kick = gpu_kick,
	.done = gpu_done,
	.stop = gpu_stop,
	.attach = gpu_attach,
	.detach = gpu_detach,
};

int
crpc_unpack_gpudev_register(void)
{
	return crpc_unpack_register(&gpudev);
}
