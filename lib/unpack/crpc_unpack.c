/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Engines by name, and what is the same for all: checks, counts.
 */
#include "crpc_unpack.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_atomic.h"
#include "crpc_conf.h"
#include "unpack_cpu.h"

struct crpc_unpack {
	const struct crpc_unpack_ops *ops;
	void *state;
	uint32_t max_jobs;
	uint32_t open;
};

static const struct crpc_unpack_ops *engines[CRPC_UNPACK_ENGINES_MAX] = {&__crpc_unpack_cpu};
static uint32_t nengines = 1;
static _Atomic uint64_t states_made;

int
crpc_unpack_register(const struct crpc_unpack_ops *ops)
{
	if (ops == NULL || ops->name == NULL || ops->create == NULL || ops->free == NULL ||
		ops->submit == NULL || (ops->done == NULL) != (ops->stop == NULL) ||
		(ops->attach == NULL) != (ops->detach == NULL))
		return -EINVAL;
	if (crpc_unpack_find(ops->name) != NULL)
		return -EEXIST;
	if (nengines == CRPC_UNPACK_ENGINES_MAX)
		return -ENOSPC;
	engines[nengines++] = ops;
	return 0;
}

const struct crpc_unpack_ops *
crpc_unpack_find(const char *name)
{
	for (uint32_t i = 0; i < nengines; i++)
		if (strcmp(engines[i]->name, name) == 0)
			return engines[i];
	return NULL;
}

static void
say_unknown(const char *name)
{
	char list[256] = "";
	size_t at = 0;

	for (uint32_t i = 0; i < nengines && at < sizeof(list) - 1; i++)
		at += (size_t)snprintf(list + at, sizeof(list) - at, " %s", engines[i]->name);
	crpc_err("no unpack engine \"%s\"; there are:%s", name, list);
}

struct crpc_unpack *
crpc_unpack_create(const char *name, const struct crpc_unpack_conf *conf)
{
	struct crpc_unpack_conf full = conf != NULL ? *conf : (struct crpc_unpack_conf){0};
	const struct crpc_unpack_ops *ops = crpc_unpack_find(name != NULL ? name : "cpu");
	struct crpc_unpack *u;
	int rc;

	if (ops == NULL) {
		say_unknown(name);
		return crpc_null(-ENOENT);
	}
	CRPC_CONF_DEFAULT(full.stream_bytes, CRPC_UNPACK_STREAM_BYTES);
	if (CRPC_CONF(&full, max_jobs, 64, 1, CRPC_UNPACK_JOBS_MAX))
		return crpc_null(-EINVAL);
	u = calloc(1, sizeof(*u));
	if (u == NULL)
		return NULL;
	u->ops = ops;
	u->max_jobs = full.max_jobs;
	rc = ops->create(&full, &u->state);
	if (rc != 0) {
		free(u);
		return crpc_null(rc);
	}
	crpc_fetch_add_relaxed(&states_made, 1);
	return u;
}

void
crpc_unpack_free(struct crpc_unpack *u)
{
	if (u == NULL)
		return;
	while (u->open != 0 && crpc_unpack_stop(u) == -EAGAIN)
		;
	u->ops->free(u->state);
	free(u);
}

int
crpc_unpack_attach(struct crpc_unpack *u, void *mem, uint64_t len)
{
	if (len == 0 || (uintptr_t)mem > UINTPTR_MAX - len)
		return -EINVAL;
	return u->ops->attach != NULL ? u->ops->attach(u->state, mem, len) : 0;
}

void
crpc_unpack_detach(struct crpc_unpack *u, void *mem)
{
	if (u->ops->detach != NULL)
		u->ops->detach(u->state, mem);
}

static int
desc_check(const struct crpc_unpack *u, const struct crpc_unpack_desc *desc, uint32_t n)
{
	if (n == 0 || n > CRPC_UNPACK_DESCS_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < n; i++) {
		if (desc[i].op >= CRPC_UNPACK_OPS ||
			desc[i].len % crpc_unpack_elem(desc[i].op, true) != 0)
			return -EINVAL;
		if (desc[i].op != CRPC_UNPACK_COPY &&
			(u->ops->flags & CRPC_UNPACK_CAN_CONVERT) == 0)
			return -EOPNOTSUPP;
	}
	return 0;
}

int
crpc_unpack_submit(
	struct crpc_unpack *u, const struct crpc_unpack_desc *desc, uint32_t n, uint64_t *job)
{
	int rc = desc_check(u, desc, n);

	if (rc != 0)
		return rc;
	rc = u->open < u->max_jobs ? u->ops->submit(u->state, desc, n, job) : -EAGAIN;
	u->open += rc == 0;
	return rc;
}

void
crpc_unpack_kick(struct crpc_unpack *u)
{
	if (u->ops->kick != NULL && u->open != 0)
		u->ops->kick(u->state);
}

int
crpc_unpack_done(struct crpc_unpack *u, uint64_t job)
{
	int rc = u->ops->done != NULL ? u->ops->done(u->state, job) : 0;

	u->open -= rc != -EAGAIN && u->open != 0;
	return rc;
}

int
crpc_unpack_stop(struct crpc_unpack *u)
{
	int rc = u->open != 0 && u->ops->stop != NULL ? u->ops->stop(u->state) : 0;

	if (rc != 0)
		return -EAGAIN;
	u->open = 0;
	return 0;
}

const struct crpc_unpack_ops *
crpc_unpack_engine(const struct crpc_unpack *u)
{
	return u->ops;
}

uint32_t
crpc_unpack_open_jobs(const struct crpc_unpack *u)
{
	return u->open;
}

uint64_t
crpc_unpack_states_made(void)
{
	return crpc_load_relaxed(&states_made);
}
