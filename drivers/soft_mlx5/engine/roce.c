/* SPDX-License-Identifier: BSD-3-Clause */
#include <pthread.h>

#include "bytes.h"
#include "roce.h"

#define BTH 12u
#define IP_BYTES 20u
#define PKEY 0xffffu
#define MIG_REQ 0x40u

/* Extension headers, in the order in which they follow BTH. */
enum has {
	HAS_DCETH = 1,
	HAS_DETH = 2,
	HAS_RETH = 4,
	HAS_ATOMIC = 8,
	HAS_AETH = 16,
	HAS_WORD = 32, /* AtomicAckETH, or a cookie. */
	HAS_IMM = 64, /* Or IETH. */
	HAS_DATA = 128,
};

/* The lower five bits of an opcode, by transport RC; the others have a part of them. */
enum op {
	OP_SEND_FIRST, OP_SEND_MIDDLE, OP_SEND_LAST, OP_SEND_LAST_IMM, OP_SEND_ONLY,
	OP_SEND_ONLY_IMM, OP_WRITE_FIRST, OP_WRITE_MIDDLE, OP_WRITE_LAST, OP_WRITE_LAST_IMM,
	OP_WRITE_ONLY, OP_WRITE_ONLY_IMM, OP_READ, OP_RESP_FIRST, OP_RESP_MIDDLE, OP_RESP_LAST,
	OP_RESP_ONLY, OP_ACK, OP_ATOMIC_ACK, OP_CMP_SWAP, OP_FETCH_ADD,
	OP_SEND_LAST_INV = 0x16, OP_SEND_ONLY_INV,
	OP_CONNECT, OP_DISCONNECT, OP_COOKIE, /* DC. */
	OPS = 32,
};

#define F SM_PKT_FIRST
#define L SM_PKT_LAST
#define I SM_PKT_IMM

static const struct shape {
	uint8_t type; /* enum sm_pkt_type; 0: no opcode. */
	uint8_t flags;
	uint8_t has;
} shapes[OPS] = {
	[OP_SEND_FIRST] = {SM_PKT_SEND, F, HAS_DATA},
	[OP_SEND_MIDDLE] = {SM_PKT_SEND, 0, HAS_DATA},
	[OP_SEND_LAST] = {SM_PKT_SEND, L, HAS_DATA},
	[OP_SEND_LAST_IMM] = {SM_PKT_SEND, L | I, HAS_IMM | HAS_DATA},
	[OP_SEND_ONLY] = {SM_PKT_SEND, F | L, HAS_DATA},
	[OP_SEND_ONLY_IMM] = {SM_PKT_SEND, F | L | I, HAS_IMM | HAS_DATA},
	[OP_WRITE_FIRST] = {SM_PKT_WRITE, F, HAS_RETH | HAS_DATA},
	[OP_WRITE_MIDDLE] = {SM_PKT_WRITE, 0, HAS_DATA},
	[OP_WRITE_LAST] = {SM_PKT_WRITE, L, HAS_DATA},
	[OP_WRITE_LAST_IMM] = {SM_PKT_WRITE, L | I, HAS_IMM | HAS_DATA},
	[OP_WRITE_ONLY] = {SM_PKT_WRITE, F | L, HAS_RETH | HAS_DATA},
	[OP_WRITE_ONLY_IMM] = {SM_PKT_WRITE, F | L | I, HAS_RETH | HAS_IMM | HAS_DATA},
	[OP_READ] = {SM_PKT_READ, F | L, HAS_RETH},
	[OP_RESP_FIRST] = {SM_PKT_READ_RESP, F, HAS_AETH | HAS_DATA},
	[OP_RESP_MIDDLE] = {SM_PKT_READ_RESP, 0, HAS_DATA},
	[OP_RESP_LAST] = {SM_PKT_READ_RESP, L, HAS_AETH | HAS_DATA},
	[OP_RESP_ONLY] = {SM_PKT_READ_RESP, F | L, HAS_AETH | HAS_DATA},
	[OP_ACK] = {SM_PKT_ACK, 0, HAS_AETH},
	[OP_ATOMIC_ACK] = {SM_PKT_ATOMIC_RESP, F | L, HAS_AETH | HAS_WORD},
	[OP_CMP_SWAP] = {SM_PKT_CMP_SWAP, F | L, HAS_ATOMIC},
	[OP_FETCH_ADD] = {SM_PKT_FETCH_ADD, F | L, HAS_ATOMIC},
	[OP_SEND_LAST_INV] = {SM_PKT_SEND, L | SM_PKT_INV, HAS_IMM | HAS_DATA},
	[OP_SEND_ONLY_INV] = {SM_PKT_SEND, F | L | SM_PKT_INV, HAS_IMM | HAS_DATA},
	[OP_CONNECT] = {SM_PKT_CONNECT, 0, HAS_WORD},
	[OP_DISCONNECT] = {SM_PKT_DISCONNECT, 0, 0},
	[OP_COOKIE] = {SM_PKT_NAK, 0, HAS_WORD},
};

