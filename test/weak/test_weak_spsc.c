/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: no ring hands out a message before it is written, gives a slot back before it is read, or
 * gets stuck, on any machine that C11 allows; and each release and acquire is needed for that.
 * Method: weak.h. Every ring is of the least depth, and goes round more than once.
 */
#include <stdlib.h>

#include "crpc_spsc_duplex.h"
#include "crpc_spsc_onesided.h"
#include "spsc_burst.h"
#include "weak.h"

#define ESIZE   8u
#define DEPTH   2u
#define PER_MAX CRPC_SPSC_PACKED

static _Alignas(CRPC_CACHE_GUARD) uint8_t mem[2][2048];
static struct crpc_spsc_prod prod[2];
static struct crpc_spsc_cons cons[2];
static enum crpc_spsc_variant variant;
static uint32_t burst;
static uint32_t bursts;

static void
ring_make(unsigned int i, enum crpc_spsc_variant v, uint32_t lazy, bool credit)
{
	const struct crpc_spsc_attr attr = {.variant = v,
		.depth = DEPTH,
		.esize = ESIZE,
		.lazy = lazy,
		.start = UINT32_MAX,
		.caller_credit = credit};
	int rc = crpc_spsc_init(mem[i], sizeof(mem[i]), &attr);

	if (rc == 0 && v < CRPC_SPSC_VARIANTS) {
		rc = crpc_spsc_prod_attach(&prod[i], mem[i], sizeof(mem[i]));
		if (rc == 0)
			rc = crpc_spsc_cons_attach(&cons[i], mem[i], sizeof(mem[i]));
		weak_memory(&prod[i], sizeof(prod[i]));
		weak_memory(&cons[i], sizeof(cons[i]));
	}
	weak_memory(mem[i], sizeof(mem[i]));
	if (rc != 0)
		abort();
}

/* ---- rings: the same two threads for all ---- */

static void
produce(void)
{
	uint64_t msgs[PER_MAX];
	uint32_t i, j, done;

	for (i = 0; i < bursts; i++) {
		for (j = 0; j < burst; j++)
			msgs[j] = i * burst + j + 1;
		for (done = 0;;) {
			done += spsc_enqueue_burst(
				&prod[0], variant, ESIZE, msgs + done, burst - done);
			if (done == burst)
				break;
			weak_wait();
		}
	}
	crpc_spsc_inline_flush(&prod[0], variant);
}

static void
consume(void)
{
	uint32_t got = 0, n, i;
	uint64_t msgs[PER_MAX];

	while (got < bursts * burst) {
		n = spsc_dequeue_burst(&cons[0], variant, ESIZE, msgs, burst);
		for (i = 0; i < n; i++)
			weak_check(msgs[i] == ++got, "a message is wrong");
		if (n == 0)
			weak_wait();
	}
}

static void
stream(enum crpc_spsc_variant v, uint32_t lazy, uint32_t len, uint32_t n)
{
	ring_make(0, v, lazy, false);
	variant = v;
	burst = len;
	bursts = n + weak_deep;
}

static void
lamport_setup(void)
{
	stream(CRPC_SPSC_LAMPORT, 1, 1, 4);
}

static void
lamport_lazy_setup(void)
{
	stream(CRPC_SPSC_LAMPORT, 2, 3, 2);
}

static void
packed_setup(void)
{
	stream(CRPC_SPSC_FASTFORWARD, 1, CRPC_SPSC_PACKED, 4);
}

static void
packed_parts_setup(void)
{
	stream(CRPC_SPSC_FASTFORWARD, 2, 3, 3);
}

static void
aligned_setup(void)
{
	stream(CRPC_SPSC_FASTFORWARD_ALIGNED, 1, 1, 4);
}

static void
one_packed_setup(void)
{
	stream(CRPC_SPSC_ONESIDED, 1, 2, 3);
}

static void
one_aligned_setup(void)
{
	stream(CRPC_SPSC_ONESIDED_ALIGNED, 1, 1, 4);
}

/* ---- a one-sided ring whose room comes with the replies ---- */

static void
credit_setup(void)
{
	ring_make(0, CRPC_SPSC_ONESIDED_ALIGNED, 1, true);
	ring_make(1, CRPC_SPSC_LAMPORT, 1, false);
	bursts = weak_deep ? 5 : 4;
}

static bool
enqueue(unsigned int i, enum crpc_spsc_variant v, const uint64_t *msg)
{
	return spsc_enqueue_burst(&prod[i], v, ESIZE, msg, 1) == 1;
}

static bool
dequeue(unsigned int i, enum crpc_spsc_variant v, uint64_t *msg)
{
	return spsc_dequeue_burst(&cons[i], v, ESIZE, msg, 1) == 1;
}

static void
credit_client(void)
{
	uint32_t sent, got = 0;
	uint64_t v;

	for (sent = 1; sent <= bursts; sent++) {
		v = sent;
		while (!enqueue(0, CRPC_SPSC_ONESIDED_ALIGNED, &v)) {
			while (!dequeue(1, CRPC_SPSC_LAMPORT, &v))
				weak_wait();
			weak_check(v == ++got, "a reply is wrong");
			crpc_spsc_onesided_credit(&prod[0], 1);
			v = sent;
		}
	}
}

