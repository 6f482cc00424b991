/* SPDX-License-Identifier: BSD-3-Clause */
/* ipc: the server and its clients in one process, over one segment of shared memory. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contract.h"
#include "ipc_inline.h"

static struct ipc {
	char name[48];
	struct crpc_ipc_server *server;
	struct crpc_ipc_client *client[CLIENTS];
	uint64_t left; /* Clients that have left or died so far. */
	uint64_t skipped[CLIENTS]; /* Numbers of calls that were not made. */
} ipc;

static void
ipc_connect(struct star *s, uint32_t c)
{
	const struct crpc_ipc_client_conf conf = {.name = ipc.name,
		.timeout_ms = 1000,
		.probe_ms = 1,
		.call_timeout_us = s->timeout_ns / 1000,
		.server = c == 2 ? ipc.server : NULL};

	ipc.client[c] = crpc_ipc_client_connect(&conf);
	assert_or_log(ipc.client[c] != NULL);
	if (c == 2) /* One client makes all calls through the ring. */
		ipc.client[c]->lone_want = ipc.client[c]->lone_end = 0;
}

static void
ipc_join(struct star *s, uint32_t c)
{
	struct crpc_ipc_client *client;
	struct crpc_done done;
	struct ipc_peer *p;

	ipc_connect(s, c);
	crpc_ipc_server_reap(ipc.server);
	/* Each slot is used before the end, as it is where no number is skipped. */
	ipc.skipped[c] = s->near_end && s->lives == 0 ? UINT32_MAX - 4 * s->window : 0;
	if (ipc.skipped[c] == 0)
		return;
	client = ipc.client[c];
	p = &ipc.server->peers[crpc_ipc_client_id(client)];
	client->req_seq = client->resp_seq = p->req_seq = p->resp_seq = ipc.skipped[c] + 1;
	client->head = ipc_slot_at(
		client->resp, (uint32_t)client->resp_seq & client->resp_mask, client->resp_slot);
	for (uint32_t i = 0; i <= ipc.server->lay.req_slots; i++)
		p->tokens[i] |= IPC_TOKEN_DEAD - IPC_TOKEN_STEP;
	/* It looks at the age of its slots meanwhile. */
	for (uint32_t i = 0; i < CRPC_IPC_CHECK_POLLS; i++)
		expect(s, crpc_ipc_client_poll(client, s->now, &done, 1) == 0);
}

static void
ipc_open(struct star *s)
{
	const struct crpc_ipc_server_conf conf = {.name = ipc.name,
		.max_clients = LIVES_MAX,
		.depth = s->window,
		.req_max = MSG_MAX,
		.resp_max = MSG_MAX};
	static uint32_t made; /* A test that failed leaves its server. */

	ipc = (struct ipc){0};
	snprintf(ipc.name, sizeof(ipc.name), "crpc-contract-%d-%u", (int)getpid(), made++);
	ipc.server = crpc_ipc_server_create(&conf);
	assert_or_log(ipc.server != NULL);
	for (uint32_t c = 0; c < CLIENTS; c++)
		ipc_join(s, c);
}

static void
ipc_close(struct star *s)
{
	for (uint32_t c = 0; c < CLIENTS; c++)
		crpc_ipc_client_close(ipc.client[c]);
	crpc_ipc_server_free(ipc.server);
}

static int
ipc_call(struct star *s, uint32_t c, const void *buf, uint32_t len, uint32_t resp_max,
	uint64_t cookie)
{
	struct crpc_ipc_call_room room;
	int rc;

	/* Half of the messages are written where they travel. */
	if (cookie % 2 == 0)
		return crpc_ipc_client_call(ipc.client[c], s->now, buf, len, resp_max, cookie);
	rc = crpc_ipc_client_call_reserve(ipc.client[c], len, resp_max, &room);
	if (rc != 0)
		return rc;
	memcpy(room.slot->data, buf, len);
	crpc_ipc_client_call_commit(ipc.client[c], s->now, &room, len, cookie);
	return 0;
}

static int
ipc_notify(struct star *s, uint32_t c, const void *buf, uint32_t len)
{
	return crpc_ipc_client_notify(ipc.client[c], s->now, buf, len);
}

static uint32_t
ipc_cancel(struct star *s, uint32_t c, uint64_t cookie)
{
	return crpc_ipc_client_cancel(ipc.client[c], s->now, cookie);
}

static uint16_t
ipc_poll(struct star *s, uint32_t c, struct crpc_done *done, uint16_t n)
{
	return crpc_ipc_client_poll(ipc.client[c], s->now, done, n);
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
		if (ipc.client[c] != NULL)
			crpc_ipc_client_flush(ipc.client[c], s->now);
}

static void
ipc_drive(struct star *s)
{
	crpc_ipc_server_reap(ipc.server);
}

static void
ipc_leave(struct star *s, uint32_t c)
{
	crpc_ipc_client_close(ipc.client[c]);
	ipc.client[c] = NULL;
	ipc.left++;
}

static void
ipc_call_and_die(struct star *s, uint32_t c, uint32_t first, uint32_t len)
{
	uint8_t buf[MSG_MAX], done = 0;
	int fd[2];
	pid_t pid;

	assert_int_equal(pipe(fd), 0);
	pid = fork();
	if (pid == 0) {
		ipc_connect(s, c);
		for (uint32_t i = 0; i < WINDOW; i++) {
			star_fill(buf, first + i, false, len);
			if (ipc_call(s, c, buf, len, MSG_MAX, first + i) != 0)
				_exit(1);
		}
		if (write(fd[1], &done, 1) == 1)
			pause();
		_exit(1);
	}
	close(fd[1]);
	assert_int_equal(read(fd[0], &done, 1), 1);
	close(fd[0]);
	crpc_ipc_server_reap(ipc.server); /* It is admitted, */
	kill(pid, SIGKILL);               /* and dies. */
	assert_int_equal(waitpid(pid, NULL, 0), pid);
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
	static struct crpc_ipc_client_stats stats;

	crpc_ipc_client_stats(ipc.client[c], &stats);
	stats.rpc.calls -= ipc.skipped[c];
	stats.rpc.completions -= ipc.skipped[c];
	return &stats.rpc;
}

static const struct contract_layer layer = {
	.name = "ipc",
	.msg_max = MSG_MAX,
	.counters_near_end = true,
	.open = ipc_open,
	.close = ipc_close,
	.call = ipc_call,
	.notify = ipc_notify,
	.cancel = ipc_cancel,
	.poll = ipc_poll,
	.recv = ipc_recv,
	.reply = ipc_reply,
	.fail_with = ipc_fail,
	.release = ipc_release,
	.flush = ipc_flush,
	.drive = ipc_drive,
	.leave = ipc_leave,
	.call_and_die = ipc_call_and_die,
	.gone = ipc_gone,
	.join = ipc_join,
	.server_leave = ipc_server_leave,
	.counts = ipc_counts,
};

const struct contract_layer *const contract_layers[] = {&layer, NULL};
