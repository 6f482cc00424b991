/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What ipc does beside the contract of all layers (test/contract), with server and clients in one
 * thread: sizes, depths, places, ends. What needs processes is test_ipc_proc.c, what lies is
 * test_ipc_hostile.c, what runs at once is test_ipc_thread.c.
 */
#include "ipc_inline.h"
#include "ipc_test.h"

#define REQ_MAX  500
#define RESP_MAX 700

static struct crpc_req
recv_one(struct crpc_ipc_server *s)
{
	struct crpc_req req = {0};

	assert_int_equal(take(s, &req, 1), 1);
	return req;
}

static struct crpc_done
poll_one(struct crpc_ipc_client *c)
{
	struct crpc_done done = {0};

	assert_int_equal(poll_done(c, &done, 1), 1);
	return done;
}

static void
assert_idle(struct crpc_ipc_server *s, struct crpc_ipc_client *c)
{
	struct crpc_req req;
	struct crpc_done done;

	assert_int_equal(take(s, &req, 1), 0);
	assert_int_equal(poll_done(c, &done, 1), 0);
}

/* ---- messages ---- */

static void
fill(uint8_t *p, uint32_t len, uint64_t seed)
{
	for (uint32_t i = 0; i < len; i++)
		p[i] = (uint8_t)(seed * 31 + i * 7 + (seed >> 9));
}

/* Every size from 0 to the limit, both ways, byte for byte, through either kind of mapping. */
TEST(every_size_arrives_whole)
{
	uint8_t buf[RESP_MAX + 1], want[RESP_MAX + 1];
	struct crpc_ipc_server *s = keep_server(new_server(2, 4, REQ_MAX, RESP_MAX));
	struct crpc_ipc_client *c[2];
	struct crpc_req req;
	struct crpc_done done;

	c[0] = new_ring_client(s);
	c[1] = new_client(NULL);
	assert_non_null(c[0]);
	assert_non_null(c[1]);
	for (uint32_t len = 0; len <= RESP_MAX; len++) {
		for (uint32_t i = 0; i < 2; i++) {
			fill(buf, len, len + i);
			if (len > REQ_MAX) {
				assert_int_equal(call(c[i], buf, len, 1), -EMSGSIZE);
				assert_ok(call(c[i], buf, 0, len));
			} else {
				assert_ok(call(c[i], buf, len, len));
			}
			req = recv_one(s);
			assert_int_equal(req.peer, c[i]->id);
			assert_int_equal(req.len, len > REQ_MAX ? 0 : len);
			assert_memory_equal(req.data, buf, req.len);
			fill(want, len, len * 3 + i);
			assert_ok(reply(s, req.token, want, len));
			done = poll_one(c[i]);
			assert_int_equal(done.status, 0);
			assert_int_equal(done.cookie, len);
			assert_int_equal(done.len, len);
			assert_memory_equal(done.data, want, len);
		}
	}
	assert_idle(s, c[0]);
	crpc_ipc_client_close(c[0]);
	crpc_ipc_client_close(c[1]);
}

/* ---- depth, order, slots ---- */

TEST(depth_is_the_back_pressure)
{
	static const uint32_t depths[] = {1, 2, 3, 4, 31, 32, 255, 256};
	struct crpc_ipc_server *s;
	struct crpc_ipc_client *c;
	struct crpc_req req[256];
	struct crpc_done done[256];
	uint32_t d, i, k, n, got;

	for (k = 0; k < CRPC_DIM(depths); k++) {
		d = depths[k];
		s = new_server(1, d, 8, 8);
		c = new_client(s);
		assert_non_null(c);
		assert_int_equal(crpc_ipc_client_depth(c), d);
		for (i = 0; i < d; i++)
			assert_ok(call(c, &i, 4, i));
		assert_int_equal(call(c, &i, 4, i), -EAGAIN);
		for (got = 0; got < d;)
			got += take(s, req + got, 256);
		assert_int_equal(call(c, &i, 4, i), -EAGAIN); /* received is not done */
		for (i = 0; i < d; i++) {
			assert_int_equal(*(const uint32_t *)req[i].data, i); /* in order of call */
			assert_ok(reply(s, req[i].token, &i, 4));
		}
		assert_int_equal(call(c, &i, 4, i), -EAGAIN); /* nor is answered */
		for (got = 0; got < d; got += n) {
			n = poll_done(c, done, 256);
			assert_int_equal(n, crpc_min(d - got, (uint32_t)CRPC_BURST_MAX));
			for (i = 0; i < n; i++)
				assert_int_equal(done[i].cookie, got + i);
		}
		assert_ok(call(c, &i, 4, i));
		crpc_ipc_client_close(c);
		crpc_ipc_server_free(s);
	}
}

