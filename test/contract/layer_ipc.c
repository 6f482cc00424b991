/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ipc: the server in this process, and each client in this one too, or in a process of its own,
 * which does one verb at a time. Then done.data is checked where it lies, by the client's process;
 * the model sees a copy.
 */
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "contract.h"
#include "child.h"
#include "ipc_inline.h"

enum verb {
	JOIN,
	SKIP, /* Let so many calls have been made. */
	CALL,
	NOTIFY,
	CANCEL,
	POLL,
	FLUSH,
	STATS,
	LEAVE,
};

/* A client, and what it is to do: memory that its process shares with this one. */
struct job {
	struct crpc_ipc_client *client; /* In its process. */
	struct crpc_ipc_client_conf conf;
	pid_t pid;
	bool all_by_ring, data_changed;
	sem_t wanted, ready;

	enum verb verb;
	uint64_t now_ns, cookie, skip;
	uint32_t len, resp_max;
	uint16_t n, ndone;
	int rc;
	uint8_t buf[MSG_MAX];
	struct crpc_done done[CRPC_BURST_MAX], copied[CRPC_BURST_MAX];
	uint8_t copy[CRPC_BURST_MAX][MSG_MAX];
	struct crpc_ipc_client_stats stats;
};

static struct ipc {
	char name[48];
	struct crpc_ipc_server *server;
	struct job *job; /* CLIENTS of them. */
	bool has_processes;
	bool is_here[CLIENTS];
	uint64_t left;             /* Clients that have left or died so far. */
	uint64_t skipped[CLIENTS]; /* Numbers of calls that were not made. */
} ipc;

static int
job_join(struct job *job)
{
	job->client = crpc_ipc_client_connect(&job->conf);
	if (job->client == NULL)
		return -errno;
	if (job->all_by_ring)
		job->client->lone_want = job->client->lone_end = 0;
	return (int)job->client->id;
}

static int
job_skip(struct job *job)
{
	struct crpc_ipc_client *client = job->client;
	struct crpc_done done;

	client->req_seq = client->resp_seq = job->skip + 1;
	client->head = ipc_slot_at(
		client->resp, (uint32_t)client->resp_seq & client->resp_mask, client->resp_slot);
	/* It looks at the age of its slots meanwhile. */
	for (uint32_t i = 0; i < CRPC_IPC_CHECK_POLLS; i++)
		if (crpc_ipc_client_poll(client, job->now_ns, &done, 1) != 0)
			return -EPROTO;
	return 0;
}

static int
job_call(struct job *job)
{
	struct crpc_ipc_call_room room;
	int rc;

	/* Half of the messages are written where they travel. */
	if (job->cookie % 2 == 0)
		return crpc_ipc_client_call(
			job->client, job->now_ns, job->buf, job->len, job->resp_max, job->cookie);
	rc = crpc_ipc_client_call_reserve(job->client, job->len, job->resp_max, &room);
	if (rc != 0)
		return rc;
	memcpy(room.slot->data, job->buf, job->len);
	crpc_ipc_client_call_commit(job->client, job->now_ns, &room, job->len, job->cookie);
	return 0;
}

static int
job_do(struct job *job)
{
	switch (job->verb) {
	case JOIN:
		return job_join(job);
	case SKIP:
		return job_skip(job);
	case CALL:
		return job_call(job);
	case NOTIFY:
		return crpc_ipc_client_notify(job->client, job->now_ns, job->buf, job->len);
	case CANCEL:
		return (int)crpc_ipc_client_cancel(job->client, job->now_ns, job->cookie);
	case POLL:
		job->ndone = crpc_ipc_client_poll(job->client, job->now_ns, job->done, job->n);
		return 0;
	case FLUSH:
		crpc_ipc_client_flush(job->client, job->now_ns);
		return 0;
	case STATS:
		crpc_ipc_client_stats(job->client, &job->stats);
		return 0;
	default:
		crpc_ipc_client_close(job->client);
		return 0;
	}
}

/* In a client's process. */
static void
jobs_do(struct job *job)
{
	enum verb verb;

	do {
		need(sem_wait(&job->wanted) == 0);
		verb = job->verb; /* What follows the last answer may be another client's. */
		for (uint32_t i = 0; i < job->ndone; i++)
			if (job->done[i].len != 0 &&
				memcmp(job->done[i].data, job->copy[i], job->done[i].len) != 0)
				job->data_changed = true;
		job->rc = job_do(job);
		if (verb == POLL)
			for (uint32_t i = 0; i < job->ndone; i++) {
				job->copied[i] = job->done[i];
				if (job->done[i].data == NULL)
					continue;
				job->copied[i].data = job->copy[i];
				memcpy(job->copy[i], job->done[i].data, job->done[i].len);
			}
		need(sem_post(&job->ready) == 0);
	} while (verb != LEAVE);
	_exit(0);
}

