/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_launch.h>
#include <rte_lcore.h>

#include "app_driver.h"
#include "app_lcore.h"
#include "app_link.h"
#include "app_party.h"
#include "app_stop.h"
#include "crpc_clock.h"
#include "crpc_file.h"
#include "crpc_shm.h"

#define OVER    1u
#define FAILED  2u
#define LOOK_NS 1000000u
/* Bytes that are sent before the peer's are received: any socket has room for them. */
#define PIECE 8192u
/* Looks for bytes before the thread sleeps, each time for so long. */
#define SPINS    2000
#define SLEEP_MS 10
/* Longer than the peer may be busy with a slice, or with proving a gigabyte. */
#define WAIT_NS UINT64_C(150000000000)
#define LINGER_NS UINT64_C(100000000)
/* How a second process ended is known shortly after its sockets are closed. */
#define ENDED_MS 100
/* The segment in which two ranks of a host play the ping-pong. */
#define KIND      CRPC_SHM_KIND('A', 'P', 'P', 'C')
#define AT        4096
#define ATTACH_MS 5000

bool
app_party_stopped(const struct app_party *p)
{
	return p->stop || (!app_party_apart(p) && app_stopped() != 0);
}

/* ---- both sides ---- */

struct job {
	app_side_fn fn;
	void *arg;
	int rc;
	_Atomic uint32_t ended;
};

static int
second_run(void *arg)
{
	struct job *job = arg;

	job->rc = job->fn(job->arg, 1);
	crpc_store_release(&job->ended, 1); /* R74 */
	return 0;
}

int
app_party_both(struct app_party *p, app_side_fn fn, void *arg)
{
	struct job job = {.fn = fn, .arg = arg};
	int first, rc;

	if (app_party_apart(p))
		return fn(arg, p->side);
	if (p->place == APP_PLACE_SAME) {
		first = fn(arg, 0);
		return first != 0 ? first : fn(arg, 1);
	}
	rc = rte_eal_remote_launch(second_run, &job, p->second);
	if (rc != 0)
		return rc;
	first = fn(arg, 0);
	/* A74 pairs with R74: what the other side did. */
	while (crpc_load_acquire(&job.ended) == 0)
		crpc_pause();
	rte_eal_wait_lcore(p->second);
	return first != 0 ? first : job.rc;
}

/* The peer is lost: report it, end the run. Returns rc. */
static int
lost(struct app_party *p, int rc)
{
	if (!p->stop && p->place == APP_PLACE_RANK)
		app_note("rank %d is lost: %s", !p->side, strerror(-rc));
	else if (!p->stop && p->side == 0)
		app_note("%s",
			app_process_ended(p->process, ENDED_MS) ? p->process->why : strerror(-rc));
	p->stop = p->lost = true;
	return rc;
}

/* Whether the other rank has ended. What it sent may be on its way for a moment. */
static bool
rank_gone(struct app_party *p, uint64_t now)
{
	if (p->place != APP_PLACE_RANK)
		return false;
	app_boot_look(&p->boot, now);
	if (!app_boot_gone(&p->boot, 1 - p->boot.rank))
		return false;
	if (p->gone_ns == 0)
		p->gone_ns = now;
	return now - p->gone_ns > LINGER_NS;
}

/* Nothing has come for this long: sleep, unless nothing can come any more. */
static int
piece_await(struct app_party *p, uint64_t begin_ns)
{
	struct pollfd in = {.fd = p->sock, .events = POLLIN};
	uint64_t now = crpc_clock_ns();

	if (rank_gone(p, now))
		return -ECONNRESET;
	/* A first process may wait for whoever reads its output. */
	if ((p->side == 0 || p->place == APP_PLACE_RANK) && now - begin_ns > WAIT_NS)
		return -ETIMEDOUT;
	poll(&in, 1, SLEEP_MS);
	return 0;
}