/* A client that always has a full depth waiting does not keep the others from their turn. */
TEST(recv_is_fair)
{
	struct crpc_ipc_server *s = keep_server(new_server(8, 256, 8, 8));
	struct crpc_ipc_client *c[8];
	uint64_t served[8] = {0};
	struct crpc_req req[16];
	struct crpc_done done[64];
	uint32_t i, k, n;

	for (i = 0; i < 8; i++)
		assert_non_null(c[i] = new_client(s));
	for (k = 0; k < 2000; k++) {
		while (call(c[0], "x", 1, 0) == 0)
			;
		for (i = 1; i < 8; i++)
			if (crpc_ipc_client_open(c[i]) == 0)
				assert_ok(call(c[i], "x", 1, 0));
		n = take(s, req, 16);
		for (i = 0; i < n; i++) {
			served[req[i].peer]++;
			assert_ok(release(s, req[i].token));
		}
		for (i = 0; i < 8; i++)
			poll_done(c[i], done, 64);
	}
	for (i = 1; i < 8; i++) /* a round is two recvs here: one of the deep client's, one of all
				   others' */
		assert_true(served[i] >= 2000 / 2 - 2);
	assert_true(served[0] >= 9 * 2000 / 2 - 100);
	for (i = 0; i < 8; i++)
		crpc_ipc_client_close(c[i]);
}

/* ---- places ---- */

TEST(a_full_server_says_so_and_places_come_back)
{
	struct crpc_ipc_server *s = keep_server(new_server(3, 2, 8, 8));
	struct crpc_ipc_client *c[3];
	struct crpc_ipc_server_stats st;
	struct crpc_req req;
	uint64_t i, k;

	for (k = 0; k < 3; k++)
		assert_non_null(c[k] = new_client(k & 1 ? s : NULL));
	assert_null(new_client(s));
	assert_int_equal(errno, EUSERS);
	assert_non_null(strstr(crpc_log_last(), "all 3 places"));
	for (i = 0; i < 500; i++) {
		k = rng() % 3;
		assert_ok(call(c[k], &i, 8, i));
		req = recv_one(s);
		if (i & 1) /* else it leaves with the call open */
			assert_ok(reply(s, req.token, "y", 1));
		crpc_ipc_client_close(c[k]);
		if ((i & 1) == 0) {
			assert_int_equal(crpc_ipc_server_reap(s), 0);
			assert_int_equal(reply(s, req.token, "z", 1), -ECONNRESET);
		}
		assert_int_equal(crpc_ipc_server_reap(s), 1);
		assert_non_null(c[k] = new_client(i & 2 ? s : NULL));
		assert_int_equal(c[k]->id, req.peer);
		/* The new one in the old one's place is served, and the old one's token is not its.
		 */
		assert_ok(call(c[k], &i, 8, i));
		assert_int_equal(reply(s, req.token, "z", 1), -ENOENT);
		req = recv_one(s);
		assert_int_equal(*(const uint64_t *)req.data, i);
		assert_ok(reply(s, req.token, &i, 8));
		assert_int_equal(poll_one(c[k]).cookie, i);
	}
	crpc_ipc_server_stats(s, &st);
	assert_int_equal(st.clients, 3);
	assert_int_equal(st.connects, 503);
	assert_int_equal(st.closes, 500);
	assert_int_equal(st.deaths, 0);
	assert_int_equal(st.lost_calls, 250);
	assert_int_equal(st.rpc.replies, 1000);
	for (k = 0; k < 3; k++)
		crpc_ipc_client_close(c[k]);
}

/*
 * The bytes of a request stay until the server ends it, though its client has left: its place is
 * free for another when the last of them ended. In the lone slot, and in the others.
 */
TEST(a_held_request_outlives_its_client)
{
	struct crpc_ipc_server *s = keep_server(new_server(1, 4, 56, 56));
	struct crpc_req req[3];
	uint8_t msg[3][40];

	for (uint32_t round = 0; round < 20; round++) {
		struct crpc_ipc_client *c = new_client(s);

		assert_non_null(c);
		for (uint32_t i = 0; i < 3; i++) {
			memset(msg[i], (int)(round * 3 + i + 1), sizeof(msg[i]));
			assert_ok(call(c, msg[i], sizeof(msg[i]), i));
		}
		for (uint32_t k = 0; k < 3;)
			k += take(s, req + k, 3);
		crpc_ipc_client_close(c);
		for (uint32_t i = 0; i < 3; i++) {
			assert_int_equal(crpc_ipc_server_reap(s), 0);
			c = new_client(s);
			if (c != NULL)
				call(c, "another's", 9, 0);
			for (uint32_t k = i; k < 3; k++)
				assert_memory_equal(req[k].data, msg[k], sizeof(msg[k]));
			assert_null(c);
			assert_int_equal(reply(s, req[i].token, req[i].data, 40), -ECONNRESET);
			assert_int_equal(release(s, req[i].token), -ENOENT);
		}
		assert_int_equal(crpc_ipc_server_reap(s), 1);
	}
}

