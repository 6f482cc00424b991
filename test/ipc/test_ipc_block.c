/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls that carry a block of an arena: whose it is at each step, that none is lost when somebody
 * ignores it, refuses it, lies about it or dies, and that memory segments admit whom they list.
 */
#include "ipc_test.h"

#include <grp.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "arena_check.h"
#include "crpc_idle.h"
#include "crpc_shm.h"
#include "ipc_client.h"
#include "ipc_server.h"

#define DATA_BYTES (1u << 20)
#define DEPTH      4
#define SOON_MS    5000

/* An arena in a segment of its own, and both ends in this process. */
static struct world {
	struct crpc_shm *seg;
	struct crpc_arena *arena;
	struct crpc_arena_cache *sm, *cm; /* the server's and the client's membership */
	struct crpc_ipc_server *s;
	struct crpc_ipc_client *c;
} w;

static void
open_arena(uint64_t server_limit)
{
	const struct crpc_arena_join_conf jc = {.limit = server_limit};
	const struct crpc_arena_conf ac = {.max_members = 8, .max_block = 65536};
	struct crpc_shm_conf conf = {.name = "a", .dir = test_dir};
	uint64_t len = crpc_arena_size(&ac, DATA_BYTES);

	conf.size = 4096 + len;
	assert_non_null(w.seg = crpc_shm_create(&conf));
	assert_ok(crpc_arena_format(w.seg, 4096, len, &ac));
	crpc_shm_ready(w.seg);
	assert_non_null(w.arena = crpc_arena_attach(w.seg, 4096));
	assert_non_null(w.sm = crpc_arena_join(w.arena, &jc));
}

/* What each side may hold; 0: anything. */
static void
open_limited_world(uint64_t client_bytes, uint64_t server_limit, uint64_t client_limit)
{
	const struct crpc_arena_join_conf jc = {.limit = client_limit};
	struct crpc_ipc_server_conf conf = {.name = "t",
		.dir = test_dir,
		.max_clients = 2,
		.depth = DEPTH,
		.req_max = 200,
		.resp_max = 200,
		.client_block_bytes = client_bytes};
	struct crpc_ipc_client_conf cc = {.call_timeout_us = 3000};

	open_arena(server_limit);
	conf.arena = w.sm;
	assert_non_null(w.s = crpc_ipc_server_create(&conf));
	assert_non_null(w.cm = crpc_arena_join(w.arena, &jc));
	cc.server = w.s;
	cc.arena = w.cm;
	assert_non_null(w.c = crpc_ipc_client_connect(&cc));
}

static void
open_world(uint64_t client_bytes)
{
	open_limited_world(client_bytes, 0, 0);
}

static void
assert_holds(struct crpc_arena_cache *m, uint64_t bytes)
{
	struct crpc_arena_cache_stats st;
	struct arena_report r;

	crpc_arena_cache_stats(m, &st);
	assert_int_equal(st.held - st.cached, bytes);
	assert_ok(arena_check(w.arena, &r));
	assert_int_equal(r.blocks_transit, 0);
}

static int
close_world(void **state)
{
	struct arena_report r;

	if (w.seg == NULL)
		return 0;
	crpc_ipc_client_close(w.c);
	crpc_ipc_server_free(w.s);
	assert_holds(w.sm, 0);
	if (w.cm != NULL)
		assert_holds(w.cm, 0);
	crpc_arena_leave(w.cm);
	crpc_arena_leave(w.sm);
	assert_ok(arena_check(w.arena, &r));
	assert_int_equal(r.blocks_allocated + r.blocks_transit, 0);
	crpc_arena_detach(w.arena);
	crpc_shm_free(w.seg);
	memset(&w, 0, sizeof(w));
	return 0;
}

#undef TEST
#define TEST(name) TEST_FIXTURE(name, NULL, close_world)

static uint64_t
new_block(uint64_t size, uint64_t seed)
{
	uint64_t ref, i;
	uint64_t *p = crpc_arena_alloc(w.cm, size, &ref);

	assert_non_null(p);
	for (i = 0; i < size / 8; i++)
		p[i] = seed * 1000003 + i;
	return ref;
}

static void
assert_filled(const struct crpc_ipc_block *b, uint64_t size, uint64_t seed)
{
	const uint64_t *p = b->data;

	assert_true(b->size >= size);
	for (uint64_t i = 0; i < size / 8; i++)
		assert_int_equal(p[i], seed * 1000003 + i);
}