static int
piece_recv(struct app_party *p, uint8_t *to, size_t len)
{
	uint64_t begin_ns = crpc_clock_ns();
	uint32_t spins = 0;
	ssize_t n;
	int rc = 0;

	while (len > 0 && rc == 0) {
		n = app_link_recv(p->sock, to, len);
		if (n < 0)
			return (int)n;
		to += n;
		len -= (size_t)n;
		if (n == 0 && ++spins < SPINS)
			sched_yield();
		else if (n == 0)
			rc = piece_await(p, begin_ns);
	}
	return rc;
}

int
app_party_swap(struct app_party *p, const void *mine, void *theirs, size_t len)
{
	size_t n;
	int rc = 0;

	if (p->stop)
		return -ECANCELED;
	for (size_t at = 0; app_party_apart(p) && at < len && rc == 0; at += n) {
		n = crpc_min(len - at, (size_t)PIECE);
		rc = app_link_send(p->sock, (const uint8_t *)mine + at, n);
		if (rc == 0)
			rc = piece_recv(p, (uint8_t *)theirs + at, n);
	}
	return rc == 0 ? 0 : lost(p, rc);
}

int
app_party_barrier(struct app_party *p)
{
	uint32_t phase = crpc_load_relaxed(&p->phase), other;

	if (app_party_apart(p))
		return app_party_swap(p, &phase, &other, sizeof(phase));
	/* AR70 pairs with itself: what either did before is seen by both behind. */
	if (crpc_fetch_add_acq_rel(&p->arrived, 1) == 1) {
		crpc_store_relaxed(&p->arrived, 0);
		crpc_store_release(&p->phase, phase + 1); /* R71 */
		return 0;
	}
	while (crpc_load_acquire(&p->phase) == phase) /* A71 pairs with R71 */
		crpc_pause();
	return 0;
}

double
app_party_max(struct app_party *p, double mine)
{
	double theirs = mine;

	return app_party_swap(p, &mine, &theirs, sizeof(mine)) != 0 ? mine : fmax(mine, theirs);
}

void
app_party_begin(struct app_party *p, int side)
{
	crpc_store_relaxed(&p->flag[side].over, 0);
	if (p->place == APP_PLACE_RANK)
		crpc_store_relaxed(&p->flag[!side].over, 0);
}

void
app_party_fail(struct app_party *p, int side)
{
	crpc_store_release(&p->flag[side].over, FAILED); /* R72 */
}

int
app_party_over(struct app_party *p, int side, int rc)
{
	uint8_t over = rc < 0 ? FAILED : OVER;
	int err = 0;

	crpc_store_release(&p->flag[side].over, over); /* R72 */
	if (p->place == APP_PLACE_RANK && p->stop)
		return -ECANCELED;
	if (p->place == APP_PLACE_RANK)
		err = app_link_send(p->sock, &over, sizeof(over));
	return err == 0 ? 0 : lost(p, err);
}

/* What a rank sent when it was over; whether a second process lives, which leaves a flag. */
static ssize_t
peer_look(struct app_party *p, uint8_t *over)
{
	uint64_t now = crpc_clock_ns();
	ssize_t n;

	if (now - p->looked_ns < LOOK_NS) /* These are system calls. */
		return 0;
	p->looked_ns = now;
	if (p->place == APP_PLACE_PROCESS)
		return recv(p->sock, over, 1, MSG_PEEK | MSG_DONTWAIT) == 0 ? -ECONNRESET : 0;
	n = app_link_recv(p->sock, over, 1);
	return n == 0 && rank_gone(p, now) ? -ECONNRESET : n;
}

int
app_party_look(struct app_party *p, int side)
{
	_Atomic uint32_t *flag = &p->flag[!side].over;
	uint32_t over = crpc_load_acquire(flag); /* A72 pairs with R72 */
	uint8_t came;
	ssize_t n;

	if (app_party_apart(p) && over == 0) {
		n = peer_look(p, &came);
		if (n <= 0)
			return n == 0 ? 0 : lost(p, (int)n);
		over = came == FAILED ? FAILED : OVER;
		crpc_store_relaxed(flag, over);
	}
	return over == FAILED ? -EIO : (int)over;
}

