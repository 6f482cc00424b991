/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What flux does beside the contract of all layers (test/contract), in one thread under a
 * clock of the test: arguments, bursts, join and leave, memory, fairness. The tests run over
 * every transport.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crpc_log.h"
#include "flux_rig.h"

/* Wrong sizes and ids are refused with the value and the range. */
TEST(bad_arguments_are_named)
{
	static const struct {
		struct crpc_flux_attr a;
		const char *text;
	} bad[] = {
		{{.nodes = 1}, "nodes is 1; expected 2 to 256"},
		{{.nodes = 257}, "nodes is 257"},
		{{.nodes = 2, .window = 3}, "window 3 is not a power of two"},
		{{.nodes = 2, .window = 8192}, "window is 8192; expected 1 to 4096"},
		{{.nodes = 2, .msg_size = 249}, "msg_size is 249; expected 1 to 248"},
		{{.nodes = 2, .variant = CRPC_FLUX_VARIANTS}, "variant is 9"},
	};
	const struct transport *t = *state;
	struct crpc_flux *flux = flux_of(t, 2, 4, 0);
	struct member *m = join(flux, 0);

	for (size_t i = 0; i < CRPC_DIM(bad); i++) {
		assert_null(crpc_flux_create(&bad[i].a));
		assert_int_equal(errno, EINVAL);
		assert_non_null(strstr(crpc_log_last(), bad[i].text));
	}
	assert_null(join(flux, 2));
	assert_int_equal(errno, EINVAL);
	assert_null(join(flux, 0));
	assert_int_equal(errno, EBUSY);
	assert_int_equal(connect_to(m, 0), -EINVAL);
	assert_int_equal(connect_to(m, 9), -EINVAL);
	assert_int_equal(connect_to(m, 1), -ENOTCONN);
	rig_end(t, flux, &m, 1);
}

/* ---- windows and tokens ---- */

/* A burst is as many calls as the window takes; each completes once with its own reply. */
TEST(a_burst_is_so_many_calls)
{
	struct crpc_flux *flux = flux_of(*state, 2, 32, 0);
	uint32_t n, i, got, completed;
	struct crpc_done done[32];
	struct payload p[48];
	struct member *node[2];
	uint64_t cookie[48], seen;

	join_all(flux, node, 2);
	for (n = 1; n <= 48; n++) {
		for (i = 0; i < n; i++) {
			p[i] = payload_make(0, i);
			cookie[i] = i;
		}
		got = crpc_flux_call_burst(
			node[0]->ep[1], node[0]->now, p, sizeof(*p), sizeof(*p), cookie, n);
		assert_int_equal(got, crpc_min(n, 32));
		assert_int_equal(pending(node[0]), got);
		assert_int_equal(serve(node[1], node[0]), got);
		for (completed = 0, seen = 0; completed < got; completed++) {
			assert_int_equal(poll(node[0], n, done, 1), 1);
			assert_int_equal(payload_of(done[0].data).seq, done[0].cookie);
			seen |= UINT64_C(1) << done[0].cookie;
		}
		assert_int_equal(seen, (UINT64_C(1) << got) - 1);
	}
	rig_end(*state, flux, node, 2);
}

/* Notifications are not pending calls: nothing completes them. */
TEST(pending_counts_calls)
{
	struct crpc_flux *flux = flux_of(*state, 2, 4, 0);
	struct member *node[2];
	struct crpc_done done;

	join_all(flux, node, 2);
	assert_int_equal(notify(node[0], 1, 0, 0), 0);
	assert_int_equal(pending(node[0]), 0);
	assert_int_equal(call(node[0], 1, 0, 1), 0);
	assert_int_equal(pending(node[0]), 1);
	assert_int_equal(serve(node[1], node[0]), 2);
	assert_int_equal(poll(node[0], 0, &done, 1), 1);
	assert_int_equal(pending(node[0]), 0);
	assert_int_equal(notify(node[0], 1, 0, 2), 0);
	leave(&node[1], 1);
	assert_int_equal(poll(node[0], 0, &done, 1), 0);
	assert_int_equal(pending(node[0]), 0);
	rig_end(*state, flux, node, 2);
}

/* Memory is that of connected pairs. */
TEST(memory_grows_with_used_pairs)
{
	struct crpc_flux *flux = flux_of(*state, 6, 64, 0);
	struct member *node[6];
	uint64_t one;

	for (uint32_t i = 0; i < 6; i++)
		node[i] = join(flux, i);
	assert_int_equal(channel_bytes(), 0);
	assert_int_equal(connect_to(node[0], 1), 0);
	one = channel_bytes();
	assert_int_equal(connect_to(node[4], 2), 0);
	assert_int_equal(channel_bytes(), 2 * one);
	rig_end(*state, flux, node, 6);
}