static struct crpc_req
recv_one(void)
{
	struct crpc_req req = {0};

	assert_int_equal(take(w.s, &req, 1), 1);
	return req;
}

static uint32_t
poll_soon(struct crpc_done *done)
{
	uint64_t end = now_ms() + SOON_MS;

	while (poll_done(w.c, done, 1) == 0)
		assert_true(now_ms() < end);
	return 1;
}

/* ---- whose is it ---- */

/* There and back, byte for byte and without a copy: the same block, or one of the server's. */
TEST(a_block_goes_there_and_back)
{
	struct crpc_ipc_block b, mine;
	struct crpc_done done;
	struct crpc_req req;

	open_world(0);
	for (uint64_t i = 0; i < 500; i++) {
		uint64_t size = 8 + rng() % 50000;
		uint64_t ref = new_block(size, i);

		assert_ok(call_ref(w.c, ref, &i, 8, i));
		assert_int_equal(crpc_arena_free(w.cm, ref), -EPERM); /* not its any more */
		req = recv_one();
		assert_true(crpc_ipc_token_block(req.token));
		assert_int_equal(req.len, 8);
		assert_int_equal(*(const uint64_t *)req.data, i);
		assert_ok(crpc_ipc_server_block(w.s, req.token, &b));
		assert_int_equal(b.ref, ref);
		assert_filled(&b, size, i);
		if (i % 2 == 0) {
			ref = b.ref;
		} else {
			mine.data = crpc_arena_alloc(w.sm, size, &ref);
			assert_non_null(mine.data);
			memcpy(mine.data, b.data, size);
		}
		assert_ok(reply_ref(w.s, req.token, ref, "answer", 6));
		assert_int_equal(crpc_ipc_server_block(w.s, req.token, &b), -ENOENT);
		assert_int_equal(poll_soon(&done), 1);
		assert_int_equal(done.status, 0);
		assert_int_equal(done.len, 6);
		assert_memory_equal(done.data, "answer", 6);
		assert_ok(crpc_ipc_client_block(w.c, &done, &b));
		assert_int_equal(b.ref, ref);
		assert_filled(&b, size, i);
		if (i % 3 == 0) { /* kept; otherwise the next poll frees it */
			assert_ok(crpc_ipc_client_take(w.c, &done, &b));
			assert_int_equal(crpc_ipc_client_take(w.c, &done, &b), -ENODATA);
			assert_ok(crpc_arena_free(w.cm, b.ref));
		}
	}
}

/* Who does not look at blocks leaks none, whatever ends the request. */
TEST(ignored_blocks_are_freed)
{
	struct crpc_done done;
	struct crpc_req req;
	uint64_t i;

	open_world(0);
	for (i = 0; i < 400; i++) {
		assert_ok(call_ref(w.c, new_block(5000, i), NULL, 0, i));
		req = recv_one();
		switch (i % 4) {
		case 0:
			assert_ok(release(w.s, req.token));
			break;
		case 1:
			assert_ok(crpc_ipc_server_fail(w.s, now_ns(), req.token, -EIO));
			break;
		case 2:
			assert_ok(reply(w.s, req.token, "x", 1));
			break;
		default:
			assert_int_equal(reply_burst(w.s, &req, "x", 1, 1), 1);
		}
		assert_holds(w.sm, 0);
		assert_int_equal(poll_soon(&done), 1);
		assert_int_equal(
			crpc_ipc_client_block(w.c, &done, &(struct crpc_ipc_block){0}), -ENODATA);
	}
	/* Left open, on both sides. */
	assert_ok(call_ref(w.c, new_block(5000, i), NULL, 0, i));
	assert_ok(call_ref(w.c, new_block(5000, i), NULL, 0, i));
	req = recv_one();
	recv_one();
	assert_ok(reply_ref(w.s, req.token, ((struct crpc_ipc_block *)w.s->blocks)[0].ref, "x", 1));
	assert_int_equal(poll_soon(&done), 1);
}

