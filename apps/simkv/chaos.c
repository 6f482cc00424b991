/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "app_fail.h"
#include "app_opt.h"
#include "app_stop.h"
#include "chaos.h"
#include "crpc_log.h"
#include "sim.h"
#include "wgl.h"

/* Operations of a run that are recorded at most; of a key, configurations to look at. */
#define RECORDS        400000u
#define CONFIGURATIONS 300000u
/* Who put the keys that are there at the begin. */
#define LOADER UINT32_MAX
#define US     UINT64_C(1000)

/* ---- what is drawn ---- */

static uint64_t
pick(uint64_t *rng, uint64_t n)
{
	return crpc_random(rng) % n;
}

/* From low to high, as likely from 1 to 2 as from 10 to 20. */
static uint64_t
pick_wide(uint64_t *rng, uint64_t low, uint64_t high)
{
	while (low * 2 < high && pick(rng, 3) != 0)
		low *= 2;
	return low + pick(rng, crpc_min(low, high - low));
}

static void
draw_cluster(struct sim_options *o, uint64_t *rng)
{
	static const uint64_t begin[] = {0, UINT64_C(1) << 32, UINT64_C(1) << 36, 0};
	uint64_t shift = begin[pick(rng, CRPC_DIM(begin))];

	o->hosts = pick(rng, 8) == 0 ? 2 + pick(rng, SIM_CHAOS_HOSTS_MAX - 1) : 2 + pick(rng, 6);
	o->clients = o->hosts > 8 ? 1 + pick(rng, 3) : pick(rng, 8) == 0 ? 64 : 1 + pick(rng, 8);
	o->depth = 1 + pick(rng, o->clients == 64 ? 8 : 4);
	o->keys = 1 + o->clients * o->depth * (1 + pick(rng, 3)) / 2;
	o->read_ratio = (double)(2 + pick(rng, 6)) / 10;
	o->delete_ratio = pick(rng, 2) == 0 ? 0.1 : 0;
	o->cas = pick(rng, 3) == 0;
	o->transport = (unsigned int)pick(rng, 2);
	o->flow = pick(rng, 2) == 0 ? CRPC_COPYRPC_FLOW_WINDOW : (unsigned int)pick(rng, 3);
	o->flush = (unsigned int)pick(rng, 4);
	o->hold_us = (double)pick(rng, 2) * 5;
	o->ring = 1024 << pick(rng, 5);
	o->connect = (unsigned int)pick(rng, 2);
	/* Positions shortly before they leave 32 bits, their counts do, or they wrap. */
	o->initial_pos = pick(rng, 2) == 0 ? 0 : shift - 16 * pick(rng, 4096);
	o->notice_ns = pick(rng, 2) == 0 ? 0 : pick_wide(rng, 20 * US, 1000 * US);
	o->refuse = pick(rng, 3) == 0 ? pick(rng, 3000) : 0;
	o->timeout_ns = (300 + pick(rng, 700) + 6 * o->clients * o->depth) * US;
}

static void
draw_fault(struct sim_fault *f, const struct sim_options *o, uint64_t run, uint64_t *rng)
{
	*f = (struct sim_fault){0};
	f->kind = (enum sim_fault_kind)pick(rng, SIM_FAULT_KINDS);
	f->host = (uint32_t)pick(rng, o->hosts);
	f->at = pick(rng, run);
	f->number = (uint32_t)pick(rng, o->hosts);
	f->length = f->kind == SIM_BREAK ? 0
		: f->kind == SIM_PAUSE   ? pick_wide(rng, 10 * US, 8 * o->timeout_ns)
					 : (100 + pick(rng, 900)) * US;
}

/* The measured part begins when the faults are over, and hosts have had time to connect again. */
static void
draw(const struct sim_options *base, struct sim_options *o)
{
	uint64_t seed = base->chaos, rng = crpc_random(&seed), run, ops, think;

	*o = *base;
	o->seed = base->chaos;
	o->verify = true;
	o->watch_ns = 50 * US;
	draw_cluster(o, &rng);
	think = pick(&rng, 4) == 0 ? (20 + pick(&rng, 180)) * US : US;
	run = (300 + pick(&rng, 1200)) * US;
	if (pick(&rng, 24) == 0) { /* So long that daemons ask each other whether they are there. */
		run = 220000 * US;
		o->hosts = 2 + pick(&rng, 2);
		o->clients = 1 + pick(&rng, 2);
		o->depth = 1;
		think = (200 + pick(&rng, 2000)) * US; /* And peers hear nothing for long. */
	}
	o->faults.n = (uint32_t)pick(&rng, 6);
	for (uint32_t i = 0; i < o->faults.n; i++)
		draw_fault(&o->faults.v[i], o, run, &rng);
	run = crpc_max(run, sim_faults_end(&o->faults)) + 6 * o->timeout_ns + o->notice_ns;
	ops = pick(&rng, 8) == 0 ? 40000 : 5000;
	think = crpc_max(think, o->hosts * o->clients * run / ops);
	o->model.cpu.client = think * 1000;
	o->model.nic.lost = 100 * US * 1000;
	/* A client makes its calls one after the other, and learns late that its host was away. */
	o->warmup_ms = (double)(run + 2 * o->depth * think) / 1e6;
	o->virtual_ms = (double)(300 * US + 4 * think) / 1e6;
}

