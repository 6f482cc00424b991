/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fixed amount of work for callgrind to count: 6400 messages of 32 bytes through one ring (or as
 * many calls through flux), in one thread. Only counted_*() is collected;
 * test/golden/instructions.py divides.
 */
#include "count.h"
#include "crpc_flux.h"
#include "crpc_spsc_duplex.h"
#include "crpc_spsc_inline.h"
#include "spsc_ring.h"

#define ESIZE    32u
#define MESSAGES 6400u
#define BURST    32u

struct msg {
	uint64_t w[ESIZE / 8];
};

static struct ring ring;
static struct msg buf[BURST];
static uint64_t bad;

/* Enqueue a burst, make it visible, dequeue it. */
#define COUNTED(name, variant)                                                                     \
	void counted_##name##_burst(void);                                                         \
	crpc_noinline void counted_##name##_burst(void)                                            \
	{                                                                                          \
		uint32_t i;                                                                        \
                                                                                                   \
		for (i = 0; i < MESSAGES / BURST; i++) {                                           \
			bad += put(variant, buf, BURST) != BURST;                                  \
			crpc_spsc_inline_flush(&ring.p, variant);                                  \
			bad += get(variant, buf, BURST) != BURST;                                  \
		}                                                                                  \
	}                                                                                          \
	void counted_##name##_single(void);                                                        \
	crpc_noinline void counted_##name##_single(void)                                           \
	{                                                                                          \
		uint32_t i, k;                                                                     \
                                                                                                   \
		for (i = 0; i < MESSAGES / BURST; i++) {                                           \
			for (k = 0; k < BURST; k++)                                                \
				bad += put(variant, &buf[k], 1) != 1;                              \
			crpc_spsc_inline_flush(&ring.p, variant);                                  \
			for (k = 0; k < BURST; k++)                                                \
				bad += get(variant, &buf[k], 1) != 1;                              \
		}                                                                                  \
	}

#define put(variant, b, n) spsc_enqueue_burst(&ring.p, variant, ESIZE, b, n)
#define get(variant, b, n) spsc_dequeue_burst(&ring.c, variant, ESIZE, b, n)

COUNTED(lamport, CRPC_SPSC_LAMPORT)
COUNTED(ff, CRPC_SPSC_FASTFORWARD)
COUNTED(ffa, CRPC_SPSC_FASTFORWARD_ALIGNED)
COUNTED(one, CRPC_SPSC_ONESIDED)
COUNTED(onea, CRPC_SPSC_ONESIDED_ALIGNED)

static struct crpc_flux_node *node[2];
static struct crpc_flux_ep *ep;
static uint64_t cookie[BURST];

/* Requests and their replies in place, both ends' work together. */
static struct crpc_spsc_duplex_client client;
static struct crpc_spsc_duplex_server server;

static inline __attribute__((always_inline)) void
duplex_round(uint32_t burst)
{
	uint32_t k, n;
	void *first;

	for (k = 0; k < BURST; k += burst) {
		n = crpc_spsc_duplex_reserve(&client, ESIZE, burst, &first);
		memcpy(first, buf, burst * sizeof(*buf));
		crpc_spsc_duplex_commit(&client, n);
	}
	crpc_spsc_duplex_flush(&client);
	for (k = 0; k < BURST; k += n) {
		n = crpc_spsc_duplex_recv(&server, ESIZE, burst, &first);
		crpc_spsc_duplex_answer(&server, n);
	}
	crpc_spsc_duplex_flush_answers(&server);
	for (k = 0; k < BURST; k += n) {
		n = crpc_spsc_duplex_poll(&client, ESIZE, burst, &first);
		memcpy(buf, first, burst * sizeof(*buf));
		crpc_spsc_duplex_release(&client);
	}
}

void counted_duplex_burst(void);
crpc_noinline void
counted_duplex_burst(void)
{
	for (uint32_t i = 0; i < MESSAGES / BURST; i++)
		duplex_round(BURST);
}

void counted_duplex_single(void);
crpc_noinline void
counted_duplex_single(void)
{
	for (uint32_t i = 0; i < MESSAGES / BURST; i++)
		duplex_round(1);
}

void counted_lone(void);
crpc_noinline void
counted_lone(void)
{
	for (uint32_t i = 0; i < MESSAGES; i++) {
		memcpy(crpc_spsc_lone_reserve(&client, ESIZE), buf, ESIZE);
		crpc_spsc_lone_commit(&client, ESIZE);
		bad += crpc_spsc_lone_recv(&server, ESIZE) == NULL;
		crpc_spsc_lone_answer(&server);
		memcpy(buf, crpc_spsc_lone_poll(&client, ESIZE), ESIZE);
	}
}