/* ---- the ping-pong ---- */

static int
play(void *arg, int side)
{
	struct app_party *p = arg;

	if (side == 1)
		app_court_pong(p->court);
	else
		p->line_ns = app_court_ping(p->court);
	return 0;
}

double
app_party_line_ns(struct app_party *p)
{
	if (p->court == NULL || p->stop)
		return 0;
	if (app_party_plays(p, 0))
		app_court_reset(p->court);
	if (app_party_apart(p) && app_party_barrier(p) != 0)
		return 0;
	if (app_party_both(p, play, p) != 0)
		return APP_COURT_LATE_NS;
	return app_party_max(p, p->line_ns);
}

/* Two ranks of one host: a segment that both have mapped. */
static void
court_open(struct app_party *p)
{
	struct { /* What the ranks exchange about it. */
		char name[48];
		uint32_t made;
	} mine = {0}, theirs;
	const struct crpc_shm_conf conf = {.name = mine.name,
		.size = AT + sizeof(struct app_court),
		.kind = KIND,
		.kind_version = 1};

	if (p->shared || !p->one_host)
		return;
	crpc_shm_sweep(NULL, "party."); /* Of a run that was killed while it had a name. */
	snprintf(mine.name, sizeof(mine.name), "party.%ld", (long)getpid());
	if (p->side == 0 && (p->segment = crpc_shm_create(&conf)) != NULL)
		crpc_shm_ready(p->segment);
	if (app_party_swap(p, &mine, &theirs, sizeof(mine)) != 0)
		return;
	theirs.name[sizeof(theirs.name) - 1] = '\0';
	if (p->side == 1)
		p->segment = crpc_shm_attach(NULL, theirs.name, KIND, 1, ATTACH_MS);
	mine.made = p->segment != NULL;
	/* Both play, or neither does. */
	if (app_party_swap(p, &mine, &theirs, sizeof(mine)) == 0 && mine.made && theirs.made != 0)
		p->court = crpc_shm_ptr(p->segment, AT, sizeof(*p->court));
	/* Both have it: without a name nothing is left of it, however they end. */
	if (p->side == 0 && p->segment != NULL)
		crpc_shm_hide(p->segment);
}

/* ---- start and end ---- */

/* The second lcore, if it has a core of its own. */
static void
lcores_find(struct app_party *p)
{
	unsigned int second = rte_get_next_lcore(-1U, 1, 0);
	int cpu = app_eal_core_of(rte_get_main_lcore());

	p->one_host = true;
	snprintf(p->lcores, sizeof(p->lcores), "%d", cpu);
	if (second == RTE_MAX_LCORE || app_eal_core_of(second) == cpu)
		return;
	p->second = second;
	p->place = APP_PLACE_LCORE;
	p->court = &p->own_court;
	snprintf(p->lcores, sizeof(p->lcores), "%d,%d", cpu, app_eal_core_of(second));
}

/* What a rank publishes about itself. */
struct card {
	char host[64];
	char commit[64];
	int32_t cpu;
};

static int
cards_swap(struct app_party *p, struct card card[APP_SIDES])
{
	struct card *mine = &card[p->side];

	memset(card, 0, APP_SIDES * sizeof(*card));
	gethostname(mine->host, sizeof(mine->host) - 1);
	mine->cpu = app_eal_core_of(rte_get_main_lcore());
	snprintf(mine->commit, sizeof(mine->commit), "%s", app_env_commit());
	if (app_party_swap(p, mine, &card[!p->side], sizeof(*mine)) != 0)
		return APP_EXIT_RUN;
	/* The exchanged structures are those of one build. */
	if (memcmp(card[0].commit, card[1].commit, sizeof(card[0].commit)) != 0)
		return app_fail_once("the ranks are of different builds, %.63s and %.63s; start "
				     "the same one on both hosts",
			card[0].commit, card[1].commit);
	return 0;
}

