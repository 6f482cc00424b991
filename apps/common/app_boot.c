/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <pmix.h>

#include "app_boot.h"
#include "app_fail.h"
#include "app_watch.h"
#include "crpc_atomic.h"
#include "crpc_clock.h"

/*
 * An answer that PMIx's thread delivers. The waiter may give up first, so the last of the two frees
 * it: refs counts them.
 */
struct boot_wait {
	_Atomic int refs;
	_Atomic int done;
	uint32_t round;   /* A value of another one is not there yet. */
	pmix_info_t info; /* PMIx reads it until it answers. */
	pmix_status_t status;
	void *buf;
	size_t len;
};

/* Start-up of a rank takes well below this, also on a busy host. */
#define BOOT_TIMEOUT_MS 30000
/* What a rank published before it died may take so long to come; so may the end of a fence. */
#define GONE_MS 300
/* PMIx answers at once where a key is not there yet: time between two questions. */
#define ASK_NS 2000000

static pmix_proc_t boot_self;

/* The last step before PMIx gets it. The hand-over does not lean on what PMIx does inside. */
static void
wait_share(struct boot_wait *w)
{
	crpc_store_release(&w->refs, 2); /* R3 */
}

static void
wait_put(struct boot_wait *w)
{
	if (atomic_fetch_sub_explicit(&w->refs, 1, memory_order_acq_rel) != 1)
		return;
	free(w->buf);
	free(w);
}

/* Of a fence; of other questions, when what they asked for is in w. */
static void
op_answer(pmix_status_t status, void *arg)
{
	struct boot_wait *w = arg;

	(void)crpc_load_acquire(&w->refs); /* A3 pairs with R3 */
	w->status = status;
	crpc_store_release(&w->done, 1); /* R1 */
	wait_put(w);
}

/* A wait for one rank, or for all of them. */
struct patience {
	uint64_t deadline;
	uint32_t rank; /* UINT32_MAX: all. */
	bool gone;     /* It will not come; what is on its way still may. */
	bool asked;    /* PMIx, before. */
};

static struct patience
patience_of(uint32_t rank, uint32_t timeout_ms)
{
	return (struct patience){
		.deadline = crpc_clock_ns() + (uint64_t)timeout_ms * 1000000, .rank = rank};
}

static bool
any_gone(const struct app_boot *boot, uint32_t rank)
{
	for (uint32_t i = 0; i < boot->size; i++)
		if ((rank == UINT32_MAX || rank == i) && app_boot_gone(boot, i))
			return true;
	return false;
}

/* Of the ranks that fail for the same cause the first speaks; the first that lives, that is. */
static void
choose_speaker(const struct app_boot *boot)
{
	for (uint32_t i = 0; i < boot->rank; i++)
		if (!app_boot_gone(boot, i))
			return;
	app_fail_speak();
}

/* 0: go on waiting. */
static int
patience_left(struct app_boot *boot, struct patience *p)
{
	uint64_t now = crpc_clock_ns();

	app_boot_look(boot, now);
	if (!p->gone && any_gone(boot, p->rank)) {
		p->gone = true;
		choose_speaker(boot);
		p->deadline = crpc_min(p->deadline, now + GONE_MS * UINT64_C(1000000));
	}
	if (now <= p->deadline)
		return 0;
	return p->gone ? -EHOSTDOWN : -ETIMEDOUT;
}

/* Numbers come in the width that the server likes. */
static uint32_t
job_number(const char *key, uint32_t fallback)
{
	pmix_value_t *v = NULL;
	pmix_proc_t proc;
	pmix_status_t rc;
	uint32_t n;

	PMIX_PROC_LOAD(&proc, boot_self.nspace, PMIX_RANK_WILDCARD);
	if (PMIx_Get(&proc, key, NULL, 0, &v) != PMIX_SUCCESS || v == NULL)
		return fallback;
	PMIX_VALUE_GET_NUMBER(rc, v, n, uint32_t);
	PMIX_VALUE_RELEASE(v);
	return rc == PMIX_SUCCESS ? n : fallback;
}

/* A launcher that started several ranks without PMIx must not end as several runs of one rank. */
static int
refuse_launcher_without_pmix(void)
{
	static const char *const sizes[] = {
		"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMI_SIZE", "MPI_LOCALNRANKS"};
	const char *v;

	for (size_t i = 0; i < CRPC_DIM(sizes); i++) {
		v = getenv(sizes[i]);
		if (v != NULL && atoi(v) > 1)
			return app_fail(
				"a launcher started %s ranks (%s) without PMIx, so they cannot "
				"find each other; use Open MPI's mpirun or srun --mpi=pmix",
				v, sizes[i]);
	}
	return 0;
}

