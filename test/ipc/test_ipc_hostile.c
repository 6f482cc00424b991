/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers that lie in every word they can write. The honest side stays inside the liar's slots
 * (checked here, and by the address sanitizer), does a bounded amount of work, and everybody else
 * is served.
 */
#include "ipc_inline.h"
#include "ipc_run.h"
#include "ipc_test.h"

#define DEPTH   6
#define MSG_MAX 200
#define STEPS   30000

static uint64_t
plausible_word(uint64_t seq, uint32_t max)
{
	uint32_t size = (uint32_t)(rng() % 3 == 0 ? rng() : rng() % (max + 3));
	uint32_t slot = (uint32_t)(rng() % 3 == 0 ? rng() : rng() % 9);

	if (rng() % 4 == 0)
		slot |= IPC_SLOT_ONEWAY;

	return ipc_word((uint32_t)(seq + rng() % 3 - 1), size & 0xffff, slot & 0xffff);
}

static void
scribble(void *base, uint64_t len)
{
	uint64_t *w = (uint64_t *)base + rng() % (len / 8);

	*w = rng() % 4 == 0 ? rng() : *w ^ UINT64_C(1) << rng() % 64;
}

/* One lie of the client in place p, anywhere it is not somebody else's. */
static void
client_lies(struct crpc_ipc_client *c, const struct ipc_peer *p)
{
	uint32_t slot = (uint32_t)(rng() % (c->req_mask + 1));

	switch (rng() % 8) {
	case 0:
		scribble(c->req, c->req_region);
		break;
	case 1:
		scribble(c->resp, c->resp_region);
		break;
	case 2:
		scribble(c->ctl, sizeof(*c->ctl));
		break;
	case 3:
		crpc_store_relaxed(&c->bell->summary, rng());
		crpc_store_relaxed(&c->bell->word[rng() % IPC_BELL_WORDS], rng());
		break;
	case 4: /* the read-only parts */
		scribble(crpc_shm_ptr(c->seg, IPC_HEADER_OFF, 256),
			sizeof(struct ipc_header) + sizeof(struct ipc_server_line));
		break;
	default: /* where the server will look, or somewhere else, what it could take for a request
		  */
		if (rng() % 2 == 0)
			slot = p->head_slot;
		crpc_store_relaxed(&ipc_slot_at(c->req, slot, c->req_slot)->word,
			plausible_word(p->req_seq, MSG_MAX));
	}
}

static void
check_request(struct crpc_ipc_server *s, const struct crpc_req *req)
{
	const struct ipc_peer *p;
	const uint8_t *d = req->data;

	assert_true(req->peer < s->lay.max_clients);
	p = &s->peers[req->peer];
	assert_true(req->len <= MSG_MAX);
	assert_true(d >= p->req && d + req->len <= p->req + s->lay.req_stride);
}

/* Answer with what was asked; the call may allow less than that. */
static int
echo(struct crpc_ipc_server *s, const struct crpc_req *req)
{
	int rc = answer(s, req, req->data, req->len);

	return rc != -EMSGSIZE ? rc : crpc_ipc_server_fail(s, now_ns(), req->token, rc);
}

/* Serve with late and early answers. Returns how many replies the server refused. */
static uint32_t
serve_some(struct crpc_ipc_server *s, struct crpc_req *held, uint32_t *n_held)
{
	struct crpc_req req[8];
	uint32_t n, i, k, refused = 0;

	n = take(s, req, 8);
	assert_true(n <= 8);
	for (i = 0; i < n; i++) {
		check_request(s, &req[i]);
		if (rng() % 4 == 0 && *n_held < 64)
			held[(*n_held)++] = req[i];
		else
			refused += echo(s, &req[i]) != 0;
	}
	if (*n_held != 0 && rng() % 2 == 0) {
		k = (uint32_t)(rng() % *n_held);
		refused += echo(s, &held[k]) != 0;
		held[k] = held[--*n_held];
	}
	if (rng() % 50 == 0)
		crpc_ipc_server_reap(s);
	return refused;
}

