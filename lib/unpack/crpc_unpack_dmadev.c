/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies of a channel end in the order in which they were enqueued, so two counters suffice: a job
 * is over when as many have ended as were enqueued up to its last one.
 */
/* All of dmadev is experimental in DPDK 22.11. */
#define ALLOW_EXPERIMENTAL_API

#include "crpc_unpack_dmadev.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include <rte_dmadev.h>

#include "crpc_atomic.h"
#include "crpc_clock.h"
#include "crpc_log.h"
#include "crpc_unpack.h"

#define CHANNEL  0
#define RING_MAX 1024
/* Devices that may be in use at a time, by their number. */
#define DEVICES_MAX 64
#define STOP_NS     100000000u
#define SLOT_BITS   16 /* CRPC_UNPACK_JOBS_MAX */

struct dma_job {
	uint64_t id;         /* 0: free */
	uint64_t begin, end; /* Copies, by number. */
	bool failed;
};

struct dma {
	int16_t dev;
	bool dead; /* It could not be started again. */
	bool rung; /* Everything that was enqueued is handed over. */
	uint32_t max_jobs;
	uint64_t serial;
	uint64_t enqueued, ended;
	uint64_t stop_ns; /* When stop() was called first; 0: it was not. */
	struct dma_job job[];
};

static _Atomic uint8_t taken[DEVICES_MAX];

/* ---- the device ---- */

/* Take a device if it will do and is free. */
static bool
take(int16_t dev, struct rte_dma_info *info)
{
	const uint64_t need = RTE_DMA_CAPA_MEM_TO_MEM | RTE_DMA_CAPA_OPS_COPY | RTE_DMA_CAPA_SVA;

	return dev >= 0 && dev < DEVICES_MAX && rte_dma_info_get(dev, info) == 0 &&
		(info->dev_capa & need) == need && crpc_exchange_acq_rel(&taken[dev], 1) == 0;
}

/* The device of that name, or the first that will do: its number, or -1. */
static int16_t
device_find(const char *name, struct rte_dma_info *info)
{
	int16_t dev;

	if (name != NULL) {
		dev = (int16_t)rte_dma_get_dev_id_by_name(name);
		return take(dev, info) ? dev : -1;
	}
	for (dev = rte_dma_next_dev(0); dev >= 0; dev = rte_dma_next_dev((int16_t)(dev + 1)))
		if (take(dev, info))
			return dev;
	return -1;
}

static int
device_start(int16_t dev, const struct rte_dma_info *info)
{
	const struct rte_dma_conf conf = {.nb_vchans = 1};
	const struct rte_dma_vchan_conf channel = {.direction = RTE_DMA_DIR_MEM_TO_MEM,
		.nb_desc = (uint16_t)crpc_min(info->max_desc, RING_MAX)};
	int rc = rte_dma_configure(dev, &conf);

	if (rc == 0)
		rc = rte_dma_vchan_setup(dev, CHANNEL, &channel);
	return rc == 0 ? rte_dma_start(dev) : rc;
}

/* ---- the engine ---- */

static int
dma_create(const struct crpc_unpack_conf *conf, void **state)
{
	struct dma *d = calloc(1, sizeof(*d) + conf->max_jobs * sizeof(d->job[0]));
	struct rte_dma_info info;
	int rc = -ENODEV;

	if (d == NULL)
		return -ENOMEM;
	d->max_jobs = conf->max_jobs;
	d->rung = true;
	d->dev = device_find(conf->arg, &info);
	if (d->dev < 0) {
		crpc_err("dmadev: %s is no free DMA device that copies between addresses of the "
			 "process; the EAL's --vdev=dma_skeleton makes one in software",
			conf->arg != NULL ? conf->arg : "there");
	} else {
		rc = device_start(d->dev, &info);
		if (rc == 0) {
			*state = d;
			return 0;
		}
		crpc_err("dmadev: starting %s: error %d", info.dev_name, rc);
		crpc_store_release(&taken[d->dev], 0);
	}
	free(d);
	return rc;
}

static void
dma_free(void *state)
{
	struct dma *d = state;

	rte_dma_stop(d->dev);
	crpc_store_release(&taken[d->dev], 0);
	free(d);
}