/* ---- the history ---- */

static const struct sim_world *clock_of;

static uint64_t
clock_ns(void)
{
	return clock_of->heap[0]->at;
}

/* What is there of a key at the begin, and the restarts of its host. */
static const char *
key_add(const struct sim_world *w, struct history *h, uint32_t id)
{
	struct app_history_op op = {.key = id,
		.ret = 1,
		.value = app_word(id, 0, 1),
		.client = LOADER,
		.kind = APP_HISTORY_PUT,
		.state = APP_HISTORY_OK};
	const char *wrong = hist_add(h, &op, 0);
	uint8_t key[CRPC_KV_KEY_MIN];
	uint32_t owner;

	kv_key_write(key, sizeof(key), id);
	owner = kv_owner(kv_hash(key, sizeof(key)), w->hosts);
	op.kind = APP_HISTORY_RESTART;
	for (uint32_t i = 0; i < w->restarts && wrong == NULL; i++) {
		op.call = w->restart[i].died;
		op.ret = w->restart[i].back;
		if (owner == w->restart[i].host)
			wrong = hist_add(h, &op, 0);
	}
	return wrong;
}

/* Operations, the keys' first values and the restarts of hosts. @return NULL, or what is wrong. */
static const char *
history_make(const struct sim_world *w, struct history *h)
{
	const struct app_records *records = w->records;
	const char *wrong = NULL;

	for (uint32_t id = 0; id < w->load.keys.n && wrong == NULL; id++)
		wrong = key_add(w, h, id);
	for (uint64_t i = 0; i < records->head->ops && wrong == NULL; i++)
		wrong = hist_add(h, &records->op[i], i);
	return wrong == NULL && !hist_sort(h) ? "no memory for its history" : wrong;
}

/* Whether an order of each key's operations explains what was seen, or none was found in time. */
static void
history_check(const struct sim_world *w, uint64_t *undecided, char why[256])
{
	struct history h = {0};
	const char *wrong = history_make(w, &h);
	struct wgl_report report;
	enum wgl_verdict verdict;
	size_t n;

	for (size_t at = 0; at < h.n && wrong == NULL && *why == '\0'; at += n) {
		n = hist_same_key(h.op + at, h.n - at);
		verdict = wgl_check(h.op + at, n, CONFIGURATIONS, &report);
		*undecided += verdict == WGL_UNDECIDED;
		if (verdict == WGL_NO)
			snprintf(why, 256, "key %" PRIu64 " is not linearizable", h.op[at].key);
		else if (verdict == WGL_NOMEM)
			wrong = "no memory for the check of its history";
	}
	if (wrong != NULL)
		snprintf(why, 256, "%s", wrong);
	free(h.op);
}

/* ---- the verdict ---- */

/* What all seeds did. */
struct sums {
	uint64_t seeds, ops, failed, lost, restarts, undecided, overflows, faults[SIM_FAULT_KINDS];
};

/*
 * A call ends by its deadline, which is looked at eight times as often, whatever the others do;
 * only faults of its own host add to it.
 */
static void
was_late(const struct sim_world *w, uint32_t host, char why[256])
{
	uint64_t most = w->opt->timeout_ns * 5 / 4 + 50 * US;

	for (uint32_t i = 0; i < w->faults.n; i++)
		if (w->faults.v[i].host == host)
			most += 2 * w->faults.v[i].length;
	if (w->host[host].longest > most)
		snprintf(why, 256, "a call of host %u took %" PRIu64 " us, more than %" PRIu64,
			host, w->host[host].longest / US, most / US);
}

/* Whether what must hold does not; then why[] has the reason. */
static bool
is_wrong(struct sim_world *w, const struct sim_result *r, struct sums *s, char why[256])
{
	uint64_t no_peer = 0, failed = 0;

	for (uint64_t i = 0; i < w->records->head->ops; i++)
		failed += w->records->op[i].state == APP_HISTORY_OPEN ||
			w->records->op[i].state == APP_HISTORY_REFUSED;
	s->failed += failed;
	for (uint32_t i = 0; i < w->hosts; i++)
		for (uint32_t k = 0; k < w->hosts; k++)
			no_peer += w->opt->connect == APP_CONNECT_START &&
				crpc_kv_server_peer(w->host[i].server, k) != CRPC_KV_PEER_UP;
	*why = '\0';
	if (w->records->head->lost == 0)
		history_check(w, &s->undecided, why);
	else
		s->overflows++;
	if (*why != '\0')
		return true;
	if (w->unnoticed != 0)
		snprintf(why, 256, "%" PRIu64 " hosts did not notice one that stood still",
			w->unnoticed);
	else if (no_peer != 0)
		snprintf(why, 256, "%" PRIu64 " connections are missing at the end", no_peer);
	else if (r->load.failed != 0 || r->quiet_min == 0)
		snprintf(why, 256,
			"after all faults %" PRIu64 " operations failed (%" PRIu64 " lost, %" PRIu64
			" late), and the host with the fewest had %" PRIu64,
			r->load.failed, r->load.failed_of[APP_LOAD_LOST],
			r->load.failed_of[APP_LOAD_TIME], r->quiet_min);
	else if (w->faults.n == 0 && r->lost + failed != 0)
		snprintf(why, 256,
			"without a fault %" PRIu64 " operations failed, and %" PRIu64
			" ranks were lost",
			failed, r->lost);
	for (uint32_t i = 0; i < w->hosts && *why == '\0'; i++)
		was_late(w, i, why);
	return *why != '\0';
}