/* Three callers with full windows: each gets a third of every recv, none waits for another. */
TEST(recv_is_fair)
{
	struct crpc_flux *flux = flux_of(*state, 4, 64, 0);
	struct member *node[4];
	struct crpc_req req[12];
	uint32_t count[4] = {0}, i, k;

	join_all(flux, node, 4);
	for (i = 1; i < 4; i++) {
		for (k = 0; k < 64; k++)
			assert_int_equal(call(node[i], 0, i, k), 0);
		crpc_flux_flush(node[i]->node, 0);
	}
	for (k = 0; k < 8; k++) {
		assert_int_equal(recv_from(node[0], NULL, req, 12), 12);
		for (i = 0; i < 12; i++)
			count[req[i].peer]++;
		for (i = 1; i < 4; i++)
			assert_in_range(count[i], (k + 1) * 12 / 3 - 4, (k + 1) * 12 / 3 + 4);
	}
	rig_end(*state, flux, node, 4);
}

/*
 * A token is never given out twice: not after half a million uses of its slot, nor in a thousand
 * incarnations of its caller.
 */
TEST(tokens_do_not_repeat)
{
	struct crpc_flux *flux = flux_of(*state, 2, 1, 0);
	struct crpc_req first = {0}, req;
	struct member *node[2];
	struct crpc_done done;

	join_all(flux, node, 2);
	for (uint32_t i = 0; i < 530000; i++) {
		if (i >= 529000)
			rejoin(flux, &node[0], 0, 1);
		if (call(node[0], 1, 0, i) != 0 || recv_from(node[1], node[0], &req, 1) != 1)
			fail();
		if (i == 0)
			first = req;
		else if (req.token == first.token)
			fail();
		if (echo(node[1], &req) != 0 || poll(node[0], i, &done, 1) != 1 || done.cookie != i)
			fail();
		poll(node[0], i, &done, 1); /* the next call takes the same slot */
	}
	rig_end(*state, flux, node, 2);
}

/* ---- leaving and joining again ---- */

/* Calls to a peer that left end, its replies are given out first; the id joins again. */
TEST(leave_and_join_again)
{
	const struct transport *t = *state;
	struct crpc_flux *flux = flux_of(t, 2, 8, 0);
	struct crpc_req req[8], stale = {0};
	struct crpc_done done[8];
	struct member *node[2];
	uint16_t got;

	node[0] = join(flux, 0);
	for (uint32_t round = 0; round < 20; round++) {
		node[1] = join(flux, 1);
		assert_int_equal(connect_to(node[0], 1), 0);
		assert_int_equal(connect_to(node[0], 1), 0);
		assert_int_equal(recv_from(node[1], node[0], req, 8), 0);
		assert_int_equal(call(node[0], 1, 0, 1), 0);
		assert_int_equal(call(node[0], 1, 0, 2), 0);
		crpc_flux_flush(node[0]->node, 0);
		if (round % 2 != 0) {
			assert_int_equal(recv_from(node[1], NULL, req, 8), 2);
			assert_int_equal(echo(node[1], &req[1]), 0);
		}
		leave(&node[1], 1);
		assert_int_equal(call(node[0], 1, 0, 3), -ECONNRESET);
		assert_int_equal(connect_to(node[0], 1), -EBUSY);
		got = poll(node[0], 0, done, 8);
		if (round % 2 != 0)
			assert_int_equal(payload_of(done[0].data).seq, 2);
		got += poll(node[0], 0, done + got, (uint16_t)(8 - got));
		assert_int_equal(got, 2);
		assert_int_equal(done[0].status, round % 2 != 0 ? 0 : -ECONNRESET);
		assert_int_equal(done[1].status, -ECONNRESET);
		assert_int_equal(poll(node[0], 0, done, 8), 0);
		assert_int_equal(pending(node[0]), 0);
		assert_int_equal(connect_to(node[0], 1), -ENOTCONN);
	}
	node[1] = join(flux, 1);
	assert_int_equal(connect_to(node[0], 1), 0);
	/* A caller that leaves: its requests can no longer be answered. */
	for (uint32_t round = 0; round < 300; round++) {
		assert_int_equal(call(node[0], 1, 0, 1), 0);
		assert_int_equal(recv_from(node[1], node[0], req, 8), 1);
		if (round > 0)
			assert_int_equal(echo(node[1], &stale), -ECONNRESET);
		stale = req[0];
		rejoin(flux, &node[0], 0, 1);
	}
	assert_int_equal(recv_from(node[1], NULL, req, 8), 0);
	assert_int_equal(release(node[1], &stale), -ECONNRESET);
	assert_int_equal(release(node[1], &stale), -ENOENT);
	rig_end(t, flux, node, 2);
}

