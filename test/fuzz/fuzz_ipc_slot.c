/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client that writes what it likes into all that it may write, while the server receives and
 * answers, and an honest client calls: every request that the server gives out lies within the
 * liar's part, whatever is answered, and the honest one is served. Then the liar reads what the
 * server answered, and its own library stays within its part too.
 *
 * Input: two bytes of sizes, then steps, each a byte and its arguments.
 */
#include <string.h>

#include "crpc_ipc.h"
#include "crpc_util.h"
#include "fuzz.h"
#include "fuzz_dir.h"
#include "ipc_client.h"
#include "ipc_server.h"

#define STEPS_MAX 256
#define HELD_MAX  32

struct world {
	struct crpc_ipc_server *s;
	struct crpc_ipc_client *honest, *liar;
	struct crpc_req held[HELD_MAX];
	uint32_t n_held;
};

static uint64_t
take(struct fuzz_input *in, uint32_t bytes)
{
	uint64_t v = 0;

	(void)fuzz_take_some(in, &v, bytes);
	return v;
}

/* Any 8 bytes of len bytes at base. */
static void
scribble(void *base, uint64_t len, struct fuzz_input *in)
{
	uint64_t at = take(in, 2) % (len - 7), v = take(in, 8);

	memcpy((uint8_t *)base + at, &v, sizeof(v));
}

/* What might pass for a request, where the server will look next. */
static void
plausible_request(struct world *w, struct fuzz_input *in)
{
	const struct ipc_peer *p = &w->s->peers[w->liar->id];
	uint64_t where = take(in, 1), size = take(in, 2), field = take(in, 2);
	uint32_t seq = (uint32_t)(p->req_seq + take(in, 1) % 3);
	struct ipc_slot *slot = where % 2 == 0 ? p->head : w->liar->lone;

	crpc_store_release(&slot->word, ipc_word(seq, (uint32_t)size, (uint32_t)field));
}

/* What might pass for an answer, where the liar's library will look next. */
static void
plausible_answer(struct world *w, struct fuzz_input *in)
{
	uint64_t where = take(in, 1), size = take(in, 2), field = take(in, 2);
	struct ipc_slot *slot = where % 2 == 0 ? w->liar->head : w->liar->lone;
	uint32_t seq = where % 2 == 0 ? (uint32_t)w->liar->resp_seq : w->liar->lone_seq;

	crpc_store_release(&slot->word, ipc_word(seq, (uint32_t)size, (uint32_t)field));
}

static void
check_request(const struct crpc_ipc_server *s, const struct crpc_req *req)
{
	const struct ipc_peer *p;
	const uint8_t *d = req->data;

	fuzz_check(req->peer < s->lay.max_clients);
	p = &s->peers[req->peer];
	fuzz_check(req->len <= s->lay.req_max);
	fuzz_check(d >= p->req && d + req->len <= p->req + s->lay.req_stride);
}

/* Answer with what was asked; the call may allow less than that. */
static void
reply(struct world *w, const struct crpc_req *req)
{
	if (crpc_ipc_server_reply(w->s, 0, req->token, req->data, req->len) == -EMSGSIZE)
		fuzz_check(crpc_ipc_server_fail(w->s, 0, req->token, -EMSGSIZE) == 0);
}

static void
serve(struct world *w, uint64_t how)
{
	static uint8_t msgs[64 * 64];
	struct crpc_req req[16];
	uint32_t n = crpc_ipc_server_recv(w->s, 0, req, (uint16_t)(1 + how % 16)), i;

	for (i = 0; i < n; i++)
		check_request(w->s, &req[i]);
	if ((how & 32) != 0 &&
		crpc_ipc_server_reply_burst(w->s, 0, req, msgs, 16, (uint16_t)n) == n)
		return;
	for (i = 0; i < n; i++) {
		if ((how & 64) != 0 && w->n_held < HELD_MAX)
			w->held[w->n_held++] = req[i];
		else if (crpc_ipc_token_oneway(req[i].token))
			crpc_ipc_server_release(w->s, 0, req[i].token);
		else
			reply(w, &req[i]);
	}
}

