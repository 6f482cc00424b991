/* SPDX-License-Identifier: BSD-3-Clause */
/* flux: node 0 is the server, the others are clients; over each ring. */
#include <errno.h>

#include "contract.h"
#include "crpc_flux.h"

#define LEN_MAX 248u

static struct {
	struct crpc_flux *flux;
	struct crpc_flux_node *node[1 + CLIENTS];
	struct crpc_flux_ep *ep[CLIENTS];
} flux;

/* By layer. */
static const enum crpc_flux_variant variants[] = {CRPC_FLUX_DUPLEX, CRPC_FLUX_LAMPORT,
	CRPC_FLUX_FASTFORWARD, CRPC_FLUX_FASTFORWARD_ALIGNED, CRPC_FLUX_ONESIDED,
	CRPC_FLUX_ONESIDED_ALIGNED, CRPC_FLUX_RTE_RING, CRPC_FLUX_RTE_RING_RTS,
	CRPC_FLUX_RTE_RING_HTS};

static void
flux_join(struct star *s, uint32_t c)
{
	flux.node[1 + c] = crpc_flux_join(flux.flux, 1 + c);
	assert_non_null(flux.node[1 + c]);
	assert_int_equal(crpc_flux_connect(flux.node[1 + c], 0, &flux.ep[c]), 0);
}

static void
flux_open(struct star *s)
{
	const uint32_t i = (uint32_t)(s->layer - contract_layers[0]);
	const struct crpc_flux_attr attr = {.nodes = 1 + CLIENTS,
		.variant = variants[i],
		.window = s->window,
		.msg_size = LEN_MAX,
		.deadline_ns = s->timeout_ns,
		.start = s->near_end ? UINT32_MAX - 50 : 0};

	flux.flux = crpc_flux_create(&attr);
	assert_or_log(flux.flux != NULL);
	flux.node[0] = crpc_flux_join(flux.flux, 0);
	assert_non_null(flux.node[0]);
	for (uint32_t c = 0; c < CLIENTS; c++)
		flux_join(s, c);
}

static void
flux_close(struct star *s)
{
	for (uint32_t i = 0; i < 1 + CLIENTS; i++) {
		if (flux.node[i] == NULL)
			continue;
		crpc_flux_leave(flux.node[i]);
		flux.node[i] = NULL;
	}
	crpc_flux_free(flux.flux);
}

static int
flux_call(struct star *s, uint32_t c, const void *buf, uint32_t len, uint32_t resp_max,
	uint64_t cookie)
{
	return crpc_flux_call(flux.ep[c], s->now, buf, len, resp_max, cookie);
}

static int
flux_notify(struct star *s, uint32_t c, const void *buf, uint32_t len)
{
	return crpc_flux_notify(flux.ep[c], s->now, buf, len);
}

static uint32_t
flux_cancel(struct star *s, uint32_t c, uint64_t cookie)
{
	return crpc_flux_cancel(flux.ep[c], s->now, cookie);
}

static uint16_t
flux_poll(struct star *s, uint32_t c, struct crpc_done *done, uint16_t n)
{
	return crpc_flux_poll(flux.node[1 + c], s->now, done, n);
}

static uint16_t
flux_recv(struct star *s, struct crpc_req *req, uint16_t n)
{
	return crpc_flux_recv(flux.node[0], s->now, req, n);
}

static int
flux_reply(struct star *s, uint64_t token, const void *buf, uint32_t len)
{
	return crpc_flux_reply(flux.node[0], s->now, token, buf, len);
}

static int
flux_fail(struct star *s, uint64_t token, int32_t status)
{
	return crpc_flux_fail(flux.node[0], s->now, token, status);
}

static int
flux_release(struct star *s, uint64_t token)
{
	return crpc_flux_release(flux.node[0], s->now, token);
}

static void
flux_flush(struct star *s)
{
	for (uint32_t i = 0; i < 1 + CLIENTS; i++)
		if (flux.node[i] != NULL)
			crpc_flux_flush(flux.node[i], s->now);
}

static void
flux_drive(struct star *s)
{
	struct crpc_done done[4];

	assert_int_equal(crpc_flux_poll(flux.node[0], s->now, done, 4), 0);
}

static void
flux_leave(struct star *s, uint32_t c)
{
	crpc_flux_leave(flux.node[1 + c]);
	flux.node[1 + c] = NULL;
}

static bool
flux_gone(struct star *s, uint32_t c)
{
	return true;
}

static void
flux_server_leave(struct star *s)
{
	crpc_flux_leave(flux.node[0]);
	flux.node[0] = NULL;
}

static const struct crpc_rpc_counts *
flux_counts(struct star *s, uint32_t c)
{
	return &crpc_flux_node_stats(flux.node[1 + c])->rpc;
}

#define FLUX(text)                                                                                 \
	{                                                                                          \
		.name = text, .msg_max = LEN_MAX, .counters_near_end = true, .open = flux_open,    \
		.close = flux_close, .call = flux_call, .notify = flux_notify,                     \
		.cancel = flux_cancel, .poll = flux_poll, .recv = flux_recv, .reply = flux_reply,  \
		.fail_with = flux_fail, .release = flux_release, .flush = flux_flush,              \
		.drive = flux_drive, .leave = flux_leave, .gone = flux_gone, .join = flux_join,    \
		.server_leave = flux_server_leave, .counts = flux_counts                           \
	}

static const struct contract_layer layers[] = {
	FLUX("flux"),
	FLUX("flux over lamport"),
	FLUX("flux over fastforward"),
	FLUX("flux over fastforward aligned"),
	FLUX("flux over onesided"),
	FLUX("flux over onesided aligned"),
	FLUX("flux over rte_ring"),
	FLUX("flux over rte_ring RTS"),
	FLUX("flux over rte_ring HTS"),
};

const struct contract_layer *const contract_layers[] = {&layers[0], &layers[1], &layers[2],
	&layers[3], &layers[4], &layers[5], &layers[6], &layers[7], &layers[8], NULL};