/*
 * The device of two ranks, and its port's rate: the kernel has "100 Gb/sec (4X EDR)". Without
 * --device there may be none: lanes that need one say so.
 */
static int
device_check(struct app_party *p, const char *device)
{
	struct crpc_rdma_info info;
	int rc = app_driver_check(device, &info);
	char path[160];

	if (rc != 0 || p->one_host)
		return rc;
	snprintf(
		path, sizeof(path), "/sys/class/infiniband/%s/ports/%u/rate", info.name, info.port);
	p->port_gbps = (double)crpc_max(__crpc_file_number(path), 0) / 8;
	return 0;
}

/* The address of ours that the connection of two ranks has. */
static void
ip_find(struct app_party *p)
{
	struct sockaddr_in in = {.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(in);

	if (p->place == APP_PLACE_RANK)
		getsockname(p->sock, (struct sockaddr *)&in, &len);
	inet_ntop(AF_INET, &in.sin_addr, p->ip, sizeof(p->ip));
}

/* Each rank one side, on its first lcore: 0, or an exit code. */
static int
ranks_meet(struct app_party *p, const char *device)
{
	struct card card[APP_SIDES];
	int rc;

	p->place = APP_PLACE_RANK;
	p->side = (int)p->boot.rank;
	p->one_host = p->boot.local_size == APP_SIDES;
	app_fail_hold(true);
	rc = app_boot_agree(&p->boot, "app.device", device_check(p, device));
	if (rc != 0)
		return rc;
	app_fail_hold(true);
	p->sock = app_link_open(&p->boot);
	rc = p->sock >= 0 ? 0
			  : app_fail("the other rank cannot be connected by TCP: %s; check the "
				     "network between the hosts, start both again",
				    strerror(-p->sock));
	rc = app_boot_agree(&p->boot, "app.meet", rc);
	if (rc == 0)
		rc = cards_swap(p, card);
	if (rc != 0)
		return rc;
	court_open(p);
	if (p->one_host)
		snprintf(p->lcores, sizeof(p->lcores), "%d,%d", card[0].cpu, card[1].cpu);
	else
		snprintf(p->lcores, sizeof(p->lcores), "%.63s:%d,%.63s:%d", card[0].host,
			card[0].cpu, card[1].host, card[1].cpu);
	p->port_gbps = app_party_max(p, p->port_gbps);
	/* All that is printed but causes of failures is the same in both. */
	if (p->side != 0 && freopen("/dev/null", "w", stdout) == NULL)
		return app_fail("/dev/null: %s", strerror(errno));
	return 0;
}

/* All sides go on, or none: the first exit code of both, after its line. */
static int
agree(struct app_party *p, const char *step, int rc)
{
	int32_t mine = rc, theirs = 0;

	rc = app_boot_agree(&p->boot, step, rc);
	if (p->process == NULL)
		return rc;
	if (app_party_swap(p, &mine, &theirs, sizeof(mine)) != 0)
		return APP_EXIT_RUN;
	return rc != 0 ? rc : theirs;
}

static void
party_end(struct app_party *p)
{
	if (p->side == 0)
		crpc_shm_free(p->segment);
	else
		crpc_shm_detach(p->segment);
	if (p->place == APP_PLACE_RANK && p->sock > 0)
		close(p->sock);
	app_eal_stop();
	app_process_end(p->process);
	app_boot_close(&p->boot);
}

int
app_party_start(struct app_party *p, const struct app_args *args, const char *device)
{
	cpu_set_t set;
	int rc = app_boot_open(&p->boot);

	if (rc != 0)
		return rc;
	p->flag = p->own_flag;
	rc = p->boot.size > APP_SIDES
		? app_fail_once("%u ranks; give one, or two", p->boot.size)
		: app_lcore_start(&p->boot, args, device,
			  p->boot.size == 1 ? crpc_max(p->lcores_max, APP_SIDES) : 1, &set,
			  &p->shared);
	if (rc != 0) {
		app_boot_close(&p->boot);
		return rc;
	}
	if (p->boot.size == 1)
		lcores_find(p);
	rc = p->boot.size == 1 ? app_driver_check(device, NULL) : ranks_meet(p, device);
	if (rc != 0)
		party_end(p);
	return rc;
}

/* The EAL, and a core for each process. */
static int
first_start(struct app_party *p, const struct app_args *args)
{
	long second = p->process->pid[1];
	cpu_set_t set;
	int rc, cpu;

	rc = app_lcore_choose(&p->boot, NULL, APP_SIDES, &set);
	rc = rc != 0 ? app_fail("the cores of this process are not known")
		     : app_eal_start(args, &set);
	if (rc != 0)
		return rc;
	app_stop_catch();
	lcores_find(p);
	if (p->place != APP_PLACE_LCORE)
		return app_fail("one core (%s) was found and two lcores are needed; give two "
				"before the --: -l 0,1",
			p->lcores);
	cpu = app_eal_core_of(p->second);
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity((pid_t)second, sizeof(set), &set) != 0)
		return app_fail("the second process: pinning to core %d: %s", cpu, strerror(errno));
	return 0;
}