/* What the server takes out of a request is its own beyond the request's end. */
TEST(a_taken_block_stays)
{
	struct crpc_ipc_block b;
	struct crpc_done done;
	struct crpc_req req;

	open_world(0);
	assert_ok(call_ref(w.c, new_block(900, 3), "k", 1, 3));
	req = recv_one();
	assert_ok(crpc_ipc_server_take(w.s, req.token, &b));
	assert_int_equal(crpc_ipc_server_take(w.s, req.token, &b), -ENODATA);
	assert_ok(release(w.s, req.token));
	assert_filled(&b, 900, 3);
	assert_ok(crpc_arena_free(w.sm, b.ref));
	assert_int_equal(poll_soon(&done), 1);
}

TEST(wrong_blocks_are_refused_and_stay)
{
	struct crpc_ipc_server_conf plain = {.name = "p", .dir = test_dir, .max_clients = 1};
	struct crpc_ipc_client_conf cc = {0};
	struct crpc_ipc_server_stats st;
	struct crpc_ipc_client *pc;
	struct crpc_done done;
	struct crpc_req req;
	uint64_t ref, theirs;

	open_world(10000);
	assert_int_equal(call_ref(w.c, 0, NULL, 0, 1), -EINVAL);
	assert_int_equal(call_ref(w.c, UINT64_MAX, NULL, 0, 1), -EINVAL);
	assert_non_null(crpc_arena_alloc(w.sm, 100, &theirs));
	assert_int_equal(call_ref(w.c, theirs, NULL, 0, 1), -EINVAL);
	ref = new_block(6000, 1);
	assert_int_equal(call_ref(w.c, ref, test_dir, 193, 1), -EMSGSIZE);
	assert_int_equal(crpc_ipc_client_open(w.c), 0);
	/* A server, or a client, without an arena. */
	w.s->peers[0].ctl->member = 0;
	assert_non_null(plain.name);
	plain.max_clients = 1;
	cc.server = crpc_ipc_server_create(&plain);
	cc.arena = w.cm;
	assert_non_null(pc = crpc_ipc_client_connect(&cc));
	assert_int_equal(call_ref(pc, ref, NULL, 0, 1), -ENOTSUP);
	crpc_ipc_client_close(pc);
	crpc_ipc_server_free((struct crpc_ipc_server *)(uintptr_t)cc.server);

	/*
	 * More bytes in open requests than a client may have: that call fails, the block is freed.
	 */
	w.s->peers[0].ctl->member = crpc_arena_member(w.cm);
	assert_ok(call_ref(w.c, ref, NULL, 0, 2));
	req = recv_one();
	assert_ok(call_ref(w.c, new_block(6000, 1), NULL, 0, 3));
	assert_int_equal(take(w.s, &(struct crpc_req){0}, 1), 0);
	assert_int_equal(poll_soon(&done), 1);
	assert_int_equal(done.cookie, 3);
	assert_int_equal(done.status, -ENOBUFS);
	assert_int_equal(reply_ref(w.s, req.token, ref + 1, "x", 1), -EINVAL);
	assert_int_equal(reply_ref(w.s, req.token, theirs, test_dir, 193), -EMSGSIZE);
	assert_ok(release(w.s, req.token));
	assert_int_equal(poll_soon(&done), 1);
	/* A lie: a reference that was not given. */
	ref = new_block(100, 1);
	memcpy(w.c->next->data, &ref, 8);
	w.c->call[w.c->next_slot].state = IPC_CALL_OPEN;
	rpc_calls_open(&w.c->calls, &w.c->call[w.c->next_slot].rpc, 9, RPC_NEVER);
	crpc_store_release(&w.c->next->word,
		ipc_word((uint32_t)w.c->req_seq, 8,
			((w.c->next_slot + 1) & w.c->req_mask) | IPC_SLOT_BLOCK));
	w.c->req_seq++;
	assert_int_equal(take(w.s, &req, 1), 0);
	assert_int_equal(poll_soon(&done), 1);
	assert_int_equal(done.cookie, 9);
	assert_int_equal(done.status, -EFAULT);
	crpc_ipc_server_stats(w.s, &st);
	assert_int_equal(st.bad_blocks, 2);
	assert_int_equal(st.blocks, 1);
	assert_int_equal(st.clients, 1);
	assert_ok(crpc_arena_free(w.cm, ref));
	assert_ok(crpc_arena_free(w.sm, theirs));
}