int
app_boot_open(struct app_boot *boot)
{
	pmix_status_t rc;

	*boot = (struct app_boot){.size = 1, .local_size = 1};
	crpc_clock_init(); /* Every wait has a limit: the clock must run. */
	snprintf(boot->job, sizeof(boot->job), "%ld", (long)getpid());
	if (getenv("PMIX_NAMESPACE") == NULL)
		return refuse_launcher_without_pmix();
	rc = PMIx_Init(&boot_self, NULL, 0);
	if (rc != PMIX_SUCCESS)
		return app_fail(
			"cannot reach the launcher's PMIx server: %s; start under mpirun or "
			"srun --mpi=pmix, or unset PMIX_NAMESPACE to run alone",
			PMIx_Error_string(rc));
	boot->launched = true;
	boot->rank = boot_self.rank;
	boot->size = job_number(PMIX_JOB_SIZE, 1);
	boot->local_size = job_number(PMIX_LOCAL_SIZE, 1);
	snprintf(boot->job, sizeof(boot->job), "%.40s", boot_self.nspace);
	if (boot->size > APP_RANKS_MAX || boot->rank >= boot->size) {
		app_fail_once(
			"the launcher started %u ranks; start 1 to %d", boot->size, APP_RANKS_MAX);
		app_boot_close(boot);
		return APP_EXIT_USAGE;
	}
	return 0;
}

void
app_boot_close(struct app_boot *boot)
{
	if (boot->fence != NULL)
		wait_put(boot->fence);
	boot->fence = NULL;
	app_watch_free(boot->watch);
	boot->watch = NULL;
	if (boot->launched)
		PMIx_Finalize(NULL, 0);
	boot->launched = false;
}

static int
watch_one(struct app_boot *boot, uint32_t rank)
{
	struct app_watch_card card;
	int rc = app_boot_take(boot, rank, "boot.watch", &card, sizeof(card), BOOT_TIMEOUT_MS);

	if (rc == -ETIMEDOUT)
		app_boot_lose(boot, rank);
	if (rc != 0)
		return rc;
	switch (app_watch_add(boot->watch, rank, &card)) {
	case 0:
		break;
	case -ESRCH: /* It published its card, and died: waits on it fail. */
		app_boot_lose(boot, rank);
		break;
	default:
		boot->watched = false;
		boot->unwatched = rank;
	}
	return 0;
}

int
app_boot_watch(struct app_boot *boot)
{
	const struct app_watch_card *card;
	int rc;

	boot->watched = true;
	if (boot->size == 1)
		return 0;
	boot->watch = app_watch_create(boot->size);
	if (boot->watch == NULL)
		return -ENOMEM;
	card = &boot->watch->card;
	rc = app_boot_put(boot, "boot.watch", card, sizeof(*card));
	for (uint32_t i = 0; i < boot->size && rc == 0; i++)
		if (i != boot->rank)
			rc = watch_one(boot, i);
	/*
	 * Who is here now was so when its pid was opened: it belongs to no later process. And
	 * no rank leaves before all others watch it.
	 */
	return rc == 0 ? app_boot_fence(boot, BOOT_TIMEOUT_MS) : rc;
}

void
app_boot_look(struct app_boot *boot, uint64_t now_ns)
{
	if (boot->watch != NULL)
		app_watch_look(boot->watch, now_ns);
}

bool
app_boot_gone(const struct app_boot *boot, uint32_t rank)
{
	return boot->lost[rank] != 0 || (boot->watch != NULL && boot->watch->peer[rank].gone);
}

void
app_boot_lose(struct app_boot *boot, uint32_t rank)
{
	boot->lost[rank] = 1;
	choose_speaker(boot);
}

/*
 * PMIx loses a key whose value is replaced by one of another size. So each of its keys has one
 * size: a blob that fits stands behind its head; a larger one in a key of its own, named after the
 * next power of two, and the head alone says so.
 */
struct value_head {
	uint32_t round;
	uint32_t len; /* Of the blob. */
};
#define VALUE_SIZE 256
#define VALUE_BLOB (VALUE_SIZE - (uint32_t)sizeof(struct value_head))

static uint32_t
large_key(char name[PMIX_MAX_KEYLEN + 1], const char *key, size_t len)
{
	uint32_t size = (uint32_t)crpc_pow2_ceil(sizeof(struct value_head) + len);

	snprintf(name, PMIX_MAX_KEYLEN + 1, "%s/%u", key, size);
	return size;
}

/* Put a head, and what of the blob goes with it. */
static int
put_value(const char *key, struct value_head head, const void *buf, size_t len, size_t size)
{
	pmix_value_t v;
	pmix_status_t rc;

	PMIX_VALUE_CONSTRUCT(&v);
	v.type = PMIX_BYTE_OBJECT;
	v.data.bo.size = size;
	v.data.bo.bytes = calloc(1, size);
	if (v.data.bo.bytes == NULL)
		return -EIO;
	memcpy(v.data.bo.bytes, &head, sizeof(head));
	if (len != 0)
		memcpy(v.data.bo.bytes + sizeof(head), buf, len);
	rc = PMIx_Put(PMIX_GLOBAL, key, &v);
	free(v.data.bo.bytes);
	return rc == PMIX_SUCCESS ? 0 : -EIO;
}