/* An honest client's call is answered within a bounded number of turns, whatever the liar does. */
static void
honest_round(struct crpc_ipc_server *s, struct crpc_ipc_client *h, struct crpc_req *held,
	uint32_t *n_held)
{
	uint64_t msg[4] = {rng(), rng(), rng(), rng()};
	struct crpc_done done;

	assert_ok(call(h, msg, sizeof(msg), msg[0]));
	for (int turns = 0; poll_done(h, &done, 1) == 0; turns++) {
		assert_true(turns < 2000);
		serve_some(s, held, n_held);
	}
	assert_int_equal(done.status, 0);
	assert_int_equal(done.cookie, msg[0]);
	assert_int_equal(done.len, sizeof(msg));
	assert_memory_equal(done.data, msg, sizeof(msg));
}

TEST(a_lying_client_hurts_itself_alone)
{
	struct crpc_ipc_server *s = keep_server(new_server(3, DEPTH, MSG_MAX, MSG_MAX));
	struct crpc_ipc_client *honest = new_client(s), *liar = new_client(NULL);
	struct crpc_ipc_server_stats st;
	struct crpc_req held[64];
	uint32_t n_held = 0, i, id, k, lives = 0;

	assert_non_null(honest);
	assert_non_null(liar);
	for (i = 0; i < STEPS; i++) {
		id = liar->id;
		for (k = (uint32_t)(rng() % 4); k > 0; k--)
			client_lies(liar, &s->peers[id]);
		serve_some(s, held, &n_held);
		honest_round(s, honest, held, &n_held);
		if (rng() % 40 != 0)
			continue;
		/* The liar leaves; its place is as good as new for whoever comes next. */
		crpc_ipc_client_close(liar);
		for (k = 0; k < 4; k++)
			crpc_ipc_server_reap(s);
		crpc_ipc_server_stats(s, &st);
		assert_int_equal(st.clients, 1);
		/* The header is the liar's to spoil for those who come by name. */
		memcpy(crpc_shm_ptr(s->seg, IPC_HEADER_OFF, sizeof(s->lay)), &s->lay,
			sizeof(s->lay));
		liar = new_client(NULL);
		assert_non_null(liar);
		honest_round(s, liar, held, &n_held);
		lives++;
	}
	crpc_ipc_server_stats(s, &st);
	assert_true(lives > 100 && st.rpc.malformed > 100); /* the lies did reach it */
	assert_ok(crpc_ipc_client_status(honest));
	crpc_ipc_client_close(liar);
	crpc_ipc_client_close(honest);
}

/* No honest client here: every word of the segment is fair game, the server lives through it. */
TEST(a_scribbled_segment_does_not_hurt_the_server)
{
	struct crpc_ipc_server *s = keep_server(new_server(5, DEPTH, MSG_MAX, MSG_MAX));
	struct crpc_ipc_client *c[3];
	struct crpc_req held[64];
	struct crpc_done done[8];
	uint32_t n_held = 0, i, k;

	for (k = 0; k < 3; k++)
		assert_non_null(c[k] = new_client(s));
	for (i = 0; i < STEPS; i++) {
		k = (uint32_t)(rng() % 3);
		call(c[k], &i, 4, i);
		scribble(crpc_shm_ptr(s->seg, 0, crpc_shm_size(s->seg)), crpc_shm_size(s->seg));
		client_lies(c[k], &s->peers[c[k]->id]);
		serve_some(s, held, &n_held);
		poll_done(c[k], done, 8);
		if (rng() % 100 == 0) {
			crpc_ipc_client_close(c[k]);
			for (uint32_t r = 0; r < 4; r++)
				crpc_ipc_server_reap(s);
			memcpy(crpc_shm_ptr(s->seg, IPC_HEADER_OFF, sizeof(s->lay)), &s->lay,
				sizeof(s->lay));
			assert_non_null(c[k] = new_client(s));
		}
	}
	for (k = 0; k < 3; k++)
		crpc_ipc_client_close(c[k]);
}