/* A late answer's block is freed; one-way requests take none back. */
TEST(nobodys_answer_leaks_no_block)
{
	struct crpc_done done;
	struct crpc_req req;
	uint64_t ref;

	open_world(0);
	assert_ok(call_ref(w.c, new_block(100, 1), NULL, 0, 1));
	req = recv_one();
	assert_int_equal(poll_soon(&done), 1);
	assert_int_equal(done.status, -ETIMEDOUT);
	assert_non_null(crpc_arena_alloc(w.sm, 3000, &ref));
	assert_ok(reply_ref(w.s, req.token, ref, NULL, 0));
	assert_int_equal(poll_done(w.c, &done, 1), 0);
	assert_holds(w.cm, 0);
	assert_ok(crpc_ipc_client_notify(w.c, now_ns(), "n", 1));
	req = recv_one();
	assert_non_null(crpc_arena_alloc(w.sm, 3000, &ref));
	assert_int_equal(reply_ref(w.s, req.token, ref, NULL, 0), -EOPNOTSUPP);
	assert_ok(crpc_arena_free(w.sm, ref));
	assert_ok(release(w.s, req.token));
}

/*
 * A server that lies: the reference and as many bytes as a response may have beside it. They would
 * end behind the response where 8 + resp_max fills its slot.
 */
TEST(an_answer_with_a_block_is_no_longer_than_a_response)
{
	struct crpc_done done;
	uint64_t ref;

	open_world(0);
	assert_ok(call(w.c, "x", 1, 7)); /* in the lone slot */
	recv_one();
	assert_non_null(crpc_arena_alloc(w.sm, 100, &ref));
	assert_ok(crpc_arena_give(w.sm, ref, crpc_arena_member(w.cm)));
	memcpy(w.c->head->data, &ref, sizeof(ref));
	crpc_store_release(&w.c->head->word,
		ipc_word((uint32_t)w.c->resp_seq, crpc_ipc_client_resp_max(w.c) + IPC_REF_LEN,
			w.s->lone_slot | IPC_SLOT_BLOCK));
	assert_int_equal(poll_soon(&done), 1);
	assert_int_equal(done.status, -ECONNRESET);
	assert_int_equal(crpc_ipc_client_status(w.c), -EPROTO);
	crpc_arena_drop(w.sm, ref, crpc_arena_member(w.sm), crpc_arena_member(w.cm));
}

/* ---- an end that closes with blocks on their way ---- */

/* The client closes and connects again; the server has noticed both. */
static void
reconnect(void)
{
	const struct crpc_ipc_client_conf cc = {.server = w.s, .arena = w.cm};

	crpc_ipc_client_close(w.c);
	crpc_ipc_server_reap(w.s);
	assert_non_null(w.c = crpc_ipc_client_connect(&cc));
}

/*
 * A client closes while the server has not read its calls, again and again, with more blocks than
 * the arena has: close() gets them back. That of a call that timed out is no exception.
 */
TEST(close_frees_the_blocks_of_calls_that_were_not_read)
{
	struct crpc_done done;

	open_world(0);
	for (uint32_t i = 0; i < 2 * DATA_BYTES / 65536; i++) {
		for (uint32_t k = 0; k < DEPTH; k++)
			assert_ok(call_ref(w.c, new_block(60000, i), NULL, 0, k));
		if (i == 0)
			for (uint32_t k = 0; k < DEPTH; k++) {
				assert_int_equal(poll_soon(&done), 1);
				assert_int_equal(done.status, -ETIMEDOUT);
			}
		reconnect();
		assert_holds(w.cm, 0);
		assert_holds(w.sm, 0);
	}
}

/* The same as a client that leaves the arena at once, as one of the key-value service does. */
TEST(blocks_of_unread_calls_are_free_after_close_and_leave)
{
	struct arena_report r;

	open_world(0);
	for (uint32_t i = 0; i < 2 * DATA_BYTES / 65536; i++) {
		assert_ok(call_ref(w.c, new_block(60000, i), NULL, 0, 1));
		crpc_ipc_client_close(w.c);
		crpc_arena_leave(w.cm);
		assert_ok(arena_check(w.arena, &r));
		assert_int_equal(r.blocks_transit + r.blocks_allocated, 0);
		crpc_ipc_server_reap(w.s);
		w.c = NULL;
		assert_non_null(w.cm = crpc_arena_join(w.arena, NULL));
		reconnect();
	}
}