int
app_boot_put(struct app_boot *boot, const char *key, const void *buf, size_t len)
{
	const struct value_head head = {.round = boot->round, .len = (uint32_t)len};
	bool fits = len <= VALUE_BLOB;
	char name[PMIX_MAX_KEYLEN + 1];
	uint32_t size;
	int rc;

	if (!boot->launched)
		return 0;
	rc = put_value(key, head, buf, fits ? len : 0, VALUE_SIZE);
	if (rc == 0 && !fits) {
		size = large_key(name, key, len);
		rc = put_value(name, head, buf, len, size);
	}
	return rc == 0 && PMIx_Commit() == PMIX_SUCCESS ? 0 : -EIO;
}

/* A value of this round; its blob, unless that stands in a key of its own. */
static pmix_status_t
take_value(struct boot_wait *w, const pmix_value_t *v)
{
	struct value_head head;

	if (v == NULL || v->type != PMIX_BYTE_OBJECT || v->data.bo.size < sizeof(head))
		return PMIX_ERR_NOT_FOUND;
	memcpy(&head, v->data.bo.bytes, sizeof(head));
	if (head.round != w->round)
		return PMIX_ERR_NOT_FOUND;
	w->len = head.len;
	w->buf = calloc(1, w->len == 0 ? 1 : w->len);
	if (w->buf != NULL && w->len <= v->data.bo.size - sizeof(head))
		memcpy(w->buf, v->data.bo.bytes + sizeof(head), w->len);
	return PMIX_SUCCESS;
}

static void
get_answer(pmix_status_t status, pmix_value_t *v, void *arg)
{
	struct boot_wait *w = arg;

	(void)crpc_load_acquire(&w->refs); /* A3 pairs with R3 */
	op_answer(status == PMIX_SUCCESS ? take_value(w, v) : status, w);
}

/* Ask PMIx once. -ENOENT: it has no such key yet. */
static int
get_once(struct app_boot *boot, struct patience *p, const char *key, void **buf, size_t *len)
{
	struct boot_wait *w = calloc(1, sizeof(*w));
	pmix_proc_t proc;
	bool yes = true, fresh;
	int rc = 0;

	if (w == NULL)
		return -ENOMEM;
	w->round = boot->round;
	PMIX_PROC_LOAD(&proc, boot_self.nspace, p->rank);
	PMIX_INFO_LOAD(&w->info, PMIX_GET_REFRESH_CACHE, &yes, PMIX_BOOL);
	/* Only there can an old answer be found, and only there the server is asked in any case. */
	fresh = boot->round != 0 || p->asked;
	p->asked = true;
	wait_share(w);
	if (PMIx_Get_nb(&proc, key, &w->info, fresh, get_answer, w) != PMIX_SUCCESS) {
		free(w);
		return -ENOENT;
	}
	/* A1 pairs with R1. */
	while (crpc_load_acquire(&w->done) == 0 && (rc = patience_left(boot, p)) == 0)
		crpc_nap(100000);
	if (rc == 0)
		rc = w->status != PMIX_SUCCESS ? -ENOENT : w->buf == NULL ? -ENOMEM : 0;
	if (rc == 0) {
		*buf = w->buf;
		*len = w->len;
		w->buf = NULL;
	}
	wait_put(w);
	return rc;
}

int
app_boot_get(struct app_boot *boot, uint32_t rank, const char *key, void **buf, size_t *len,
	uint32_t timeout_ms)
{
	struct patience p = patience_of(rank, timeout_ms);
	char name[PMIX_MAX_KEYLEN + 1];
	int rc, left;

	while (boot->lost[rank] == 0) {
		rc = get_once(boot, &p, key, buf, len);
		if (rc == 0 && *len > VALUE_BLOB) {
			free(*buf);
			large_key(name, key, *len);
			rc = get_once(boot, &p, name, buf, len);
		}
		if (rc != -ENOENT)
			return rc;
		left = patience_left(boot, &p);
		if (left != 0)
			return left;
		crpc_nap(ASK_NS);
	}
	return -EHOSTDOWN;
}

int
app_boot_take(struct app_boot *boot, uint32_t rank, const char *key, void *buf, size_t len,
	uint32_t timeout_ms)
{
	void *blob;
	size_t found;
	int rc = app_boot_get(boot, rank, key, &blob, &found, timeout_ms);

	if (rc != 0)
		return rc;
	if (found == len)
		memcpy(buf, blob, len);
	free(blob);
	return found == len ? 0 : -EPROTO;
}