static uint32_t
copies_of(const struct crpc_unpack_desc *desc, uint32_t n)
{
	uint32_t copies = 0;

	for (uint32_t i = 0; i < n; i++)
		copies += desc[i].len != 0;
	return copies;
}

static int
dma_submit(void *state, const struct crpc_unpack_desc *desc, uint32_t n, uint64_t *id)
{
	struct dma *d = state;
	struct dma_job *job;
	uint32_t slot;

	if (d->dead)
		return -EIO;
	if (rte_dma_burst_capacity(d->dev, CHANNEL) < copies_of(desc, n))
		return -EAGAIN;
	/* Fewer than max_jobs are open: crpc_unpack_submit() counts them. */
	for (slot = 0; d->job[slot].id != 0; slot++)
		;
	job = &d->job[slot];
	*job = (struct dma_job){.id = ++d->serial << SLOT_BITS | slot, .begin = d->enqueued};
	for (uint32_t i = 0; i < n && !job->failed; i++) {
		if (desc[i].len == 0)
			continue;
		/* What was enqueued before a refusal is under way: the job ends behind it. */
		job->failed = rte_dma_copy(d->dev, CHANNEL, (uintptr_t)desc[i].src,
				      (uintptr_t)desc[i].dst, desc[i].len, 0) < 0;
		d->enqueued += !job->failed;
	}
	job->end = d->enqueued;
	d->rung &= job->end == job->begin;
	*id = job->id;
	return 0;
}

static void
dma_kick(void *state)
{
	struct dma *d = state;

	if (!d->rung)
		rte_dma_submit(d->dev, CHANNEL);
	d->rung = true;
}

/* The copy that ended last did so with an error: its job has failed. */
static void
blame(struct dma *d)
{
	for (uint32_t i = 0; i < d->max_jobs; i++)
		if (d->job[i].id != 0 && d->job[i].begin < d->ended && d->ended <= d->job[i].end)
			d->job[i].failed = true;
}

/* Count what has ended since. */
static void
collect(struct dma *d)
{
	enum rte_dma_status_code status;
	bool error = false;

	d->ended += rte_dma_completed(d->dev, CHANNEL, RING_MAX, NULL, &error);
	if (crpc_likely(!error))
		return;
	if (rte_dma_completed_status(d->dev, CHANNEL, 1, NULL, &status) == 0)
		return;
	d->ended++;
	if (status != RTE_DMA_STATUS_SUCCESSFUL) {
		crpc_err("dmadev: copy %llu failed with status %d", (unsigned long long)d->ended,
			(int)status);
		blame(d);
	}
}

static int
dma_done(void *state, uint64_t id)
{
	struct dma *d = state;
	struct dma_job *job = &d->job[id & ((1u << SLOT_BITS) - 1)];

	if (d->ended < job->end)
		collect(d);
	if (d->ended < job->end)
		return -EAGAIN;
	job->id = 0;
	return job->failed ? -EIO : 0;
}

/* No copy is under way: all jobs are given up. */
static int
forget(struct dma *d)
{
	for (uint32_t i = 0; i < d->max_jobs; i++)
		d->job[i].id = 0;
	d->ended = d->enqueued;
	d->stop_ns = 0;
	return 0;
}

static int
dma_stop(void *state)
{
	struct dma *d = state;
	uint64_t now = crpc_clock_ns();

	dma_kick(d);
	collect(d);
	if (d->ended == d->enqueued)
		return forget(d);
	if (d->stop_ns == 0)
		d->stop_ns = now;
	if (now - d->stop_ns < STOP_NS)
		return -EAGAIN;
	crpc_err("dmadev: device %d does not end %llu copies; it is restarted", d->dev,
		(unsigned long long)(d->enqueued - d->ended));
	if (rte_dma_stop(d->dev) != 0)
		return -EAGAIN;
	d->dead = rte_dma_start(d->dev) != 0;
	return forget(d);
}

static const struct crpc_unpack_ops dmadev = {
	.name = "dmadev",
	.create = dma_create,
	.free = dma_free,
	.submit = dma_submit,
	.kick = dma_kick,
	.done = dma_done,
	.stop = dma_stop,
	.descs = 32, /* A batch of idxd, as Linux sets its queues up. */
};

int
crpc_unpack_dmadev_register(void)
{
	return crpc_unpack_register(&dmadev);
}