static int
ask(struct star *s, uint32_t c, enum verb verb)
{
	struct job *job = &ipc.job[c];
	struct timespec until;

	job->verb = verb;
	job->now_ns = s->now;
	if (!ipc.has_processes)
		return job_do(job);
	expect(s, sem_post(&job->wanted) == 0);
	expect(s, clock_gettime(CLOCK_REALTIME, &until) == 0);
	until.tv_sec += 30;
	while (sem_timedwait(&job->ready, &until) != 0)
		expect(s, errno == EINTR);
	expect(s, !job->data_changed);
	return job->rc;
}

static void
job_init(struct star *s, uint32_t c)
{
	struct job *job = &ipc.job[c];

	*job = (struct job){
		.conf = {.name = ipc.name,
			.timeout_ms = 1000,
			.probe_ms = 1,
			.call_timeout_us = s->timeout_ns / 1000,
			.server = c == 2 && !ipc.has_processes ? ipc.server : NULL},
		.all_by_ring = c == 2, /* One client makes all calls through the ring. */
	};
}

static void
ipc_join(struct star *s, uint32_t c)
{
	struct job *job = &ipc.job[c];
	struct ipc_peer *p;
	pid_t pid;
	int id;

	job_init(s, c);
	if (ipc.has_processes) {
		expect(s, sem_init(&job->wanted, 1, 0) == 0 && sem_init(&job->ready, 1, 0) == 0);
		pid = fork_mortal();
		if (pid == 0)
			jobs_do(job);
		job->pid = pid;
	}
	id = ask(s, c, JOIN);
	expect(s, id >= 0);
	ipc.is_here[c] = true;
	crpc_ipc_server_reap(ipc.server);
	/* Each slot is used before the end, as it is where no number is skipped. */
	ipc.skipped[c] = s->near_end && s->lives == 0 ? UINT32_MAX - 4 * s->window : 0;
	if (ipc.skipped[c] == 0)
		return;
	p = &ipc.server->peers[id];
	p->req_seq = p->resp_seq = ipc.skipped[c] + 1;
	for (uint32_t i = 0; i <= ipc.server->lay.req_slots; i++)
		p->tokens[i] |= IPC_TOKEN_DEAD - IPC_TOKEN_STEP;
	job->skip = ipc.skipped[c];
	expect(s, ask(s, c, SKIP) == 0);
}

static void
ipc_leave(struct star *s, uint32_t c)
{
	expect(s, ask(s, c, LEAVE) == 0);
	if (ipc.has_processes)
		expect(s, child_status(ipc.job[c].pid) == 0);
	ipc.is_here[c] = false;
	ipc.left++;
}