/* AETH: what the upper three bits of the syndrome say, and the codes of a NAK. */
#define AETH_ACK 0x1fu /* No credits. */
#define AETH_RNR 0x20u
#define AETH_NAK 0x60u
/* "Invalid RD request", of a transport that nobody has: in DC, no such connection. */
#define AETH_RECONNECT 4u

static const uint8_t nak_codes[] = {SM_NAK_SEQUENCE, SM_NAK_INVALID, SM_NAK_ACCESS, SM_NAK_OP,
	SM_NAK_RECONNECT};

static inline void
put16(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static inline void
put32(uint8_t *p, uint32_t v)
{
	v = __builtin_bswap32(v);
	memcpy(p, &v, sizeof(v));
}

static inline void
put64(uint8_t *p, uint64_t v)
{
	v = __builtin_bswap64(v);
	memcpy(p, &v, sizeof(v));
}

/* The headers of an opcode; false: none that we know. */
static bool
shape_of(uint8_t opcode, struct shape *s)
{
	uint8_t transport = opcode & 0xe0, op = opcode & 0x1f;

	*s = shapes[op];
	if (s->type == SM_PKT_NONE)
		return false;
	switch (transport) {
	case SM_ROCE_RC:
		return op < OP_CONNECT;
	case SM_ROCE_UC:
		return op <= OP_WRITE_ONLY_IMM;
	case SM_ROCE_UD:
		s->type = SM_PKT_DATAGRAM;
		s->has |= HAS_DETH;
		return op == OP_SEND_ONLY || op == OP_SEND_ONLY_IMM;
	case SM_ROCE_DC:
		if (s->type < SM_PKT_ACK || s->type >= SM_PKT_CONNECT)
			s->has |= HAS_DCETH;
		return true;
	default:
		return false;
	}
}

/* The bytes of all headers, BTH included. */
static uint32_t
header_bytes(uint8_t has)
{
	static const uint8_t bytes[] = {16, 8, 16, 28, 4, 8, 4};
	uint32_t n = BTH;

	for (uint32_t i = 0; i < CRPC_DIM(bytes); i++)
		if ((has >> i & 1) != 0)
			n += bytes[i];
	return n;
}

/* ---- CRC ---- */

static uint32_t crc_table[8][256];

static void
crc_init(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (uint32_t k = 0; k < 8; k++)
			c = c >> 1 ^ (UINT32_C(0xedb88320) & -(c & 1));
		crc_table[0][i] = c;
	}
	for (uint32_t i = 0; i < 256; i++)
		for (uint32_t t = 1; t < 8; t++) {
			uint32_t c = crc_table[t - 1][i];

			crc_table[t][i] = crc_table[0][c & 0xff] ^ c >> 8;
		}
}

void
sm_roce_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, crc_init);
}

