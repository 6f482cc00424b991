/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One slice: both processes open a way, pass arrays for a while, and close it. Every array differs
 * from the one before, and every element is compared, outside of the timed part.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crpc_idle.h"
#include "tensor.h"

#define PASSES_MIN 3
#define PASSES_MAX 1000
#define WARM       2 /* passes that are not counted */
#define JOIN_MS    10000
#define SETTLE_NS  2000

const char *const tensor_stage_names[TENSOR_STAGES] = {
	"serialize", "send", "receive", "deserialize", "total", "read"};

static char why[512];

int
tensor_why(int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	return rc;
}

const char *
tensor_why_text(void)
{
	return why;
}

/* Element i of array number seq: a whole number that bf16 has too. */
static inline float
element(uint32_t i, uint32_t seq)
{
	return (float)((i + seq) & 255);
}

static void
array_write(float *x, uint32_t n, uint32_t seq)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		x[i] = element(i, seq);
}

/* Let the last writes of an array leave the core: they are not of the pass that follows. */
static void
settle(void)
{
	uint64_t t0 = crpc_clock_ns();

	while (crpc_clock_ns() - t0 < SETTLE_NS)
		crpc_pause();
}

static uint64_t
array_compare(const float *x, uint32_t n, uint32_t seq)
{
	uint64_t wrong = 0;
	uint32_t i;

	for (i = 0; i < n; i++)
		wrong += x[i] != element(i, seq);
	return wrong;
}

/* Load every element, as whoever uses the array does. */
static void
array_read(const float *x, uint32_t n)
{
	uint32_t i, word, sum = 0;

	for (i = 0; i < n; i++) {
		memcpy(&word, &x[i], sizeof(word));
		sum += word;
	}
	__asm__ __volatile__("" : : "r"(sum));
}

/* ---- second process ---- */

void
tensor_use(struct tensor_user *u, const float *x)
{
	u->answer.done = crpc_clock_ticks();
	array_read(x, u->elems);
	u->answer.read = crpc_clock_ticks();
	u->answer.wrong = array_compare(x, u->elems, u->seq++);
}

static int
serve(struct rpb_pair *p, void *arg)
{
	const struct tensor_conf *c = arg;
	const struct tensor_way *way = tensor_ways[c->way];
	struct tensor_user u = {.elems = c->elems};
	void *server = way->serve_open(p, c);
	int rc = 0;

	if (server == NULL)
		return -EIO;
	rpb_pair_set_ready(p);
	while (rc == 0 && !rpb_pair_stopped(p))
		rc = way->serve(server, &u);
	if (rc != 0)
		rpb_pair_fail(p, rc, "%s: %s", way->name, strerror(-rc));
	way->serve_close(server);
	return rc;
}

/* ---- first process ---- */

static double
us_between(uint64_t from, uint64_t to)
{
	/*
	 * The counters of two cores differ by some ns: what looks like less than nothing is none.
	 */
	return to <= from ? 0 : (double)crpc_clock_ticks_to_ns(to - from) / 1e3;
}

static void
stages_of(const struct tensor_pass *t, double us[TENSOR_STAGES])
{
	/* What the receiver had before the sender's call returned belongs to the call. */
	uint64_t sent = crpc_min(t->sent, crpc_max(t->answer.received, t->serialized));

	us[TENSOR_SERIALIZE] = us_between(t->begin, t->serialized);
	us[TENSOR_SEND] = us_between(t->serialized, sent);
	us[TENSOR_RECEIVE] = us_between(sent, t->answer.received);
	us[TENSOR_DESERIALIZE] = us_between(t->answer.received, t->answer.done);
	us[TENSOR_TOTAL] = us_between(t->begin, t->answer.done);
	us[TENSOR_READ] = us_between(t->answer.done, t->answer.read);
}

static int
cmp_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Passes for a while; sample[stage][pass]. Returns their number, or -errno. */
static int
pass_all(const struct tensor_way *way, void *client, const struct tensor_run *run,
	double (*sample)[PASSES_MAX])
{
	uint32_t elems = (uint32_t)(run->opt->size / sizeof(float)), seq, stage;
	uint64_t end = crpc_clock_ns() + run->opt->slice_ms * UINT64_C(1000000);
	double us[TENSOR_STAGES];
	struct tensor_pass t;
	int rc, n = 0;

	for (seq = 0; n < PASSES_MAX && (n < PASSES_MIN || crpc_clock_ns() < end); seq++) {
		array_write(way->array(client), elems, seq);
		settle();
		rc = way->pass(client, &t);
		if (rc != 0)
			return rc;
		if (t.answer.wrong != 0)
			return tensor_why(-EIO, "%lu of %u elements arrived wrong",
				(unsigned long)t.answer.wrong, elems);
		if (seq < WARM)
			continue;
		stages_of(&t, us);
		for (stage = 0; stage < TENSOR_STAGES; stage++)
			sample[stage][n] = us[stage];
		n++;
	}
	return n;
}

static int
pass_slice(const struct tensor_way *way, const struct tensor_run *run,
	const struct tensor_conf *c, double us[TENSOR_STAGES])
{
	double (*sample)[PASSES_MAX] = calloc(TENSOR_STAGES, sizeof(*sample));
	void *client = NULL;
	uint32_t stage;
	int n = -ENOMEM;

	if (sample == NULL)
		return tensor_why(n, "no memory");
	client = way->open(run->rpb->pair, c);
	n = client == NULL ? -EIO : pass_all(way, client, run, sample);
	for (stage = 0; n > 0 && stage < TENSOR_STAGES; stage++) {
		qsort(sample[stage], (size_t)n, sizeof(double), cmp_double);
		us[stage] = sample[stage][n / 2];
	}
	if (client != NULL)
		way->close(client);
	free(sample);
	return n < 0 ? n : 0;
}

/* What a second process that was killed could not remove. */
static void
leftovers_remove(const struct tensor_conf *c)
{
	char path[sizeof(c->name) + 32];

	snprintf(path, sizeof(path), "/dev/shm/crpc.%s", c->name);
	unlink(path);
	snprintf(path, sizeof(path), "/dev/shm/crpc.%s.ipc", c->name);
	unlink(path);
}

int
tensor_slice(struct tensor_run *run, enum tensor_way_id way, double us[TENSOR_STAGES],
	uint64_t *away_ns)
{
	static uint32_t slices;
	struct tensor_conf c = {.way = way, .elems = (uint32_t)(run->opt->size / sizeof(float))};
	struct rpb_pair *p = run->rpb->pair;
	uint64_t before = app_measure_away_ns();
	int rc, served;

	why[0] = '\0';
	snprintf(c.name, sizeof(c.name), "rpcbench.%ld.t%u", (long)getpid(), slices++);
	rc = rpb_pair_run(p, serve, &c, sizeof(c));
	if (rc == 0)
		rc = pass_slice(tensor_ways[way], run, &c, us);
	rpb_pair_stop(p);
	served = rpb_pair_join(p, TENSOR_MEET_MS + JOIN_MS);
	*away_ns = app_measure_away_ns() - before;
	if (served == -ECHILD)
		leftovers_remove(&c);
	/* What the second process says is the cause, if it failed too. */
	if (served != 0)
		return tensor_why(served, "%s", rpb_pair_why(p)[0] != '\0' ? rpb_pair_why(p) :
			strerror(-served));
	return rc;
}