/* A client closes with answers unread: the server takes their blocks back. */
TEST(blocks_of_answers_that_were_not_polled_are_freed)
{
	struct crpc_req req[DEPTH];
	uint64_t ref;

	open_world(0);
	for (uint32_t i = 0; i < 2 * DATA_BYTES / 65536; i++) {
		for (uint32_t k = 0; k < DEPTH; k++)
			assert_ok(call(w.c, &k, 4, k));
		assert_int_equal(take(w.s, req, DEPTH), DEPTH);
		for (uint32_t k = 0; k < DEPTH; k++) {
			assert_non_null(crpc_arena_alloc(w.sm, 60000, &ref));
			assert_ok(reply_ref(w.s, req[k].token, ref, NULL, 0));
		}
		reconnect();
		assert_holds(w.sm, 0);
		assert_holds(w.cm, 0);
	}
}

/*
 * Two connections of one member. A block that went to and fro on the first one is in an unread
 * answer of the second one when the first one closes: it stays there.
 */
TEST(closing_one_connection_leaves_the_answers_of_another)
{
	struct crpc_ipc_client_conf cc = {0};
	struct crpc_ipc_client *first;
	struct crpc_ipc_block b;
	struct crpc_done done;
	struct crpc_req req;
	uint64_t ref;

	open_world(0);
	ref = new_block(5000, 8);
	assert_ok(call_ref(w.c, ref, NULL, 0, 1));
	req = recv_one();
	assert_ok(reply_ref(w.s, req.token, ref, NULL, 0));
	assert_int_equal(poll_soon(&done), 1);
	assert_ok(crpc_ipc_client_take(w.c, &done, &b));
	first = w.c;
	cc.server = w.s;
	cc.arena = w.cm;
	assert_non_null(w.c = crpc_ipc_client_connect(&cc));
	assert_ok(call_ref(w.c, b.ref, NULL, 0, 2));
	req = recv_one();
	assert_ok(crpc_ipc_server_block(w.s, req.token, &b));
	assert_ok(reply_ref(w.s, req.token, b.ref, NULL, 0));
	crpc_ipc_client_close(first);
	crpc_ipc_server_reap(w.s);
	assert_int_equal(poll_soon(&done), 1);
	assert_int_equal(done.status, 0);
	assert_ok(crpc_ipc_client_block(w.c, &done, &b));
	assert_filled(&b, 5000, 8);
}

/* A server that ends, or drops the client, has not read all calls: they fail, and free theirs. */
TEST(calls_that_fail_unread_free_their_blocks)
{
	struct crpc_done done;

	open_world(0);
	for (uint32_t k = 0; k < DEPTH; k++)
		assert_ok(call_ref(w.c, new_block(60000, k), NULL, 0, k));
	crpc_ipc_server_free(w.s);
	w.s = NULL;
	for (uint32_t k = 0; k < DEPTH; k++) {
		assert_int_equal(poll_soon(&done), 1);
		assert_true(done.status == -ECONNRESET || done.status == -ETIMEDOUT);
	}
}

/* ---- members at their limits ---- */

/* A server that may hold no more fails the call, frees its block, and serves on. */
TEST(server_at_its_limit_frees_what_it_cannot_take)
{
	struct crpc_ipc_block b;
	struct crpc_done done;
	struct crpc_req req;

	open_limited_world(0, 40000, 0);
	for (uint32_t i = 0; i < 2 * DATA_BYTES / 65536; i++) {
		assert_ok(call_ref(w.c, new_block(60000, i), NULL, 0, i));
		assert_int_equal(take(w.s, &req, 1), 0);
		assert_int_equal(poll_soon(&done), 1);
		assert_int_equal(done.cookie, i);
		assert_int_equal(done.status, -ENOBUFS);
		assert_holds(w.cm, 0);
		assert_holds(w.sm, 0);
	}
	assert_ok(call_ref(w.c, new_block(30000, 1), NULL, 0, 1));
	req = recv_one();
	assert_ok(crpc_ipc_server_block(w.s, req.token, &b));
	assert_filled(&b, 30000, 1);
	assert_ok(release(w.s, req.token));
	assert_int_equal(poll_soon(&done), 1);
}

