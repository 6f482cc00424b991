/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Worse ways to use an unpack engine, for comparison: an engine of its own that hands chunks on to
 * one of the library's. The library's way, which does not come here, is a job for each chunk and
 * one kick for all of a turn; here a kick follows each job.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "crpc_idle.h"
#include "crpc_unpack.h"
#include "xb.h"

const char *const xb_unpack_names[] = {"batched", "list", "each", "sync", "remade", NULL};

#define NAME     "xferbench"
#define JOBS     64    /* Chunks that are open, the default of every engine. */
#define COPIES   1024  /* Fragments likewise, as a DMA device has descriptors. */
#define REGIONS  4     /* What lib/bulk and a lane attach. */
#define FRAGMENT 8192u /* Bytes, unless a chunk had more than a job's descriptors. */

/* A chunk. */
struct job {
	bool taken;
	uint32_t parts; /* Open ones. */
	int rc;
	uint64_t part[CRPC_UNPACK_DESCS_MAX];
};

struct state {
	unsigned int how, engine;
	char arg[64];
	struct crpc_unpack_conf conf;
	struct crpc_unpack *u;
	struct iovec region[REGIONS];
	struct job job[JOBS];
};

/* Make the engine, or make it again. */
static int
engine_make(struct state *s)
{
	int rc = 0;

	crpc_unpack_free(s->u);
	s->u = crpc_unpack_create(xb_engine_names[s->engine], &s->conf);
	for (uint32_t i = 0; s->u != NULL && rc == 0 && i < REGIONS; i++)
		if (s->region[i].iov_len != 0)
			rc = crpc_unpack_attach(
				s->u, s->region[i].iov_base, s->region[i].iov_len);
	return s->u != NULL ? rc : -errno;
}

static void
state_free(void *state)
{
	crpc_unpack_free(((struct state *)state)->u);
	free(state);
}

static int
state_create(const struct crpc_unpack_conf *conf, void **state)
{
	struct state *s = *state = calloc(1, sizeof(*s));
	int rc;

	if (s == NULL)
		return -ENOMEM;
	sscanf(conf->arg, "%u %u %63s", &s->how, &s->engine, s->arg);
	s->conf = *conf;
	s->conf.max_jobs = s->how == XB_EACH_PIECE ? COPIES : JOBS;
	s->conf.arg = s->arg[0] != '\0' ? s->arg : NULL;
	rc = engine_make(s);
	if (rc != 0)
		state_free(s);
	return rc;
}

/* ---- jobs ---- */

static int
job_done(struct job *job, struct crpc_unpack *u)
{
	for (int rc; job->parts != 0; job->parts--) {
		rc = crpc_unpack_done(u, job->part[job->parts - 1]);
		if (rc == -EAGAIN)
			return rc;
		job->rc = rc != 0 ? rc : job->rc;
	}
	return job->rc;
}

/* Cut a chunk into fragments: their number, which a job may have. */
static uint32_t
cut(const struct crpc_unpack_desc *desc, uint32_t n, struct crpc_unpack_desc *out)
{
	uint32_t bytes = 0, most, cuts = 0;

	for (uint32_t i = 0; i < n; i++)
		bytes += desc[i].len;
	most = crpc_max(FRAGMENT, bytes / (CRPC_UNPACK_DESCS_MAX - n) + 1);
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t at = 0; at < desc[i].len; at += most)
			out[cuts++] = (struct crpc_unpack_desc){
				.src = (const uint8_t *)desc[i].src + at,
				.dst = (uint8_t *)desc[i].dst + at,
				.len = crpc_min(most, desc[i].len - at)};
	return cuts;
}

/* All at once, or piece by piece: one that finds no room waits for those before it. */
static int
job_start(struct state *s, struct job *job, const struct crpc_unpack_desc *desc, uint32_t n)
{
	uint32_t step = s->how == XB_EACH_PIECE ? 1 : n, at = 0;
	int rc = 0;

	while (at < n && (rc == 0 || (rc == -EAGAIN && at != 0))) {
		rc = crpc_unpack_submit(s->u, &desc[at], step, &job->part[job->parts]);
		job->parts += rc == 0;
		at += rc == 0 ? step : 0;
		crpc_unpack_kick(s->u);
		for (uint32_t i = 0; rc == -EAGAIN && i < JOBS; i++)
			job_done(&s->job[i], s->u);
	}
	while ((rc != 0 || s->how == XB_SYNC) && job_done(job, s->u) == -EAGAIN)
		crpc_pause();
	return rc;
}

/* A device may allow one engine only, so what is remade is one at a time. */
static int
state_submit(void *state, const struct crpc_unpack_desc *desc, uint32_t n, uint64_t *id)
{
	struct crpc_unpack_desc fragment[CRPC_UNPACK_DESCS_MAX];
	struct state *s = state;
	uint32_t most = s->how == XB_REMADE ? 1 : JOBS;
	int rc;

	for (*id = 0; *id < most && s->job[*id].taken;)
		++*id;
	if (*id == most)
		return -EAGAIN;
	rc = s->how == XB_REMADE ? engine_make(s) : 0;
	if (s->how == XB_LIST || s->how == XB_EACH_PIECE) {
		n = cut(desc, n, fragment);
		desc = fragment;
	}
	s->job[*id] = (struct job){0};
	if (rc == 0)
		rc = job_start(s, &s->job[*id], desc, n);
	s->job[*id].taken = rc == 0;
	return rc;
}

static int
state_done(void *state, uint64_t id)
{
	struct state *s = state;
	int rc = job_done(&s->job[id], s->u);

	s->job[id].taken = rc == -EAGAIN;
	return rc;
}

static int
state_stop(void *state)
{
	struct state *s = state;
	int rc = crpc_unpack_stop(s->u);

	/* Of a chunk that was stopped, no part is asked for again. */
	if (rc == 0)
		memset(s->job, 0, sizeof(s->job));
	return rc;
}

static int
state_attach(void *state, void *mem, uint64_t len)
{
	struct state *s = state;

	for (uint32_t i = 0; i < REGIONS; i++)
		if (s->region[i].iov_len == 0) {
			s->region[i] = (struct iovec){mem, len};
			return crpc_unpack_attach(s->u, mem, len);
		}
	return -ENOSPC;
}

static void
state_detach(void *state, void *mem)
{
	struct state *s = state;

	for (uint32_t i = 0; i < REGIONS; i++)
		if (s->region[i].iov_base == mem)
			s->region[i].iov_len = 0;
	if (s->u != NULL)
		crpc_unpack_detach(s->u, mem);
}

/* Checksums, where there are any, come from the bounce memory: that holds for every engine. */
static const struct crpc_unpack_ops ops = {
	.name = NAME,
	.flags = CRPC_UNPACK_DEVICE_MEMORY,
	.create = state_create,
	.free = state_free,
	.submit = state_submit,
	.done = state_done,
	.stop = state_stop,
	.attach = state_attach,
	.detach = state_detach,
};

void
xb_unpack_register(void)
{
	crpc_unpack_register(&ops);
}

struct crpc_unpack *
xb_unpack_create(enum xb_unpack how, enum xb_engine engine, const char *arg)
{
	struct crpc_unpack_conf conf = {.arg = arg};
	char text[96];

	if (how == XB_BATCHED)
		return crpc_unpack_create(xb_engine_names[engine], &conf);
	snprintf(text, sizeof(text), "%u %u %s", how, engine, arg != NULL ? arg : "");
	conf.arg = text;
	return crpc_unpack_create(NAME, &conf);
}
