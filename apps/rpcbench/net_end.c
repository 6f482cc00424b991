/* SPDX-License-Identifier: BSD-3-Clause */
/* What all ends have in common. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "app_fail.h"
#include "crpc_log.h"
#include "crpc_rdma.h"
#include "net.h"

extern const struct net_ops net_ops_copyrpc_rc, net_ops_copyrpc_dc;
extern const struct net_ops net_ops_write_imm, net_ops_write_imm_lat, net_ops_write, net_ops_read;
extern const struct net_ops net_ops_send, net_ops_send_bf, net_ops_send_lat;
extern const struct net_ops net_ops_ud_send, net_ops_ud_lat;
extern const struct net_ops net_ops_write_relaxed, net_ops_read_relaxed;

#ifdef RPB_HAVE_UDRPC
extern const struct net_ops net_ops_udrpc;
#else
static const struct net_ops no_udrpc = {.name = "udrpc", .unit = NET_RATE};
#define net_ops_udrpc no_udrpc
#endif

const struct net_ops *const net_ops[NET_ALL] = {
	[NET_COPYRPC_RC] = &net_ops_copyrpc_rc,
	[NET_COPYRPC_DC] = &net_ops_copyrpc_dc,
	[NET_UDRPC] = &net_ops_udrpc,
	[NET_WRITE_IMM] = &net_ops_write_imm,
	[NET_WRITE_IMM_LAT] = &net_ops_write_imm_lat,
	[NET_WRITE] = &net_ops_write,
	[NET_READ] = &net_ops_read,
	[NET_SEND] = &net_ops_send,
	[NET_SEND_BF] = &net_ops_send_bf,
	[NET_SEND_LAT] = &net_ops_send_lat,
	[NET_UD_SEND] = &net_ops_ud_send,
	[NET_UD_LAT] = &net_ops_ud_lat,
	[NET_WRITE_RELAXED] = &net_ops_write_relaxed,
	[NET_READ_RELAXED] = &net_ops_read_relaxed,
};

static struct crpc_rdma_info device;

int
net_device_choose(const char *name)
{
	const struct crpc_rdma_conf conf = {.device = name, .gid_index = -1};
	struct crpc_rdma *dev = crpc_rdma_open(&conf);

	if (dev == NULL)
		return app_fail("%s", crpc_log_last());
	crpc_rdma_info_get(dev, &device);
	crpc_rdma_close(dev);
	return 0;
}

const char *
net_device(void)
{
	return device.name;
}

struct net_end *
net_end_open(const struct net_conf *conf, bool server, char *why, size_t len)
{
	struct net_end *e = calloc(1, sizeof(*e));
	int rc = e == NULL ? -ENOMEM : 0;

	if (e != NULL) {
		e->conf = *conf;
		e->ops = net_ops[conf->transport];
		e->server = server;
		rc = e->ops->open(e);
	}
	if (rc == 0)
		return e;
	snprintf(why, len, "%s", e != NULL && e->why[0] != '\0' ? e->why : strerror(-rc));
	free(e);
	return NULL;
}

void
net_end_close(struct net_end *e)
{
	if (e == NULL)
		return;
	e->ops->close(e);
	free(e);
}

void
net_why(struct net_end *e, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(e->why, sizeof(e->why), fmt, ap);
	va_end(ap);
}

void
net_break(struct net_end *e, const char *fmt, ...)
{
	va_list ap;

	if (e->broken)
		return;
	e->broken = true;
	va_start(ap, fmt);
	vsnprintf(e->why, sizeof(e->why), fmt, ap);
	va_end(ap);
}

void
net_ledger_of(const struct crpc_rdma *dev, struct net_ledger *l)
{
	struct crpc_rdma_stats s;
	struct crpc_rdma_card card;

	crpc_rdma_stats_get(dev, &s);
	l->doorbells = s.doorbells;
	l->wqebbs = s.wqebbs;
	l->cqes = s.send_cqes + s.recv_cqes + s.error_cqes;
	l->card = crpc_rdma_card_get(dev, &card) == 0;
	if (l->card) {
		l->pcie_bytes = card.pcie_bytes;
		l->packets = card.packets;
	}
}

void
net_ledger_add(struct net_ledger *sum, const struct net_ledger *a, const struct net_ledger *b)
{
	sum->doorbells += b->doorbells - a->doorbells;
	sum->wqebbs += b->wqebbs - a->wqebbs;
	sum->cqes += b->cqes - a->cqes;
	sum->pcie_bytes += b->pcie_bytes - a->pcie_bytes;
	sum->packets += b->packets - a->packets;
	sum->reads += b->reads - a->reads;
	sum->repeated += b->repeated - a->repeated;
	sum->batches += b->batches - a->batches;
	sum->messages += b->messages - a->messages;
	sum->card = b->card;
}