/* A client that may hold no more completes that call with -EDQUOT, and stays connected. */
TEST(client_at_its_limit_frees_what_it_cannot_take)
{
	struct crpc_ipc_block b;
	struct crpc_done done;
	struct crpc_req req;
	uint64_t ref;

	open_limited_world(0, 0, 40000);
	for (uint32_t i = 0; i < 2 * DATA_BYTES / 65536; i++) {
		assert_ok(call(w.c, &i, 4, i));
		req = recv_one();
		assert_non_null(crpc_arena_alloc(w.sm, i % 2 != 0 ? 30000 : 60000, &ref));
		assert_ok(reply_ref(w.s, req.token, ref, "x", 1));
		assert_int_equal(poll_soon(&done), 1);
		assert_int_equal(done.cookie, i);
		assert_int_equal(done.status, i % 2 != 0 ? 0 : -EDQUOT);
		assert_int_equal(done.len, i % 2 != 0 ? 1 : 0);
		assert_int_equal(crpc_ipc_client_block(w.c, &done, &b), i % 2 != 0 ? 0 : -ENODATA);
		assert_ok(crpc_ipc_client_status(w.c));
		assert_holds(w.sm, 0);
	}
}

/* ---- processes ---- */

/* Calls with blocks until it is killed. */
static void
client_process(void)
{
	struct crpc_ipc_client_conf cc = {.name = "t", .dir = test_dir, .timeout_ms = SOON_MS};
	struct crpc_shm *seg = crpc_shm_attach(test_dir, "a", 0, 0, SOON_MS);
	struct crpc_arena *arena = seg == NULL ? NULL : crpc_arena_attach(seg, 4096);
	struct crpc_idle idle = {.policy = CRPC_IDLE_YIELD};
	struct crpc_ipc_client *c;
	struct crpc_done done[DEPTH];
	uint64_t ref, i;

	if (arena == NULL)
		_exit(1);
	cc.arena = crpc_arena_join(arena, NULL);
	c = crpc_ipc_client_connect(&cc);
	if (c == NULL)
		_exit(2);
	for (i = 0;; i++) {
		/* No room, or no place: the next turn will have some. */
		if (crpc_arena_alloc(cc.arena, 64 + i % 3000, &ref) != NULL &&
			call_ref(c, ref, &i, 8, i) != 0)
			crpc_arena_free(cc.arena, ref);
		crpc_idle_turn(&idle, poll_done(c, done, DEPTH));
	}
}

/* Reap until only the server is a member, and nothing is allocated: in a bounded time. */
static void
reap_until_all_is_back(void)
{
	struct arena_report r;

	for (uint32_t reaps = 0; reaps < 2 * IPC_RECLAIM_REAPS; reaps++) {
		crpc_ipc_server_reap(w.s);
		assert_ok(arena_check(w.arena, &r));
		if (r.members == 1 && r.blocks_allocated + r.blocks_transit == 0)
			break;
	}
	assert_int_equal(r.members, 1);
	assert_int_equal(r.blocks_allocated + r.blocks_transit, 0);
}

/* Holds blocks that it never sends, and some that it did; says so, and waits. */
static void
hoarder(int ready, bool closes)
{
	struct crpc_ipc_client_conf cc = {.name = "t", .dir = test_dir, .timeout_ms = SOON_MS};
	struct crpc_shm *seg = crpc_shm_attach(test_dir, "a", 0, 0, SOON_MS);
	struct crpc_ipc_client *c;
	uint64_t ref;

	cc.arena = crpc_arena_join(crpc_arena_attach(seg, 4096), NULL);
	c = crpc_ipc_client_connect(&cc);
	for (int i = 0; c != NULL && i < 9; i++)
		if (crpc_arena_alloc(cc.arena, 64u << i, &ref) == NULL ||
			(i < 3 && call_ref(c, ref, &i, 4, 0) != 0))
			_exit(1);
	if (closes)
		crpc_ipc_client_close(c);
	if (c == NULL || write(ready, "", 1) != 1)
		_exit(2);
	for (;;)
		pause();
}