/* CRC-32 of IEEE 802.3, eight bytes at a time ("slicing by 8", Kounavis and Berry 2005). */
static uint32_t
crc_add(uint32_t crc, const uint8_t *p, uint32_t n)
{
	for (; n >= 8; n -= 8, p += 8) {
		uint64_t v;

		memcpy(&v, p, sizeof(v));
		v ^= crc;
		crc = 0;
		for (uint32_t i = 0; i < 8; i++)
			crc ^= crc_table[7 - i][v >> 8 * i & 0xff];
	}
	for (; n != 0; n--, p++)
		crc = crc_table[0][(crc ^ *p) & 0xff] ^ crc >> 8;
	return crc;
}

void
sm_roce_ip_udp(const struct sm_roce_path *path, uint32_t n, uint8_t to[SM_ROCE_IP_UDP])
{
	uint32_t sum = 0;

	memset(to, 0, SM_ROCE_IP_UDP);
	to[0] = 0x45;
	put16(to + 2, SM_ROCE_IP_UDP + n);
	to[6] = 0x40; /* Not to be fragmented; the kernel then leaves the identification 0. */
	to[8] = 64;
	to[9] = 17;
	put32(to + 12, path->src);
	put32(to + 16, path->dst);
	for (uint32_t i = 0; i < IP_BYTES; i += 2)
		sum += (uint32_t)to[i] << 8 | to[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	put16(to + 10, ~(sum + (sum >> 16)));
	put16(to + 20, path->sport);
	put16(to + 22, path->dport);
	put16(to + 24, SM_ROCE_IP_UDP - IP_BYTES + n);
}

void
sm_roce_icrc_behind(const uint8_t ip_udp[SM_ROCE_IP_UDP], const uint8_t *packet, uint32_t n,
	uint8_t icrc[SM_ROCE_ICRC])
{
	uint8_t head[8 + SM_ROCE_IP_UDP + BTH];
	uint8_t *ip = head + 8, *bth = ip + SM_ROCE_IP_UDP;
	uint32_t crc;

	/* What a switch may change counts as ones, and so does the LRH, which is not there. */
	memset(head, 0xff, 8);
	memcpy(ip, ip_udp, SM_ROCE_IP_UDP);
	ip[1] = ip[8] = 0xff;
	memset(ip + 10, 0xff, 2);
	memset(ip + IP_BYTES + 6, 0xff, 2);
	memcpy(bth, packet, BTH);
	bth[4] = 0xff;
	crc = crc_add(UINT32_MAX, head, sizeof(head));
	crc = ~crc_add(crc, packet + BTH, n - BTH);
	for (uint32_t i = 0; i < SM_ROCE_ICRC; i++)
		icrc[i] = (uint8_t)(crc >> 8 * i);
}

void
sm_roce_icrc(const struct sm_roce_path *path, const uint8_t *packet, uint32_t n,
	uint8_t icrc[SM_ROCE_ICRC])
{
	uint8_t headers[SM_ROCE_IP_UDP];

	sm_roce_ip_udp(path, n + SM_ROCE_ICRC, headers);
	sm_roce_icrc_behind(headers, packet, n, icrc);
}

/* ---- bytes ---- */

uint32_t
sm_roce_put(const struct sm_roce *p, uint8_t *to)
{
	uint32_t pad = -p->len & 3;
	uint8_t *at = to + BTH;
	struct shape s;

	if (!shape_of(p->opcode, &s) || p->len > SM_MTU_BYTES)
		return 0;
	to[0] = p->opcode;
	to[1] = (uint8_t)((p->solicited ? 0x80 : 0) | MIG_REQ | pad << 4);
	put16(to + 2, PKEY);
	put32(to + 4, p->dst & 0xffffff);
	put32(to + 8, (p->ack_req ? UINT32_C(1) << 31 : 0) | (p->psn & 0xffffff));
	if ((s.has & HAS_DCETH) != 0) {
		put64(at, p->key);
		put32(at + 8, (uint32_t)p->age << 24 | (p->src & 0xffffff));
		put32(at + 12, p->life);
		at += 16;
	}
	if ((s.has & HAS_DETH) != 0) {
		put32(at, p->qkey);
		put32(at + 4, p->src & 0xffffff);
		at += 8;
	}
	if ((s.has & (HAS_RETH | HAS_ATOMIC)) != 0) {
		put64(at, p->va);
		put32(at + 8, p->rkey);
		at += 12;
	}
	if ((s.has & HAS_RETH) != 0) {
		put32(at, p->dma_len);
		at += 4;
	}
	if ((s.has & HAS_ATOMIC) != 0) {
		put64(at, p->word[0]);
		put64(at + 8, p->word[1]);
		at += 16;
	}
	if ((s.has & HAS_AETH) != 0) {
		put32(at, (uint32_t)p->syndrome << 24 | (p->msn & 0xffffff));
		at += 4;
	}
	if ((s.has & HAS_WORD) != 0) {
		put64(at, p->word[0]);
		at += 8;
	}
	if ((s.has & HAS_IMM) != 0) {
		memcpy(at, &p->imm, sizeof(p->imm));
		at += 4;
	}
	if ((s.has & HAS_DATA) != 0) {
		if (p->len != 0)
			memcpy(at, p->payload, p->len);
		memset(at + p->len, 0, pad);
		at += p->len + pad;
	}
	return (uint32_t)(at - to);
}

bool
sm_roce_get(const uint8_t *from, uint32_t n, struct sm_roce *p)
{
	const uint8_t *at = from + BTH;
	uint32_t headers, pad;
	struct shape s;

	memset(p, 0, sizeof(*p));
	if (n < BTH || !shape_of(from[0], &s))
		return false;
	headers = header_bytes(s.has);
	pad = from[1] >> 4 & 3;
	/* Version 0; and what has no payload has nothing there. */
	if (n < headers + pad || (from[1] & 0x0f) != 0 || n - headers - pad > SM_MTU_BYTES ||
		(n & 3) != 0 || ((s.has & HAS_DATA) == 0 && n != headers))
		return false;
	p->opcode = from[0];
	p->solicited = (from[1] & 0x80) != 0;
	p->dst = sm_be32(from + 4) & 0xffffff;
	p->ack_req = (from[8] & 0x80) != 0;
	p->psn = sm_be32(from + 8) & 0xffffff;
	if ((s.has & HAS_DCETH) != 0) {
		p->key = sm_be64(at);
		p->age = at[8];
		p->src = sm_be32(at + 8) & 0xffffff;
		p->life = sm_be32(at + 12);
		at += 16;
	}
	if ((s.has & HAS_DETH) != 0) {
		p->qkey = sm_be32(at);
		p->src = sm_be32(at + 4) & 0xffffff;
		at += 8;
	}
	if ((s.has & (HAS_RETH | HAS_ATOMIC)) != 0) {
		p->va = sm_be64(at);
		p->rkey = sm_be32(at + 8);
		at += 12;
	}
	if ((s.has & HAS_RETH) != 0) {
		p->dma_len = sm_be32(at);
		at += 4;
	}
	if ((s.has & HAS_ATOMIC) != 0) {
		p->word[0] = sm_be64(at);
		p->word[1] = sm_be64(at + 8);
		at += 16;
	}
	if ((s.has & HAS_AETH) != 0) {
		p->syndrome = at[0];
		p->msn = sm_be32(at) & 0xffffff;
		at += 4;
	}
	if ((s.has & HAS_WORD) != 0) {
		p->word[0] = sm_be64(at);
		at += 8;
	}
	if ((s.has & HAS_IMM) != 0)
		memcpy(&p->imm, at, sizeof(p->imm));
	p->payload = from + headers;
	p->len = n - headers - pad;
	return true;
}

/* ---- packets of a ring ---- */

bool
sm_roce_is_connect(const struct sm_roce *p)
{
	return p->opcode == (SM_ROCE_DC | OP_CONNECT);
}

/* The opcode of a piece. */
static uint8_t
opcode_of(uint32_t type, uint32_t flags, bool first, bool last)
{
	static const uint8_t send[] = {OP_SEND_MIDDLE, OP_SEND_FIRST, OP_SEND_LAST, OP_SEND_ONLY};
	uint8_t op;

	switch (type) {
	case SM_PKT_SEND:
	case SM_PKT_DATAGRAM:
		op = send[(first ? 1 : 0) + (last ? 2 : 0)];
		if (last && (flags & SM_PKT_INV) != 0)
			return first ? OP_SEND_ONLY_INV : OP_SEND_LAST_INV;
		return (uint8_t)(op + (last && (flags & SM_PKT_IMM) != 0 ? 1 : 0));
	case SM_PKT_WRITE:
		op = (uint8_t)(send[(first ? 1 : 0) + (last ? 2 : 0)] + OP_WRITE_FIRST);
		return (uint8_t)(op + (last && (flags & SM_PKT_IMM) != 0 ? 1 : 0));
	case SM_PKT_READ_RESP:
		return first ? (last ? OP_RESP_ONLY : OP_RESP_FIRST)
			     : (last ? OP_RESP_LAST : OP_RESP_MIDDLE);
	case SM_PKT_READ:
		return OP_READ;
	case SM_PKT_CMP_SWAP:
		return OP_CMP_SWAP;
	case SM_PKT_FETCH_ADD:
		return OP_FETCH_ADD;
	case SM_PKT_ATOMIC_RESP:
		return OP_ATOMIC_ACK;
	case SM_PKT_CONNECT:
		return OP_CONNECT;
	case SM_PKT_DISCONNECT:
		return OP_DISCONNECT;
	default:
		return OP_ACK;
	}
}

/* The syndrome of an ACK or NAK; 0xff: a NAK for which there is none. */
static uint8_t
syndrome_of(const struct sm_hdr *h)
{
	if ((h->head >> 16 & 0xff) == SM_PKT_ACK)
		return AETH_ACK;
	if (h->imm == SM_NAK_RNR)
		return (uint8_t)(AETH_RNR | (h->rkey & 0x1f));
	for (uint32_t i = 0; i < CRPC_DIM(nak_codes); i++)
		if (nak_codes[i] == h->imm)
			return (uint8_t)(AETH_NAK | i);
	return 0xff;
}

bool
sm_roce_piece(const struct sm_hdr *h, const uint8_t *payload, uint32_t mtu_shift,
	enum sm_roce_transport transport, uint32_t i, struct sm_roce *p)
{
	uint32_t type = h->head >> 16 & 0xff, flags = h->head >> 24, len = h->head & 0xffff;
	bool data = type == SM_PKT_SEND || type == SM_PKT_WRITE || type == SM_PKT_READ_RESP;
	uint32_t pieces = data && len != 0 ? 1 + ((len - 1) >> mtu_shift) : 1;
	bool first, last;

	if (i >= pieces)
		return false;
	first = i == 0 && (type == SM_PKT_READ_RESP ? h->raddr == 0 : (flags & SM_PKT_FIRST) != 0);
	last = i == pieces - 1 && (flags & SM_PKT_LAST) != 0;
	*p = (struct sm_roce){
		.opcode = (uint8_t)(transport | opcode_of(type, flags, first, last)),
		.solicited = last && (flags & SM_PKT_SE) != 0,
		.ack_req = transport != SM_ROCE_UC && transport != SM_ROCE_UD && last &&
			type < SM_PKT_ACK,
		.dst = h->dst & 0xffffff,
		.psn = (h->psn + i) & 0xffffff,
		.src = h->src & 0xffffff,
		.qkey = h->rkey,
		.va = h->raddr,
		.rkey = h->rkey,
		.dma_len = type == SM_PKT_WRITE && (flags & SM_PKT_LAST) != 0 ? len : h->imm,
		.imm = h->imm,
		.syndrome = AETH_ACK,
		.msn = type == SM_PKT_ACK || type == SM_PKT_NAK ? (uint32_t)h->raddr : h->imm,
	};
	if (type >= SM_PKT_CONNECT) { /* A request's connection knows them. */
		p->key = h->raddr;
		p->life = h->imm;
		p->age = (uint8_t)h->rkey;
	}
	if (type == SM_PKT_NAK && h->imm == SM_NAK_COOKIE) {
		p->opcode = SM_ROCE_DC | OP_COOKIE;
		p->word[0] = h->raddr;
		return transport == SM_ROCE_DC;
	}
	if (type == SM_PKT_ACK || type == SM_PKT_NAK) {
		p->syndrome = syndrome_of(h);
		return p->syndrome != 0xff;
	}
	if (data || type == SM_PKT_DATAGRAM) {
		p->payload = payload + ((size_t)i << mtu_shift);
		p->len = data && i != pieces - 1 ? 1u << mtu_shift : len - (i << mtu_shift);
	} else if (type == SM_PKT_CMP_SWAP || type == SM_PKT_FETCH_ADD) {
		memcpy(p->word, payload, crpc_min(len, sizeof(p->word)));
	} else if (type == SM_PKT_ATOMIC_RESP) {
		memcpy(p->word, payload, crpc_min(len, sizeof(p->word[0])));
	}
	return true;
}

/* An AETH by itself: ACK or NAK; false: a syndrome that means nothing. */
static bool
aeth_hdr(const struct sm_roce *p, struct sm_hdr *h)
{
	uint32_t what = p->syndrome & 0xe0, code = p->syndrome & 0x1f;

	h->raddr = p->msn;
	if (what == 0) {
		h->head = (uint32_t)SM_PKT_ACK << 16;
		h->imm = 0;
		return true;
	}
	h->head = (uint32_t)SM_PKT_NAK << 16;
	h->rkey = code;
	h->imm = SM_NAK_RNR;
	if (what == AETH_RNR)
		return true;
	if (what != AETH_NAK || code >= CRPC_DIM(nak_codes) ||
		(code == AETH_RECONNECT && (p->opcode & 0xe0) != SM_ROCE_DC))
		return false;
	h->imm = nak_codes[code];
	return true;
}

bool
sm_roce_hdr(struct sm_roce *p, struct sm_hdr *h)
{
	struct shape s;

	if (!shape_of(p->opcode, &s))
		return false;
	h->dst = p->dst;
	h->src = p->src;
	h->psn = p->psn;
	h->raddr = p->va;
	h->rkey = p->rkey;
	h->imm = p->imm;
	switch (s.type) {
	case SM_PKT_ACK:
		return aeth_hdr(p, h);
	case SM_PKT_NAK:
		h->raddr = p->word[0];
		h->imm = SM_NAK_COOKIE;
		break;
	case SM_PKT_CONNECT:
	case SM_PKT_DISCONNECT:
		h->raddr = p->key;
		h->rkey = p->age;
		h->imm = p->life;
		break;
	case SM_PKT_READ:
		h->imm = p->dma_len;
		break;
	case SM_PKT_WRITE:
		if ((s.flags & (SM_PKT_FIRST | SM_PKT_LAST)) == SM_PKT_FIRST)
			h->imm = p->dma_len;
		/* Of one packet: its length is that of the message. */
		if ((s.flags & (SM_PKT_FIRST | SM_PKT_LAST)) == (SM_PKT_FIRST | SM_PKT_LAST) &&
			p->dma_len != p->len)
			return false;
		break;
	case SM_PKT_CMP_SWAP:
	case SM_PKT_FETCH_ADD:
		p->payload = (const uint8_t *)p->word;
		p->len = sizeof(p->word);
		break;
	case SM_PKT_ATOMIC_RESP:
		p->payload = (const uint8_t *)p->word;
		p->len = sizeof(p->word[0]);
		break;
	case SM_PKT_READ_RESP:
		if ((p->syndrome & 0xe0) != 0 && (s.has & HAS_AETH) != 0)
			return false;
		break;
	case SM_PKT_DATAGRAM:
		h->rkey = p->qkey;
		break;
	default:
		break;
	}
	h->head = p->len | (uint32_t)s.type << 16 |
		(uint32_t)(s.flags | (p->solicited ? SM_PKT_SE : 0)) << 24;
	return true;
}
