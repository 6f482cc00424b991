/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A queue pair's address as ranks exchange it. Little endian:
 *
 *      0  u32  magic "CMX5"
 *      4  u8   version
 *      5  u8   link layer, as in verbs: 1 InfiniBand, 2 Ethernet
 *      6  u8   path MTU, enum ibv_mtu
 *      7  u8   flags: bit 0 a GID follows
 *      8  u32  QPN
 *     12  u32  first packet sequence number
 *     16  u16  LID
 *     18  u8   READs that the QP answers at a time
 *     19  u8   kind: 0 reliable connection, 1 datagrams, 2 dynamic connections
 *     20  u32  0
 *     24  16   GID
 *     40  u64  the key that a sender needs: Q_Key of datagrams, DC access key, else 0
 *     48  ...  0
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "crpc_log.h"
#include "mlx5_copyrpc.h"

#define ADDR_MAGIC   0x35584d43u
#define ADDR_VERSION 1
#define ADDR_HAS_GID 0x1u
/* A Q_Key with the highest bit would stand for the sender's own. */
#define QKEY_MAX 0x7fffffffu

static const char *const kind_names[] = {
	[CRPC_MLX5_RC] = "a reliable connection",
	[CRPC_MLX5_UD] = "datagrams",
	[CRPC_MLX5_DC] = "dynamic connections",
};

struct wire_addr {
	uint32_t magic;
	uint8_t version;
	uint8_t link_layer;
	uint8_t mtu;
	uint8_t flags;
	uint32_t qpn;
	uint32_t psn;
	uint16_t lid;
	uint8_t rd_atomic;
	uint8_t kind;
	uint32_t rsvd20;
	uint8_t gid[16];
	uint64_t key;
	uint8_t rsvd48[16];
};

_Static_assert(sizeof(struct wire_addr) == CRPC_RDMA_ADDR_LEN, "an address has a fixed length");
_Static_assert(offsetof(struct wire_addr, qpn) == 8, "as documented above");
_Static_assert(offsetof(struct wire_addr, gid) == 24, "as documented above");
_Static_assert(offsetof(struct wire_addr, key) == 40, "as documented above");

void
crpc_mlx5_addr_encode(const struct crpc_mlx5_addr *a, uint8_t out[CRPC_RDMA_ADDR_LEN])
{
	struct wire_addr w = {
		.magic = htole32(ADDR_MAGIC),
		.version = ADDR_VERSION,
		.link_layer = a->link_layer,
		.mtu = a->mtu,
		.flags = a->has_gid ? ADDR_HAS_GID : 0,
		.qpn = htole32(a->qpn),
		.psn = htole32(a->psn),
		.lid = htole16(a->lid),
		.rd_atomic = a->rd_atomic,
		.kind = a->kind,
		.key = htole64(a->key),
	};

	if (a->has_gid)
		memcpy(w.gid, a->gid, sizeof(w.gid));
	memcpy(out, &w, sizeof(w));
}

/* NULL, or what is wrong with the fields. */
static const char *
field_error(const struct wire_addr *w, const struct crpc_mlx5_addr *a)
{
	static const uint8_t zero[sizeof(w->rsvd48)];

	if (a->qpn < 2 || a->qpn >= CRPC_MLX5_QPN_MASK)
		return "the QPN is not one of a connected queue pair";
	if (a->psn > 0xffffff)
		return "the sequence number has more than 24 bits";
	if (a->mtu < IBV_MTU_256 || a->mtu > IBV_MTU_4096)
		return "the MTU is none";
	if (a->link_layer != IBV_LINK_LAYER_INFINIBAND && a->link_layer != IBV_LINK_LAYER_ETHERNET)
		return "the link layer is unknown";
	if (a->lid == 0 && !a->has_gid)
		return "it has neither LID nor GID";
	if (a->kind != CRPC_MLX5_DC && a->key > (a->kind == CRPC_MLX5_UD ? QKEY_MAX : 0))
		return "the key is none of its kind";
	if ((w->flags & ~ADDR_HAS_GID) != 0 || w->rsvd20 != 0 ||
		memcmp(w->rsvd48, zero, sizeof(zero)) != 0)
		return "reserved bytes are set";
	return NULL;
}

int
crpc_mlx5_addr_decode(
	const uint8_t in[CRPC_RDMA_ADDR_LEN], uint8_t kind, struct crpc_mlx5_addr *out)
{
	struct crpc_mlx5_addr a = {0};
	struct wire_addr w;
	const char *wrong;

	memcpy(&w, in, sizeof(w));
	if (le32toh(w.magic) != ADDR_MAGIC)
		return crpc_fail(-EPROTO,
			"connect: the peer's address starts with 0x%08x, not 0x%08x: it is none of "
			"this driver",
			le32toh(w.magic), ADDR_MAGIC);
	if (w.version != ADDR_VERSION)
		return crpc_fail(-EPROTO,
			"connect: the peer's address has version %u, this driver speaks %u: use the "
			"same release on all ranks",
			w.version, ADDR_VERSION);
	if (w.kind != kind)
		return crpc_fail(-EPROTO,
			"connect: the peer's address is of %s, needed is one of %s",
			w.kind < CRPC_DIM(kind_names) ? kind_names[w.kind] : "an unknown kind",
			kind_names[kind]);
	a.kind = kind;
	a.key = le64toh(w.key);
	a.qpn = le32toh(w.qpn);
	a.psn = le32toh(w.psn);
	a.lid = le16toh(w.lid);
	a.link_layer = w.link_layer;
	a.mtu = w.mtu;
	a.rd_atomic = w.rd_atomic;
	a.has_gid = w.flags & ADDR_HAS_GID;
	memcpy(a.gid, w.gid, sizeof(a.gid));
	wrong = field_error(&w, &a);
	if (wrong != NULL)
		return crpc_fail(-EPROTO, "connect: the peer's address is damaged: %s", wrong);
	*out = a;
	return 0;
}