int
app_boot_fence_start(struct app_boot *boot)
{
	struct boot_wait *w;
	pmix_status_t rc;
	bool yes = true;

	if (!boot->launched)
		return 0;
	w = calloc(1, sizeof(*w));
	if (w == NULL)
		return -EIO;
	/* Without this Slurm's tree fence completes before all ranks are there. */
	PMIX_INFO_LOAD(&w->info, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
	wait_share(w);
	rc = PMIx_Fence_nb(NULL, 0, &w->info, 1, op_answer, w);
	if (rc != PMIX_SUCCESS) {
		free(w);
		return -EIO;
	}
	if (boot->fence != NULL) /* One that timed out. */
		wait_put(boot->fence);
	boot->fence = w;
	return 0;
}

int
app_boot_fence_done(struct app_boot *boot)
{
	struct boot_wait *w = boot->fence;
	int rc;

	if (w == NULL)
		return 0;
	if (crpc_load_acquire(&w->done) == 0) /* A1 pairs with R1 */
		return -EAGAIN;
	rc = w->status == PMIX_SUCCESS ? 0 : -EIO;
	wait_put(w);
	boot->fence = NULL;
	return rc;
}

int
app_boot_fence(struct app_boot *boot, uint32_t timeout_ms)
{
	struct patience p = patience_of(UINT32_MAX, timeout_ms);
	int rc = app_boot_fence_start(boot), left;

	if (rc != 0)
		return rc;
	while ((rc = app_boot_fence_done(boot)) == -EAGAIN) {
		left = patience_left(boot, &p);
		if (left != 0)
			return left;
		crpc_nap(100000);
	}
	return rc;
}

int
app_boot_exchange(struct app_boot *boot, const char *key, const void *mine, size_t len, void *all,
	uint32_t timeout_ms)
{
	int rc = app_boot_put(boot, key, mine, len);
	uint8_t *to = all;

	if (rc == 0)
		rc = app_boot_fence(boot, timeout_ms);
	for (uint32_t i = 0; i < boot->size && rc == 0; i++, to += len)
		if (i == boot->rank)
			memcpy(to, mine, len);
		else
			rc = app_boot_take(boot, i, key, to, len, timeout_ms);
	return rc;
}

/* What app_boot_agree() publishes. */
struct boot_verdict {
	int32_t rc;
	char text[1020];
};

/* A rank has died: the first one that lives says so. */
static int
agree_lost(const struct app_boot *boot, const char *step)
{
	uint32_t dead = 0;

	while (dead + 1 < boot->size && !app_boot_gone(boot, dead))
		dead++;
	return app_fail_once("rank %u has died before the end of '%s'; start again", dead, step);
}

/* Publish ours, and wait for all: 0, -EHOSTDOWN, or another -errno. */
static int
agree_publish(struct app_boot *boot, const char *step, const struct boot_verdict *mine)
{
	struct patience p;
	int rc = app_boot_put(boot, step, mine, sizeof(*mine));

	if (rc == 0)
		rc = app_boot_fence(boot, BOOT_TIMEOUT_MS);
	if (rc != -EIO)
		return rc;
	/* PMIx may know of a death before we do */
	p = patience_of(UINT32_MAX, GONE_MS);
	while (!p.gone && patience_left(boot, &p) == 0)
		crpc_nap(ASK_NS);
	return p.gone ? -EHOSTDOWN : rc;
}

int
app_boot_agree(struct app_boot *boot, const char *step, int rc)
{
	struct boot_verdict mine = {.rc = rc}, theirs;
	int err;

	app_fail_hold(false);
	snprintf(mine.text, sizeof(mine.text), "%s", app_fail_held());
	if (boot->size == 1)
		return rc == 0 ? 0 : (app_fail("%s", mine.text), rc);
	err = agree_publish(boot, step, &mine);
	if (err == -EHOSTDOWN)
		return agree_lost(boot, step);
	if (err != 0)
		return app_fail_once(
			"the ranks did not all come to '%s' within %d s; one has died, or "
			"its host is too busy: start again",
			step, BOOT_TIMEOUT_MS / 1000);
	for (uint32_t rank = 0; rank < boot->size; rank++) {
		theirs = mine;
		err = rank == boot->rank
			? 0
			: app_boot_take(boot, rank, step, &theirs, sizeof(theirs), BOOT_TIMEOUT_MS);
		if (err == -EHOSTDOWN)
			return agree_lost(boot, step);
		if (err != 0)
			return app_fail(
				"rank %u did not say how '%s' went; start again", rank, step);
		if (theirs.rc == 0)
			continue;
		if (rank == boot->rank)
			app_fail("rank %u: %s", rank, mine.text);
		else
			app_fail_let_speak();
		return theirs.rc;
	}
	return 0;
}