static void
print_draw(FILE *out, const struct sim_options *o)
{
	const struct sim_fault *f;

	fprintf(out,
		"  %" PRIu64 " hosts, %" PRIu64 " clients of depth %" PRIu64 ", %" PRIu64
		" keys, %s, %s, %s, ring %" PRIu64 ", connect %s, deadline %" PRIu64 " us%s",
		o->hosts, o->clients, o->depth, o->keys, app_transport_names[o->transport],
		app_flow_names[o->flow], app_flush_names[o->flush], o->ring,
		app_connect_names[o->connect], o->timeout_ns / US, o->faults.n != 0 ? "\n " : "");
	for (uint32_t i = 0; i < o->faults.n; i++) {
		f = &o->faults.v[i];
		fprintf(out, " %s:%u", sim_fault_names[f->kind], f->host);
		if (f->kind == SIM_BREAK)
			fprintf(out, ".%u@%.1f", f->number, (double)f->at / 1e3);
		else
			fprintf(out, "@%.1f+%.1f", (double)f->at / 1e3, (double)f->length / 1e3);
	}
	fputc('\n', out);
}

static int
seed_run(const struct sim_options *base, struct app_records *records, struct sums *s)
{
	static struct sim_result r;
	struct sim_world w = {.records = records};
	struct sim_options o;
	char why[256] = "";
	int rc;

	draw(base, &o);
	memset(records->head, 0, sizeof(*records->head));
	clock_of = &w;
	app_fail_hold(true);
	rc = sim_world_run(&w, &o, &r);
	app_fail_hold(false);
	if (rc == APP_EXIT_RUN)
		snprintf(why, sizeof(why), "%s", app_fail_held());
	else if (rc == APP_EXIT_USAGE)
		app_fail("%s", app_fail_held());
	else if (app_stopped() == 0 && is_wrong(&w, &r, s, why))
		rc = APP_EXIT_RUN;
	s->seeds++;
	s->ops += r.answered;
	s->lost += r.lost;
	s->restarts += w.restarts;
	for (uint32_t i = 0; i < o.faults.n; i++)
		s->faults[o.faults.v[i].kind]++;
	if (rc == APP_EXIT_RUN)
		app_fail("seed %" PRIu64 ": %s", o.seed, why);
	if (rc == APP_EXIT_RUN || app_opt_verbose)
		print_draw(rc == APP_EXIT_RUN ? stderr : stdout, &o);
	sim_world_close(&w);
	return rc;
}

static int
report(struct app_out *out, const struct sim_options *o, const struct sums *s, int found)
{
	const struct app_trial trial = {0};
	json_t *rows = json_array(), *row = app_row(out, "result", &trial);

	app_row_set(row, "{s:b,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b}", "virtual", 1, "first_seed",
		(json_int_t)o->chaos, "seeds", (json_int_t)s->seeds, "operations",
		(json_int_t)s->ops, "failed_operations", (json_int_t)s->failed, "lost_ranks",
		(json_int_t)s->lost, "restarts", (json_int_t)s->restarts, "undecided_keys",
		(json_int_t)s->undecided, "unchecked_seeds", (json_int_t)s->overflows, "found",
		found == APP_EXIT_RUN);
	for (uint32_t i = 0; i < SIM_FAULT_KINDS; i++)
		app_row_set(row, "{s:I}", sim_fault_names[i], (json_int_t)s->faults[i]);
	json_array_append_new(rows, row);
	return app_out_rows(out, "chaos", &trial, rows);
}

int
sim_chaos(struct app_out *out, const struct sim_options *o)
{
	struct app_records records = {.max = RECORDS, .keys = UINT32_MAX, .now_ns = clock_ns};
	struct sim_options one = *o;
	struct sums s = {0};
	int rc = 0;

	records.head = calloc(1, sizeof(*records.head));
	records.op = calloc(RECORDS, sizeof(*records.op));
	if (records.head == NULL || records.op == NULL)
		rc = app_fail("no memory for a history");
	crpc_log_set_sink(NULL, 0);
	for (; rc == 0 && one.chaos < o->chaos + o->seeds && app_stopped() == 0; one.chaos++) {
		app_out_progress("simkv", one.chaos - o->chaos, o->seeds);
		rc = seed_run(&one, &records, &s);
	}
	if (rc != APP_EXIT_USAGE && report(out, o, &s, rc) != 0)
		rc = APP_EXIT_RUN;
	free(records.head);
	free(records.op);
	return rc;
}