/* Who reaps gives a dead client's blocks back, whether it held, cached or sent them. */
TEST(reap_gives_a_dead_clients_blocks_back)
{
	struct crpc_ipc_server_conf conf = {.name = "t", .dir = test_dir, .depth = DEPTH};
	struct crpc_ipc_server_stats st;
	struct crpc_req req[DEPTH];
	int ready[2], status;
	char byte;

	open_arena(0);
	conf.arena = w.sm;
	assert_non_null(w.s = crpc_ipc_server_create(&conf));
	assert_ok(pipe(ready));
	for (uint32_t round = 0; round < 4; round++) {
		pid_t pid = fork_mortal();

		if (pid == 0)
			hoarder(ready[1], round == 3);
		assert_int_equal(read(ready[0], &byte, 1), 1);
		/* One is open, one ended, one not yet received. */
		for (uint32_t n = 0; round == 1 && n < 2;)
			n += take(w.s, req + n, (uint16_t)(2 - n));
		if (round == 1)
			assert_ok(release(w.s, req[0].token));
		/* Living, it keeps them. */
		for (uint32_t i = 0; i < 20; i++)
			crpc_ipc_server_reap(w.s);
		crpc_ipc_server_stats(w.s, &st);
		assert_int_equal(st.deaths, round);
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		for (uint32_t i = 0; i < 20; i++)
			crpc_ipc_server_reap(w.s);
		if (round == 1)
			assert_int_equal(release(w.s, req[1].token), -ECONNRESET);
		reap_until_all_is_back();
	}
	close(ready[0]);
	close(ready[1]);
}

/* Killed at any moment, again and again: every block comes back. */
TEST(blocks_of_killed_clients_come_back)
{
	struct crpc_ipc_server_conf conf = {.name = "t",
		.dir = test_dir,
		.max_clients = 2,
		.depth = DEPTH,
		.req_max = 200,
		.resp_max = 200};
	struct crpc_req req[DEPTH + 8];
	uint64_t end, late, want, served = 0;
	uint32_t round, n, i;
	int status;

	open_arena(0);
	conf.arena = w.sm;
	assert_non_null(w.s = crpc_ipc_server_create(&conf));
	for (round = 0; round < 60; round++) {
		pid_t pid = fork_mortal();

		if (pid == 0)
			client_process();
		/* Some time after it has begun, which takes long on a busy machine. */
		late = now_ms() + 5000;
		want = served + rng() % 32;
		end = UINT64_MAX;
		while (now_ms() < end) {
			assert_true(now_ms() < late);
			n = take(w.s, req, 8);
			for (i = 0; i < n; i++) {
				struct crpc_ipc_block b = {0};

				if (crpc_ipc_server_block(w.s, req[i].token, &b) != 0 ||
					rng() % 2 == 0)
					release(w.s, req[i].token);
				else
					reply_ref(w.s, req[i].token, b.ref, NULL, 0);
			}
			served += n;
			if (served >= want && end == UINT64_MAX)
				end = now_ms() + rng() % 4;
			crpc_ipc_server_reap(w.s);
			sched_yield();
		}
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		for (n = 0; (i = take(w.s, req + n, 8)) != 0;)
			n += i;
		while (n != 0) /* some of them after the server noticed */
			if (release(w.s, req[--n].token) == 0)
				crpc_ipc_server_reap(w.s);
		reap_until_all_is_back();
		assert_holds(w.sm, 0);
	}
	assert_true(served > 100);
}

/* ---- who may connect ---- */

#define SOMEBODY 12345
#define STRANGER 54321

/* A client with that user and group; exits with the errno of its connect, or 0 after a call. */
static pid_t
client_as(uid_t uid, gid_t gid)
{
	struct crpc_ipc_client_conf conf = {.name = "m", .dir = test_dir, .timeout_ms = SOON_MS};
	struct crpc_ipc_client *c;
	char back[8];
	pid_t pid = fork_mortal();

	if (pid != 0)
		return pid;
	if (setgroups(0, NULL) != 0 || setgid(gid) != 0 || setuid(uid) != 0)
		_exit(99);
	c = crpc_ipc_client_connect(&conf);
	if (c == NULL)
		_exit(errno);
	_exit(crpc_ipc_client_call_sync(c, now_ns(), "hello", 5, back, 8, 0) == 5 ? 0 : 98);
}

static int
serve_until_it_ends(struct crpc_ipc_server *s, pid_t pid)
{
	uint64_t end = now_ms() + 4 * SOON_MS;
	struct crpc_req req[8];
	uint16_t n, i;
	int status;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		crpc_ipc_server_reap(s);
		n = take(s, req, 8);
		for (i = 0; i < n; i++)
			reply(s, req[i].token, req[i].data, req[i].len);
		sched_yield();
		assert_true(now_ms() < end);
	}
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