/* A caller that leaves, joins and connects before its peer receives is served, however often. */
TEST(reconnect_before_recv_keeps_the_live_channel)
{
	struct member *node[3];
	struct crpc_done done[4];
	struct crpc_req req[4];

	for (uint32_t times = 1; times < 5; times++)
		for (uint32_t known = 0; known < 2; known++) {
			struct crpc_flux *flux = flux_of(*state, 3, 4, 0);

			join_all(flux, node, 3);
			if (known)
				assert_int_equal(recv_from(node[1], NULL, req, 4), 0);
			for (uint32_t i = 0; i < times; i++)
				rejoin(flux, &node[0], 0, 1);
			assert_int_equal(call(node[0], 1, 0, 5), 0);
			assert_int_equal(call(node[2], 1, 2, 6), 0);
			crpc_flux_flush(node[2]->node, 0);
			assert_int_equal(serve(node[1], node[0]), 2);
			for (uint32_t i = 0; i < 4; i += 2) {
				assert_int_equal(poll(node[i], 0, done, 4), 1);
				assert_int_equal(done[0].cookie, 5 + i / 2);
			}
			rig_end(*state, flux, node, 3);
		}
}

/*
 * What a node sent before it left is received, and before what its successor sends; also if that is
 * more than a receiver of rte_ring has room for.
 */
TEST(messages_sent_before_leave_arrive)
{
	struct crpc_flux *flux = flux_of(*state, 2, 4, 0);
	struct member *node[2] = {NULL, join(flux, 1)};
	struct crpc_req req;
	uint64_t sent, got;

	for (sent = 0; sent < 48; sent++) {
		if (node[0] == NULL)
			rejoin(flux, &node[0], 0, 1);
		assert_int_equal((sent % 4 == 1 ? call : notify)(node[0], 1, 0, sent), 0);
		if (sent % 4 == 3)
			leave(node, 1);
	}
	for (got = 0; got < sent; got++) {
		assert_int_equal(recv_from(node[1], NULL, &req, 1), 1);
		assert_int_equal(payload_of(req.data).seq, got);
		release(node[1], &req);
		assert_int_equal(release(node[1], &req), -ENOENT);
	}
	assert_int_equal(recv_from(node[1], NULL, &req, 1), 0);
	rig_end(*state, flux, node, 2);
}

/* ---- memory of channels ---- */

/* Where channels lie: memory that is overwritten when flux frees it, and freed at the end. */
static struct heap {
	void *mem[8];
	size_t len[8];
	uint32_t n;
	uint32_t released;
	struct member *use; /* is polled within alloc, while flux holds its lock */
} heap;

static void *
heap_alloc(const char *name, size_t len, size_t align, int node)
{
	struct crpc_done done;
	struct crpc_req req;

	if (strcmp(name, "flux_channel") != 0)
		return NULL;
	if (heap.use != NULL) {
		recv_from(heap.use, NULL, &req, 1);
		poll(heap.use, 0, &done, 1);
	}
	assert_true(heap.n < CRPC_DIM(heap.mem));
	heap.len[heap.n] = len;
	heap.mem[heap.n] = aligned_alloc(align, crpc_align_up(len, align));
	return memset(heap.mem[heap.n++], 0, len);
}

static void
heap_release(void *mem)
{
	for (uint32_t i = 0; i < heap.n; i++)
		if (heap.mem[i] == mem)
			memset(mem, 0xdd, heap.len[i]);
	heap.released++;
}

static struct crpc_mem_place
anywhere(void)
{
	return (struct crpc_mem_place){-1, -1};
}

static const struct mem_source heap_source = {heap_alloc, heap_release, anywhere};

static struct crpc_flux *
flux_on_heap(const struct transport *t)
{
	const struct crpc_flux_attr a = {.nodes = 3, .variant = t->variant, .window = 4};

	memset(&heap, 0, sizeof(heap));
	__crpc_mem_source_set(&heap_source);
	return crpc_flux_create(&a);
}

static void
heap_end(void)
{
	__crpc_mem_source_set(NULL);
	for (uint32_t i = 0; i < heap.n; i++)
		free(heap.mem[i]);
}

/*
 * The bytes of a request that a server holds stay until the server ends it, though its caller has
 * left, joined again and calls through another channel.
 */
