/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A queue pair's address as ranks exchange it. Little endian:
 *
 *      0  u32  magic "CMX5"
 *      4  u8   version
 *      5  u8   link layer, as in verbs: 1 InfiniBand, 2 Ethernet
 *      6  u8   path MTU, enum ibv_mtu
 *      7  u8   kind of the GID: 0 none, 1 InfiniBand, 2 RoCE v1, 3 RoCE v2
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

#include "crpc_ib.h"
#include "crpc_log.h"

#define ADDR_MAGIC   0x35584d43u
#define ADDR_VERSION 2
/* A Q_Key with the highest bit would stand for the sender's own. */
#define QKEY_MAX 0x7fffffffu

const char *
crpc_ib_kind_name(uint8_t kind)
{
	static const char *const names[] = {
		[CRPC_IB_RC] = "reliable connection",
		[CRPC_IB_UD] = "datagram queue pair",
		[CRPC_IB_DC] = "DC target",
		[CRPC_IB_DCI] = "DC initiator",
	};

	return kind < CRPC_DIM(names) ? names[kind] : "unknown kind";
}

#define AT(member, at) (offsetof(struct crpc_ib_addr, member) == (at))
_Static_assert(sizeof(struct crpc_ib_addr) == CRPC_RDMA_ADDR_LEN && AT(qpn, 8) && AT(gid, 24) &&
		AT(key, 40),
	"as documented above");

/* Between the order of the wire, which is little endian, and that of the CPU. */
static void
addr_swap(struct crpc_ib_addr *a)
{
	a->magic = htole32(a->magic);
	a->qpn = htole32(a->qpn);
	a->psn = htole32(a->psn);
	a->lid = htole16(a->lid);
	a->key = htole64(a->key);
}

void
crpc_ib_addr_encode(const struct crpc_ib_addr *a, uint8_t out[CRPC_RDMA_ADDR_LEN])
{
	struct crpc_ib_addr w = *a;

	w.magic = ADDR_MAGIC;
	w.version = ADDR_VERSION;
	if (w.gid_kind == 0)
		memset(w.gid, 0, sizeof(w.gid));
	addr_swap(&w);
	memcpy(out, &w, sizeof(w));
}

/* NULL, or what is wrong with the fields. */
static const char *
field_error(const struct crpc_ib_addr *a)
{
	static const uint8_t zero[sizeof(a->rsvd48)];

	if (a->qpn < 2 || a->qpn >= CRPC_IB_QPN_MASK)
		return "the QPN is not one of a connected queue pair";
	if (a->psn > 0xffffff)
		return "the sequence number has more than 24 bits";
	if (a->mtu < IBV_MTU_256 || a->mtu > IBV_MTU_4096)
		return "the MTU is none";
	if (a->link_layer != IBV_LINK_LAYER_INFINIBAND && a->link_layer != IBV_LINK_LAYER_ETHERNET)
		return "the link layer is unknown";
	if (a->lid == 0 && a->gid_kind == 0)
		return "it has neither LID nor GID";
	if (a->kind != CRPC_IB_DC && a->key > (a->kind == CRPC_IB_UD ? QKEY_MAX : 0))
		return "the key is none of its kind";
	if (a->gid_kind > 1 + IBV_GID_TYPE_ROCE_V2)
		return "the GID is of an unknown kind";
	if (a->rsvd20 != 0 || memcmp(a->rsvd48, zero, sizeof(zero)) != 0)
		return "reserved bytes are set";
	return NULL;
}

int
crpc_ib_addr_decode(const uint8_t in[CRPC_RDMA_ADDR_LEN], uint8_t kind, struct crpc_ib_addr *out)
{
	struct crpc_ib_addr a;
	const char *wrong;

	memcpy(&a, in, sizeof(a));
	addr_swap(&a);
	if (a.magic != ADDR_MAGIC)
		return crpc_fail(-EPROTO,
			"connect: the peer's address starts with 0x%08x, not 0x%08x: it is none of "
			"this driver",
			a.magic, ADDR_MAGIC);
	if (a.version != ADDR_VERSION)
		return crpc_fail(-EPROTO,
			"connect: the peer's address has version %u, this driver speaks %u: use the "
			"same release on all ranks",
			a.version, ADDR_VERSION);
	if (a.kind != kind)
		return crpc_fail(-EPROTO,
			"connect: the peer's address is of a %s, needed is one of a %s",
			crpc_ib_kind_name(a.kind), crpc_ib_kind_name(kind));
	wrong = field_error(&a);
	if (wrong != NULL)
		return crpc_fail(-EPROTO, "connect: the peer's address is damaged: %s", wrong);
	*out = a;
	return 0;
}