static int
duplex_make(bool lone)
{
	struct crpc_spsc_attr a = {.variant = lone ? CRPC_SPSC_DUPLEX_LONE : CRPC_SPSC_DUPLEX,
		.depth = 256,
		.esize = ESIZE,
		.lazy = 256};
	size_t len = (size_t)crpc_spsc_memsize(&a);
	void *mem = aligned_alloc(CRPC_CACHE_GUARD, len);

	return mem == NULL || crpc_spsc_init(mem, len, &a) != 0 ||
		crpc_spsc_duplex_client_attach(&client, mem, len) != 0 ||
		crpc_spsc_duplex_server_attach(&server, mem, len) != 0;
}

/* A burst of calls, there and back, both nodes' work together. */
void counted_flux(void);
crpc_noinline void
counted_flux(void)
{
	struct crpc_done done[BURST];
	struct crpc_req req[BURST];

	for (uint32_t i = 0; i < MESSAGES / BURST; i++) {
		bad += crpc_flux_call_burst(ep, 1, buf, ESIZE, ESIZE, cookie, BURST) != BURST;
		crpc_flux_flush(node[0], 1);
		bad += crpc_flux_recv(node[1], 1, req, BURST) != BURST;
		bad += crpc_flux_reply_burst(node[1], 1, req, NULL, ESIZE, BURST) != BURST;
		crpc_flux_flush(node[1], 1);
		bad += crpc_flux_poll(node[0], 1, done, BURST) != BURST;
	}
}

static const struct {
	const char *name;
	int variant; /* of the ring, or of flux */
	void (*run)(void);
} cases[] = {
	{"lamport_burst", CRPC_SPSC_LAMPORT, counted_lamport_burst},
	{"lamport_single", CRPC_SPSC_LAMPORT, counted_lamport_single},
	{"fastforward_burst", CRPC_SPSC_FASTFORWARD, counted_ff_burst},
	{"fastforward_single", CRPC_SPSC_FASTFORWARD, counted_ff_single},
	{"fastforward_aligned_burst", CRPC_SPSC_FASTFORWARD_ALIGNED, counted_ffa_burst},
	{"fastforward_aligned_single", CRPC_SPSC_FASTFORWARD_ALIGNED, counted_ffa_single},
	{"onesided_burst", CRPC_SPSC_ONESIDED, counted_one_burst},
	{"onesided_single", CRPC_SPSC_ONESIDED, counted_one_single},
	{"onesided_aligned_burst", CRPC_SPSC_ONESIDED_ALIGNED, counted_onea_burst},
	{"onesided_aligned_single", CRPC_SPSC_ONESIDED_ALIGNED, counted_onea_single},
	{"duplex_burst", CRPC_SPSC_VARIANTS, counted_duplex_burst},
	{"duplex_single", CRPC_SPSC_VARIANTS, counted_duplex_single},
	{"duplex_lone", CRPC_SPSC_VARIANTS, counted_lone},
	{"flux_duplex", CRPC_FLUX_DUPLEX, counted_flux},
	{"flux_lamport", CRPC_FLUX_LAMPORT, counted_flux},
	{"flux_fastforward", CRPC_FLUX_FASTFORWARD, counted_flux},
	{"flux_onesided", CRPC_FLUX_ONESIDED, counted_flux},
};

int
main(int argc, char **argv)
{
	struct crpc_spsc_attr a = {.depth = 256, .esize = ESIZE, .lazy = 256};
	struct crpc_flux_attr fa = {.nodes = 2, .window = 128, .msg_size = ESIZE};
	size_t i = count_case(argc, argv, cases, sizeof(cases[0]), CRPC_DIM(cases));

	a.variant = (enum crpc_spsc_variant)cases[i].variant;
	fa.variant = (enum crpc_flux_variant)cases[i].variant;
	if (cases[i].variant == CRPC_SPSC_VARIANTS) {
		if (duplex_make(cases[i].run == counted_lone) != 0)
			return 1;
	} else if (cases[i].run != counted_flux) {
		if (ring_make(&ring, &a) != 0)
			return 1;
	} else {
		struct crpc_flux *flux = crpc_flux_create(&fa);

		node[0] = crpc_flux_join(flux, 0);
		node[1] = crpc_flux_join(flux, 1);
		if (crpc_flux_connect(node[0], 1, &ep) != 0)
			return 1;
	}
	cases[i].run();
	printf("messages %u\n", MESSAGES);
	return bad != 0;
}