TEST(held_request_outlives_its_caller)
{
	struct crpc_req held[2], req[4];
	struct member *node[2], *other;
	struct crpc_flux *flux = flux_on_heap(*state);

	node[0] = NULL;
	node[1] = join(flux, 1);
	for (uint32_t i = 0; i < 2; i++) {
		rejoin(flux, &node[0], 0, 1);
		assert_int_equal(call(node[0], 1, 0, i), 0);
		assert_int_equal(recv_from(node[1], node[0], &held[i], 1), 1);
		leave(node, 1);
		assert_int_equal(recv_from(node[1], NULL, req, 4), 0);
		assert_int_equal(recv_from(node[1], NULL, req, 4), 0);
	}
	rejoin(flux, &node[0], 0, 1);
	assert_int_equal(call(node[0], 1, 0, 7), 0);
	assert_int_equal(recv_from(node[1], node[0], req, 4), 1);
	assert_int_equal(payload_of(req[0].data).seq, 7);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(heap.released, i);
		assert_int_equal(payload_of(held[i].data).seq, i);
		assert_int_equal(payload_of(held[i].data).from, 0);
		assert_int_equal(echo(node[1], &held[i]), -ECONNRESET);
		assert_int_equal(echo(node[1], &held[i]), -ENOENT);
		assert_int_equal(heap.released, i); /* not on the datapath */
		assert_non_null(other = join(flux, 2));
		leave(&other, 1);
		assert_int_equal(heap.released, i + 1);
	}
	assert_int_equal(echo(node[1], &req[0]), 0);
	rig_end(*state, flux, node, 2);
	assert_int_equal(heap.released, 3);
	heap_end();
}

/* recv and poll take no lock, not even for channels of peers that left. */
TEST(datapath_takes_no_lock)
{
	struct member *node[3];
	struct crpc_flux *flux;

	alarm(30); /* a lock that is held would be waited for */
	flux = flux_on_heap(*state);
	join_all(flux, node, 2);
	assert_int_equal(call(node[0], 1, 0, 1), 0);
	assert_int_equal(call(node[1], 0, 1, 1), 0);
	serve(node[1], node[0]);
	leave(node, 1);
	heap.use = node[1];
	node[0] = join(flux, 0);
	node[2] = join(flux, 2);
	assert_int_equal(connect_to(node[0], 2), 0);
	assert_int_equal(heap.released, 0);
	heap.use = NULL;
	rig_end(*state, flux, node, 3);
	assert_int_equal(heap.released, 3);
	heap_end();
	alarm(0);
}

/* ---- deadlines ---- */

/* A reply that waits behind the ends of notifications is delivered, though its time is over. */
TEST(reply_behind_ends_of_notifications_is_delivered)
{
	struct crpc_flux *flux = flux_of(*state, 2, 256, 1000);
	struct crpc_done done[4];
	struct member *node[2];
	uint32_t i, got = 0;

	join_all(flux, node, 2);
	node[0]->now = 1;
	for (i = 0; i < 200; i++)
		assert_int_equal(notify(node[0], 1, 0, i), 0);
	assert_int_equal(call(node[0], 1, 0, 7), 0);
	assert_int_equal(serve(node[1], node[0]), 201);
	for (i = 0; i < 400 && got == 0; i++)
		got = poll(node[0], 5000 + i, done, 1);
	assert_int_equal(got, 1);
	assert_int_equal(done[0].cookie, 7);
	assert_int_equal(done[0].status, 0);
	rig_end(*state, flux, node, 2);
}

/* More peers than room: each has its turn, and no reply that waits is late. */
TEST(replies_of_many_peers_are_delivered_in_turns)
{
	struct crpc_flux *flux = flux_of(*state, 5, 4, 1000);
	struct crpc_done done[3];
	struct member *node[5];
	uint64_t now = 5000;
	uint32_t i, turn, n;

	join_all(flux, node, 5);
	node[0]->now = 1;
	for (i = 1; i < 5; i++)
		assert_int_equal(call(node[0], i, 0, i), 0);
	for (turn = 0; turn < 20; turn++, now += 10) {
		for (i = 1; i < 5; i++)
			serve(node[i], node[0]);
		n = poll(node[0], now, done, 3);
		for (i = 0; i < n; i++) {
			assert_int_equal(done[i].status, 0);
			assert_int_equal(
				call(node[0], (uint32_t)done[i].cookie, 0, done[i].cookie), 0);
		}
	}
	rig_end(*state, flux, node, 5);
}

#ifdef CRPC_DEBUG
static void *
use_node(void *m)
{
	struct crpc_done done;

	poll(m, 0, &done, 1);
	return NULL;
}

/* A debug build stops the second thread that uses a node. */
TEST(second_thread_is_stopped)
{
	struct crpc_flux *flux = flux_of(*state, 2, 4, 0);
	struct member *node[2];
	pthread_t th;
	int status;
	pid_t pid;

	join_all(flux, node, 2);
	use_node(node[0]);
	pid = fork();
	if (pid == 0) {
		signal(SIGILL, SIG_DFL); /* the test library's handler continues with the tests */
		signal(SIGTRAP, SIG_DFL);
		pthread_create(&th, NULL, use_node, node[0]);
		pthread_join(th, NULL);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	rig_end(*state, flux, node, 2);
}
#endif

RIG_MAIN