int
app_party_start_process(struct app_party *p, const struct app_args *args)
{
	int rc;

	p->process = app_process_start();
	if (p->process == NULL)
		return app_fail("no second process: %s", strerror(errno));
	p->boot.size = 1;
	p->side = p->process->side;
	p->id = p->process->pid[0];
	app_fail_hold(true);
	rc = p->side == 0 ? first_start(p, args) : 0;
	p->place = APP_PLACE_PROCESS;
	p->one_host = true;
	p->sock = p->process->link[p->side];
	p->flag = p->process->shared->flag;
	p->court = &p->process->shared->court;
	rc = agree(p, "party.process", rc);
	if (rc != 0)
		party_end(p);
	return rc;
}

/* Print the machine, where the sides are, and how far apart. */
static void
out_open(struct app_party *p, const char *app)
{
	const char *where = p->place == APP_PLACE_SAME ? "both sides on lcore"
		: p->place != APP_PLACE_RANK           ? "lcores"
		: p->one_host                          ? "lcores of two ranks"
						       : "lcores of two ranks on two hosts";
	double line = app_party_line_ns(p);

	app_out_open(&p->out, app, where, p->lcores, NULL);
	if (p->port_gbps > 0)
		printf("the device's port: %.2f GB/s\n", p->port_gbps);
	if (p->court != NULL)
		printf("machine: line ping-pong %.0f ns round trip (%s)\n", line,
			line < APP_LINE_NEAR_NS ? "near" : "far");
	fflush(stdout);
}

int
app_party_run(struct app_party *p, const struct app_bench *b)
{
	int rc = 0;

	app_fail_hold(true);
	ip_find(p);
	if (b->json != NULL && app_party_plays(p, 0)) {
		p->out.json = app_json_open("json", b->json);
		rc = p->out.json == NULL ? APP_EXIT_USAGE : 0;
	}
	if (rc == 0 && b->prepare != NULL)
		rc = b->prepare(b->arg);
	rc = agree(p, "prepare", rc);
	if (rc == 0) {
		out_open(p, b->name);
		rc = b->run(b->arg);
	}
	app_out_close(&p->out, app_party_stopped(p) && !p->lost && p->side == 0);
	party_end(p);
	if (rc == 0)
		return p->failed != 0 || p->lost ? APP_EXIT_RUN : APP_EXIT_OK;
	return rc < 0 ? APP_EXIT_RUN : rc;
}