TEST(memory_is_given_to_those_on_the_list)
{
	static const uid_t uids[] = {SOMEBODY};
	static const gid_t gids[] = {SOMEBODY + 1};
	const struct crpc_shm_allow allow = {
		.uids = uids, .uid_count = 1, .gids = gids, .gid_count = 1};
	struct crpc_ipc_server_conf conf = {.name = "m", .dir = test_dir, .memfd = true};
	struct crpc_ipc_server *s;

	if (geteuid() != 0)
		skip();
	assert_ok(chmod(test_dir, 0755));
	assert_non_null(s = crpc_ipc_server_create(&conf));
	assert_int_equal(serve_until_it_ends(s, client_as(0, 0)), 0);
	assert_int_equal(serve_until_it_ends(s, client_as(SOMEBODY, STRANGER)), EACCES);
	crpc_ipc_server_free(s);
	conf.allow = &allow;
	assert_non_null(s = crpc_ipc_server_create(&conf));
	assert_int_equal(serve_until_it_ends(s, client_as(SOMEBODY, STRANGER)), 0);
	assert_int_equal(serve_until_it_ends(s, client_as(STRANGER, SOMEBODY + 1)), 0);
	assert_int_equal(serve_until_it_ends(s, client_as(STRANGER, STRANGER)), EACCES);
	assert_int_equal(serve_until_it_ends(s, client_as(0, 0)), 0);
	crpc_ipc_server_free(s);
}

/*
 * A client that says it is the server's member of the arena is given no block: it would be in
 * transit from the server to the server, which lives, so no reclaim would free it.
 */
TEST(a_client_is_not_the_servers_member)
{
	struct crpc_done done;
	struct crpc_req req;
	uint64_t ref;

	open_world(0);
	w.s->peers[0].ctl->member = crpc_arena_member(w.sm);
	assert_ok(call(w.c, "x", 1, 7));
	req = recv_one();
	assert_non_null(crpc_arena_alloc(w.sm, 100, &ref));
	assert_int_equal(reply_ref(w.s, req.token, ref, "x", 1), -ENOTSUP);
	assert_ok(crpc_arena_free(w.sm, ref));
	assert_ok(reply(w.s, req.token, "y", 1));
	assert_int_equal(poll_soon(&done), 1);
	assert_int_equal(done.status, 0);
}

static uint64_t
cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Connect and close a client; the least work of the reap() that notices, of some. */
static uint64_t
close_ns(const struct crpc_ipc_client_conf *cc)
{
	uint64_t best = UINT64_MAX, start;
	struct crpc_ipc_client *c;

	for (uint32_t i = 0; i < 10; i++) {
		assert_non_null(c = crpc_ipc_client_connect(cc));
		crpc_ipc_server_reap(w.s);
		crpc_ipc_client_close(c);
		start = cpu_ns();
		assert_int_equal(crpc_ipc_server_reap(w.s), 1);
		best = crpc_min(best, cpu_ns() - start);
	}
	return best;
}

/*
 * A process whose many connections share one membership opens and closes one of them all the time:
 * the server's work for that does not grow with how many there are, so others are served.
 */
TEST(a_close_costs_the_same_beside_many_connections)
{
	struct crpc_ipc_server_conf conf = {
		.name = "t", .dir = test_dir, .max_clients = 300, .depth = 64};
	struct crpc_ipc_client_conf cc = {0};
	struct crpc_ipc_client *others[299];
	uint64_t alone, crowded;

	open_arena(0);
	conf.arena = w.sm;
	assert_non_null(w.s = crpc_ipc_server_create(&conf));
	assert_non_null(w.cm = crpc_arena_join(w.arena, NULL));
	cc.server = w.s;
	cc.arena = w.cm;
	alone = close_ns(&cc);
	for (uint32_t i = 0; i < CRPC_DIM(others); i++)
		assert_non_null(others[i] = crpc_ipc_client_connect(&cc));
	for (uint32_t i = 0; i < CRPC_DIM(others); i++)
		crpc_ipc_server_reap(w.s);
	crowded = close_ns(&cc);
	print_message("%llu ns alone, %llu ns beside %zu others\n", (unsigned long long)alone,
		(unsigned long long)crowded, CRPC_DIM(others));
	/* The locks of so many take the kernel longer, too. */
	assert_true(crowded < 100 * alone);
	for (uint32_t i = 0; i < CRPC_DIM(others); i++)
		crpc_ipc_client_close(others[i]);
}

TEST_MAIN(make_dir, remove_dir)