static void
credit_server(void)
{
	uint32_t got = 0;
	uint64_t v;

	while (got < bursts) {
		while (!dequeue(0, CRPC_SPSC_ONESIDED_ALIGNED, &v))
			weak_wait();
		weak_check(v == ++got, "a request is wrong");
		while (!enqueue(1, CRPC_SPSC_LAMPORT, &v)) {
			/* The client no longer reads replies than it needs. */
			if (got + DEPTH > bursts)
				return;
			weak_wait();
		}
	}
}

/* ---- replies that overwrite their requests ---- */

static struct crpc_spsc_duplex_client client;
static struct crpc_spsc_duplex_server server;
static uint32_t calls;

static void
duplex_make(enum crpc_spsc_variant v, uint32_t lazy)
{
	ring_make(0, v, lazy, false);
	if (crpc_spsc_duplex_client_attach(&client, mem[0], sizeof(mem[0])) != 0 ||
		crpc_spsc_duplex_server_attach(&server, mem[0], sizeof(mem[0])) != 0)
		abort();
	weak_memory(&client, sizeof(client));
	weak_memory(&server, sizeof(server));
	calls = weak_deep ? 4 : 3;
}

static void
duplex_setup(void)
{
	duplex_make(CRPC_SPSC_DUPLEX, 1);
}

static void
duplex_lazy_setup(void)
{
	duplex_make(CRPC_SPSC_DUPLEX, 2);
}

static void
duplex_client(void)
{
	uint32_t sent = 0, got = 0;
	void *first;

	while (got < calls) {
		while (sent < calls && crpc_spsc_duplex_reserve(&client, ESIZE, 1, &first) == 1) {
			*(uint64_t *)first = ++sent;
			crpc_spsc_duplex_commit(&client, 1);
		}
		if (crpc_spsc_duplex_poll(&client, ESIZE, 1, &first) == 0) {
			weak_wait();
			continue;
		}
		weak_check(*(uint64_t *)first == ++got + 100, "a reply is wrong");
		crpc_spsc_duplex_release(&client);
	}
}

static void
duplex_server(void)
{
	uint32_t got = 0;
	void *first;

	while (got < calls || server.published != server.answered) {
		if (crpc_spsc_duplex_recv(&server, ESIZE, 1, &first) == 0) {
			if (got < calls)
				weak_wait();
			continue;
		}
		weak_check(*(uint64_t *)first == ++got, "a request is wrong");
		*(uint64_t *)first = got + 100;
		crpc_spsc_duplex_answer(&server, 1);
	}
}

static void
lone_setup(void)
{
	duplex_make(CRPC_SPSC_DUPLEX_LONE, 1);
}

static void
lone_client(void)
{
	uint32_t sent = 0, got = 0;
	uint64_t *msg;

	while (got < calls) {
		while (sent < calls && (msg = crpc_spsc_lone_reserve(&client, ESIZE)) != NULL) {
			*msg = ++sent;
			crpc_spsc_lone_commit(&client, ESIZE);
		}
		while ((msg = crpc_spsc_lone_poll(&client, ESIZE)) == NULL)
			weak_wait();
		weak_check(*msg == ++got + 100, "a reply is wrong");
	}
}

static void
lone_server(void)
{
	uint64_t got = 0, *msg;

	while (got < calls) {
		while ((msg = crpc_spsc_lone_recv(&server, ESIZE)) == NULL)
			weak_wait();
		weak_check(*msg == ++got, "a request is wrong");
		*msg = got + 100;
		crpc_spsc_lone_answer(&server);
	}
}

int
main(int argc, char **argv)
{
	static const struct weak_scenario scenarios[] = {
		{"lamport", lamport_setup, {produce, consume}, NULL},
		{"lamport_lazy", lamport_lazy_setup, {produce, consume}, NULL},
		{"fastforward", packed_setup, {produce, consume}, NULL},
		{"fastforward_parts", packed_parts_setup, {produce, consume}, NULL},
		{"fastforward_aligned", aligned_setup, {produce, consume}, NULL},
		{"onesided", one_packed_setup, {produce, consume}, NULL},
		{"onesided_aligned", one_aligned_setup, {produce, consume}, NULL},
		{"onesided_credit", credit_setup, {credit_client, credit_server}, NULL},
		{"duplex", duplex_setup, {duplex_client, duplex_server}, NULL},
		{"duplex_lazy", duplex_lazy_setup, {duplex_client, duplex_server}, NULL},
		{"duplex_lone", lone_setup, {lone_client, lone_server}, NULL},
		{NULL, NULL, {NULL}, NULL},
	};
	static const struct weak_spare spares[] = {
		{NULL, 0, NULL},
	};

	return weak_main(argc, argv, "lib/spsc/", scenarios, spares);
}