/* A run of responses at the head, to requests of which some are open, some not, some twice. */
static void
lie_by_run(struct crpc_ipc_client *c)
{
	uint32_t k = (uint32_t)(IPC_RUN_MIN + rng() % 5), i;
	uint16_t slots[CRPC_IPC_SMALL / sizeof(uint16_t)];

	for (i = 0; i < CRPC_DIM(slots); i++)
		slots[i] = (uint16_t)(rng() % (c->req_mask + 2));
	memcpy(c->head->data, slots, sizeof(slots));
	crpc_store_release(&c->head->word,
		ipc_word((uint32_t)c->resp_seq, (uint32_t)(rng() % (IPC_RUN_SIZE + 1)),
			IPC_SLOT_RUN | k));
}

/* One lie of the server in what the client will read. */
static void
server_lies(struct crpc_ipc_client *c)
{
	switch (rng() % 8) {
	case 0:
		scribble(c->resp, c->resp_region);
		break;
	case 1:
		break;
	case 2:
	case 3:
		lie_by_run(c);
		break;
	default:
		crpc_store_release(&c->head->word, plausible_word(c->resp_seq, c->resp_max));
	}
}

/*
 * A server that lies: each call still ends once, and data lie in the client's responses. Returns in
 * how many polls some answers of a run were taken.
 */
static uint32_t
be_lied_to(uint32_t resp_max)
{
	struct crpc_ipc_server *s = new_server(1, DEPTH, MSG_MAX, resp_max);
	uint64_t opened = 0, ended = 0, wrong = 0, next = 0;
	struct crpc_ipc_client *c = NULL;
	uint32_t i, k, n, runs = 0;
	bool open[1024] = {false};
	struct crpc_done done[8];
	const uint8_t *d;

	assert_non_null(s);
	for (i = 0; i < STEPS; i++) {
		if (c == NULL) {
			assert_non_null(c = new_client(s));
			memset(open, 0, sizeof(open));
			opened = ended = 0;
		}
		if (call(c, "x", 1, next % 1024) == 0) {
			open[next++ % 1024] = true;
			opened++;
		}
		server_lies(c);
		n = (uint32_t)(rng() % 8);
		n = poll_done(c, done, (uint16_t)n);
		ended += n;
		runs += c->run_at != 0;
		for (k = 0; k < n; k++) {
			assert_true(done[k].cookie < 1024 && open[done[k].cookie]);
			open[done[k].cookie] = false;
			d = done[k].data;
			assert_true(done[k].status == 0 ? d != NULL : d == NULL);
			if (d == NULL)
				continue;
			assert_true(done[k].len <= resp_max && d >= c->resp);
			assert_true(d + done[k].len <= c->resp + c->resp_region);
		}
		assert_int_equal(crpc_ipc_client_open(c), opened - ended);
		if (crpc_ipc_client_status(c) == 0)
			continue;
		assert_int_equal(crpc_ipc_client_status(c), -EPROTO);
		while ((n = poll_done(c, done, 8)) != 0)
			ended += n;
		assert_int_equal(opened, ended);
		crpc_ipc_client_close(c);
		assert_int_equal(crpc_ipc_server_reap(s), 1);
		c = NULL;
		wrong++;
	}
	assert_true(wrong > 100);
	crpc_ipc_client_close(c);
	crpc_ipc_server_free(s);
	return runs;
}

TEST(a_lying_server_cannot_fool_a_client)
{
	be_lied_to(MSG_MAX);
	assert_true(be_lied_to(CRPC_IPC_SMALL) > 100); /* slots of one line: there are runs */
}