/* recv() alone, without a reap, serves who connects and notices who closes. */
TEST(the_bell_is_enough)
{
	struct crpc_ipc_server *s = keep_server(new_server(200, 1, 8, 8));
	struct crpc_ipc_client *c;
	struct crpc_req req;
	int i, k, n;

	for (i = 0; i < 300; i++) {
		assert_non_null(c = new_client(s));
		assert_ok(call(c, "x", 1, 1));
		for (k = 0, n = 0; k < 8 && n == 0; k++) /* 200 places, 32 looked at per recv */
			n = take(s, &req, 1);
		assert_int_equal(n, 1);
		assert_ok(reply(s, req.token, "y", 1));
		crpc_ipc_client_close(c);
	}
}

TEST(a_closing_server_fails_open_calls)
{
	struct crpc_ipc_server *s = new_server(2, 100, 8, 8);
	struct crpc_ipc_client *c = new_client(s), *late;
	struct crpc_done done[64];
	struct crpc_req req[2];
	uint64_t i, sum = 0;
	int n, polls;

	assert_non_null(c);
	for (i = 1; i <= 100; i++)
		assert_ok(call(c, &i, 8, i));
	assert_int_equal(take(s, req, 2), 2);
	assert_ok(reply(s, req[1].token, req[1].data, 8));
	crpc_ipc_server_free(s);
	late = new_client(NULL);
	assert_null(late);
	assert_int_equal(errno, ENOENT);
	/* What was answered before is delivered; the rest fails, within the bound, once each. */
	assert_int_equal(poll_done(c, done, 64), 1);
	assert_int_equal(done[0].cookie, 2);
	assert_int_equal(done[0].status, 0);
	for (polls = 0, i = 0; i < 99; polls++) {
		n = poll_done(c, done, 64);
		assert_true(polls <= CRPC_IPC_CHECK_POLLS + 4);
		for (; n > 0; n--, i++) {
			assert_int_equal(done[n - 1].status, -ECONNRESET);
			assert_null(done[n - 1].data);
			sum += done[n - 1].cookie;
		}
	}
	assert_int_equal(sum, 5050 - 2);
	assert_int_equal(poll_done(c, done, 64), 0);
	assert_int_equal(call(c, "x", 1, 1), -ECONNRESET);
	assert_int_equal(crpc_ipc_client_status(c), -ECONNRESET);
	assert_non_null(strstr(crpc_log_last(), "closed"));
	crpc_ipc_client_close(c);
}

TEST(bad_configurations_are_named)
{
	static const struct {
		uint32_t clients, depth, req, resp;
		const char *says;
	} bad[] = {
		{CRPC_IPC_CLIENTS_MAX + 1, 1, 8, 8, "max_clients is 1025; expected 1 to 1024"},
		{1, CRPC_IPC_DEPTH_MAX + 1, 8, 8, "depth is 257; expected 1 to 256"},
		{1, 1, CRPC_IPC_MSG_MAX + 1, 8, "req_max is 16385"},
		{1, 1, 8, UINT32_MAX, "resp_max is 4294967295"},
	};
	struct crpc_ipc_server_conf nameless = {.dir = test_dir};
	struct crpc_ipc_server *s;
	struct crpc_ipc_client *c;

	for (size_t i = 0; i < CRPC_DIM(bad); i++) {
		assert_null(new_server(bad[i].clients, bad[i].depth, bad[i].req, bad[i].resp));
		assert_int_equal(errno, EINVAL);
		assert_non_null(strstr(crpc_log_last(), bad[i].says));
	}
	assert_null(crpc_ipc_server_create(&nameless));
	assert_int_equal(errno, EINVAL);
	s = new_server(0, 0, 0, 0); /* the defaults */
	assert_non_null(s);
	assert_null(new_server(1, 1, 8, 8));
	assert_int_equal(errno, EADDRINUSE);
	assert_non_null(c = new_client(NULL));
	assert_int_equal(crpc_ipc_client_depth(c), 32);
	crpc_ipc_client_close(c);
	crpc_ipc_server_free(s);
	/* The largest of everything but clients fits its fields and its memory. */
	s = new_server(2, CRPC_IPC_DEPTH_MAX, CRPC_IPC_MSG_MAX, CRPC_IPC_MSG_MAX);
	assert_non_null(s);
	crpc_ipc_server_free(s);
}

TEST_MAIN(make_dir, remove_dir)