static void
honest_call(struct world *w)
{
	uint64_t v = 0x686f6e657374;
	struct crpc_done done;

	fuzz_check(crpc_ipc_client_call(w->honest, 0, &v, 8, 32, v) == 0);
	for (uint32_t turns = 0; crpc_ipc_client_poll(w->honest, 0, &done, 1) == 0; turns++) {
		fuzz_check(turns < 1000);
		serve(w, 15);
		/*
		 * The doorbell is everybody's, the liar's too: who is missed there is found here.
		 */
		if (turns % 8 == 7)
			crpc_ipc_server_reap(w->s);
	}
	fuzz_check(done.status == 0 && done.cookie == v && done.len == 8);
	fuzz_check(memcmp(done.data, &v, 8) == 0);
}

static void
liar_polls(struct world *w)
{
	const struct crpc_ipc_client *c = w->liar;
	struct crpc_done done[8];
	uint32_t n = crpc_ipc_client_poll(w->liar, 0, done, 8), i;
	const uint8_t *d, *own = c->lone_data;

	for (i = 0; i < n; i++) {
		d = done[i].data;
		fuzz_check((d == NULL) == (done[i].status != 0));
		if (d == NULL)
			continue;
		fuzz_check((d >= c->resp && d + done[i].len <= c->resp + c->resp_region) ||
			(d == own && done[i].len <= sizeof(c->lone_data)));
	}
}

static void
step(struct world *w, struct fuzz_input *in)
{
	uint64_t what = take(in, 1), how = take(in, 1);

	switch (what % 12) {
	case 0:
		scribble(w->liar->req, w->liar->req_region, in);
		break;
	case 1:
		scribble(w->liar->resp, w->liar->resp_region, in);
		break;
	case 2:
		scribble(w->liar->ctl, sizeof(*w->liar->ctl), in);
		break;
	case 3:
		scribble(w->liar->bell, sizeof(*w->liar->bell), in);
		break;
	case 4:
		plausible_request(w, in);
		break;
	case 5:
		plausible_answer(w, in);
		break;
	case 6:
		crpc_ipc_client_call(w->liar, 0, dir, (uint32_t)(how % 50), how % 41, how);
		break;
	case 7:
		crpc_ipc_client_notify(w->liar, 0, dir, (uint32_t)(how % 50));
		break;
	case 8:
		liar_polls(w);
		break;
	case 9:
		crpc_ipc_server_reap(w->s);
		break;
	case 10:
		if (w->n_held != 0) {
			how %= w->n_held;
			if (crpc_ipc_server_reply(w->s, 0, w->held[how].token, "late", 4) != 0)
				crpc_ipc_server_release(w->s, 0, w->held[how].token);
			w->held[how] = w->held[--w->n_held];
		}
		break;
	default:
		serve(w, how);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct crpc_ipc_server_conf conf = {.name = "f", .dir = dir, .max_clients = 2};
	struct crpc_ipc_client_conf cc = {0};
	struct fuzz_input in = {data, size};
	struct world w = {0};

	if (dir[0] == '\0')
		fuzz_dir_make("fuzz_ipc.");
	conf.depth = 1 + (uint32_t)take(&in, 1) % 8;
	conf.req_max = 56 + (uint32_t)take(&in, 1) % 4 * 40;
	conf.resp_max = conf.req_max;
	w.s = crpc_ipc_server_create(&conf);
	fuzz_check(w.s != NULL);
	w.s->sleep_visits = 2;
	w.s->awake_min = 0;
	cc.server = w.s;
	w.honest = crpc_ipc_client_connect(&cc);
	w.liar = crpc_ipc_client_connect(&cc);
	fuzz_check(w.honest != NULL && w.liar != NULL);
	for (uint32_t i = 0; i < STEPS_MAX && in.left != 0; i++)
		step(&w, &in);
	honest_call(&w);
	fuzz_check(crpc_ipc_client_status(w.honest) == 0);
	/* Whatever it wrote, its place comes back, once the requests are ended that it left. */
	crpc_ipc_client_close(w.liar);
	while (w.n_held != 0)
		crpc_ipc_server_release(w.s, 0, w.held[--w.n_held].token);
	for (uint32_t i = 0; i < 4; i++) {
		crpc_ipc_server_reap(w.s);
		serve(&w, 15);
	}
	w.liar = crpc_ipc_client_connect(&cc);
	fuzz_check(w.liar != NULL);
	honest_call(&w);
	crpc_ipc_client_close(w.liar);
	crpc_ipc_client_close(w.honest);
	crpc_ipc_server_free(w.s);
	return 0;
}