/* A client that the server dropped learns it: its calls fail. */
TEST(a_dropped_client_is_told)
{
	struct crpc_ipc_server *s = keep_server(new_server(1, DEPTH, MSG_MAX, MSG_MAX));
	struct crpc_ipc_client *c = keep(new_client(s));
	struct crpc_req req[8];
	struct crpc_done done;

	assert_ok(call(c, "x", 1, 1));
	assert_int_equal(take(s, req, 8), 1);
	crpc_store_release(&c->next->word, ipc_word((uint32_t)c->req_seq, MSG_MAX + 1, 0));
	assert_int_equal(take(s, req + 1, 7), 0);
	assert_non_null(strstr(crpc_log_last(), "request size is 201, expected at most 200"));
	assert_int_equal(reply(s, req[0].token, "y", 1), -ECONNRESET);
	for (int polls = 0; poll_done(c, &done, 1) == 0; polls++)
		assert_true(polls <= CRPC_IPC_CHECK_POLLS);
	assert_int_equal(done.status, -ECONNRESET);
	assert_int_equal(done.cookie, 1);
	assert_int_equal(call(c, "x", 1, 1), -EPROTO);
}

/* A breach in the lone slot, and a request of the same number in the ring: that is not read. */
TEST(nothing_is_read_of_a_dropped_client)
{
	struct crpc_ipc_server *s = keep_server(new_server(1, DEPTH, MSG_MAX, MSG_MAX));
	struct crpc_ipc_client *c = keep(new_client(s));
	struct crpc_req req[8];

	crpc_store_release(&c->next->word, ipc_word((uint32_t)c->req_seq, 8, c->next_slot + 1));
	crpc_store_release(&c->lone->word, ipc_word((uint32_t)c->req_seq, CRPC_IPC_SMALL + 1, 0));
	assert_int_equal(take(s, req, 8), 0);
	assert_non_null(
		strstr(crpc_log_last(), "size of a lone request is 57, expected at most 56"));
	assert_int_equal(s->peers[0].state, IPC_PEER_DROPPED);
	assert_int_equal(take(s, req, 8), 0);
}

/* Each number of the layout, changed by each bit: refused, with the values said. */
TEST(a_wrong_layout_is_refused)
{
	struct crpc_ipc_server *s = keep_server(new_server(3, 4, 8, 8));
	uint8_t *lay = crpc_shm_ptr(s->seg, IPC_HEADER_OFF, sizeof(s->lay));

	for (size_t bit = 0; bit < 8 * sizeof(s->lay); bit++) {
		/* 8 bytes at most, or a few more: the same slots, so no contradiction to find. */
		if (bit / 8 == offsetof(struct ipc_header, req_max) ||
			bit / 8 == offsetof(struct ipc_header, resp_max))
			continue;
		lay[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_null(new_client(NULL));
		assert_int_equal(errno, EPROTO);
		assert_non_null(strstr(crpc_log_last(), "expected"));
		lay[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	/* Another version, and another kind: both values are said. */
	crpc_shm_header(s->seg)->kind_version = IPC_VERSION - 1;
	assert_null(new_client(NULL));
	assert_int_equal(errno, EPROTO);
	assert_non_null(strstr(crpc_log_last(), "layout version is 0x3, expected 0x4"));
	crpc_shm_header(s->seg)->kind_version = IPC_VERSION;
	crpc_shm_header(s->seg)->kind ^= 1;
	assert_null(new_client(NULL));
	assert_int_equal(errno, EPROTO);
	crpc_shm_header(s->seg)->kind ^= 1;
	/* Consistent, and larger than the file. */
	((struct ipc_header *)(void *)lay)->max_clients = 500;
	assert_ok(__crpc_ipc_layout((struct ipc_header *)(void *)lay, "t"));
	assert_null(new_client(NULL));
	assert_int_equal(errno, EPROTO);
}

TEST_MAIN(make_dir, remove_dir)