static void
open_as(struct star *s, bool has_processes)
{
	const struct crpc_ipc_server_conf conf = {.name = ipc.name,
		.max_clients = LIVES_MAX,
		.depth = s->window,
		.req_max = MSG_MAX,
		.resp_max = MSG_MAX};
	static uint32_t made; /* A test that failed leaves its server. */

	ipc = (struct ipc){.has_processes = has_processes};
	snprintf(ipc.name, sizeof(ipc.name), "crpc-contract-%d-%u", (int)getpid(), made++);
	ipc.job = mmap(NULL, CLIENTS * sizeof(*ipc.job), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	expect(s, ipc.job != MAP_FAILED);
	ipc.server = crpc_ipc_server_create(&conf);
	assert_or_log(ipc.server != NULL);
	for (uint32_t c = 0; c < CLIENTS; c++)
		ipc_join(s, c);
}

static void
open_here(struct star *s)
{
	open_as(s, false);
}

static void
open_processes(struct star *s)
{
	open_as(s, true);
}

static void
ipc_close(struct star *s)
{
	for (uint32_t c = 0; c < CLIENTS; c++)
		if (ipc.is_here[c])
			ipc_leave(s, c);
	crpc_ipc_server_free(ipc.server);
	munmap(ipc.job, CLIENTS * sizeof(*ipc.job));
}

static int
send_as(struct star *s, uint32_t c, enum verb verb, const void *buf, uint32_t len,
	uint32_t resp_max, uint64_t cookie)
{
	struct job *job = &ipc.job[c];

	memcpy(job->buf, buf, crpc_min(len, MSG_MAX)); /* Of more not a byte is to be read. */
	job->len = len;
	job->resp_max = resp_max;
	job->cookie = cookie;
	return ask(s, c, verb);
}

static int
ipc_call(struct star *s, uint32_t c, const void *buf, uint32_t len, uint32_t resp_max,
	uint64_t cookie)
{
	return send_as(s, c, CALL, buf, len, resp_max, cookie);
}

static int
ipc_notify(struct star *s, uint32_t c, const void *buf, uint32_t len)
{
	return send_as(s, c, NOTIFY, buf, len, 0, 0);
}

static uint32_t
ipc_cancel(struct star *s, uint32_t c, uint64_t cookie)
{
	ipc.job[c].cookie = cookie;
	return (uint32_t)ask(s, c, CANCEL);
}

static uint16_t
ipc_poll(struct star *s, uint32_t c, struct crpc_done *done, uint16_t n)
{
	struct job *job = &ipc.job[c];

	job->n = n;
	expect(s, ask(s, c, POLL) == 0);
	memcpy(done, ipc.has_processes ? job->copied : job->done, job->ndone * sizeof(*done));
	return job->ndone;
}

static uint16_t
ipc_recv(struct star *s, struct crpc_req *req, uint16_t n)
{
	return crpc_ipc_server_recv(ipc.server, s->now, req, n);
}

static int
ipc_reply(struct star *s, uint64_t token, const void *buf, uint32_t len)
{
	struct crpc_ipc_reply_room room;

	/* Half of the answers likewise, and none to what is no request. */
	if (len % 2 == 0 || ipc_find_peer(ipc.server, token) == NULL ||
		!crpc_ipc_server_reply_reserve(ipc.server, token, len, &room))
		return crpc_ipc_server_reply(ipc.server, s->now, token, buf, len);
	memcpy(room.slot->data, buf, len);
	crpc_ipc_server_reply_commit(ipc.server, s->now, token, &room, len);
	return 0;
}

static int
ipc_fail(struct star *s, uint64_t token, int32_t status)
{
	return crpc_ipc_server_fail(ipc.server, s->now, token, status);
}

static int
ipc_release(struct star *s, uint64_t token)
{
	return crpc_ipc_server_release(ipc.server, s->now, token);
}

static void
ipc_flush(struct star *s)
{
	for (uint32_t c = 0; c < CLIENTS; c++)
		if (ipc.is_here[c])
			ask(s, c, FLUSH);
}

static void
ipc_drive(struct star *s)
{
	crpc_ipc_server_reap(ipc.server);
}

static void
ipc_call_and_die(struct star *s, uint32_t c, uint32_t first, uint32_t len)
{
	struct job *job = &ipc.job[c];
	uint8_t done = 0;
	int fd[2];
	pid_t pid;

	job_init(s, c);
	assert_int_equal(pipe(fd), 0);
	pid = fork_mortal();
	if (pid == 0) {
		need(job_join(job) >= 0);
		job->now_ns = s->now;
		job->len = len;
		job->resp_max = MSG_MAX;
		for (uint32_t i = 0; i < WINDOW; i++) {
			job->cookie = first + i;
			star_fill(job->buf, first + i, false, len);
			need(job_call(job) == 0);
		}
		need(write(fd[1], &done, 1) == 1);
		pause();
	}
	close(fd[1]);
	assert_int_equal(read(fd[0], &done, 1), 1);
	close(fd[0]);
	crpc_ipc_server_reap(ipc.server); /* It is admitted, */
	child_kill(pid);                  /* and dies. */
	ipc.left++;
}

static bool
ipc_gone(struct star *s, uint32_t c)
{
	struct crpc_ipc_server_stats stats;

	crpc_ipc_server_stats(ipc.server, &stats);
	return stats.closes + stats.deaths == ipc.left;
}

static void
ipc_server_leave(struct star *s)
{
	crpc_ipc_server_free(ipc.server);
	ipc.server = NULL;
}

static const struct crpc_rpc_counts *
ipc_counts(struct star *s, uint32_t c)
{
	struct crpc_rpc_counts *counts = &ipc.job[c].stats.rpc;

	ask(s, c, STATS);
	counts->calls -= ipc.skipped[c];
	counts->completions -= ipc.skipped[c];
	return counts;
}

#define IPC_VERBS                                                                                  \
	.msg_max = MSG_MAX, .counters_near_end = true, .close = ipc_close, .call = ipc_call,       \
	.notify = ipc_notify, .cancel = ipc_cancel, .poll = ipc_poll, .recv = ipc_recv,            \
	.reply = ipc_reply, .fail_with = ipc_fail, .release = ipc_release, .flush = ipc_flush,     \
	.drive = ipc_drive, .leave = ipc_leave, .call_and_die = ipc_call_and_die,                  \
	.gone = ipc_gone, .join = ipc_join, .server_leave = ipc_server_leave, .counts = ipc_counts

static const struct contract_layer here = {.name = "ipc", IPC_VERBS, .open = open_here};
static const struct contract_layer processes = {
	.name = "ipc_processes", .is_slow = true, IPC_VERBS, .open = open_processes};

const struct contract_layer *const contract_layers[] = {&here, &processes, NULL};
