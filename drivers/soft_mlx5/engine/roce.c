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

/* Those opcodes of the table below that have a part of their own. */
#define OP_SEND_ONLY 0x04u
#define OP_SEND_ONLY_IMM 0x05u
#define OP_WRITE_ONLY_IMM 0x0bu
#define OP_ACK 0x11u
#define OP_CONNECT 0x18u

#define F SM_PKT_FIRST
#define L SM_PKT_LAST
#define I SM_PKT_IMM

/* By the lower five bits of an opcode, of transport RC; the others have a part of them. */
static const struct shape {
	uint8_t type; /* enum sm_pkt_type; 0: no opcode. */
	uint8_t flags;
	uint8_t has;
} shapes[32] = {
	[0x00] = {SM_PKT_SEND, F, HAS_DATA},
	[0x01] = {SM_PKT_SEND, 0, HAS_DATA},
	[0x02] = {SM_PKT_SEND, L, HAS_DATA},
	[0x03] = {SM_PKT_SEND, L | I, HAS_IMM | HAS_DATA},
	[0x04] = {SM_PKT_SEND, F | L, HAS_DATA},
	[0x05] = {SM_PKT_SEND, F | L | I, HAS_IMM | HAS_DATA},
	[0x06] = {SM_PKT_WRITE, F, HAS_RETH | HAS_DATA},
	[0x07] = {SM_PKT_WRITE, 0, HAS_DATA},
	[0x08] = {SM_PKT_WRITE, L, HAS_DATA},
	[0x09] = {SM_PKT_WRITE, L | I, HAS_IMM | HAS_DATA},
	[0x0a] = {SM_PKT_WRITE, F | L, HAS_RETH | HAS_DATA},
	[0x0b] = {SM_PKT_WRITE, F | L | I, HAS_RETH | HAS_IMM | HAS_DATA},
	[0x0c] = {SM_PKT_READ, F | L, HAS_RETH},
	[0x0d] = {SM_PKT_READ_RESP, F, HAS_AETH | HAS_DATA},
	[0x0e] = {SM_PKT_READ_RESP, 0, HAS_DATA},
	[0x0f] = {SM_PKT_READ_RESP, L, HAS_AETH | HAS_DATA},
	[0x10] = {SM_PKT_READ_RESP, F | L, HAS_AETH | HAS_DATA},
	[0x11] = {SM_PKT_ACK, 0, HAS_AETH},
	[0x12] = {SM_PKT_ATOMIC_RESP, F | L, HAS_AETH | HAS_WORD},
	[0x13] = {SM_PKT_CMP_SWAP, F | L, HAS_ATOMIC},
	[0x14] = {SM_PKT_FETCH_ADD, F | L, HAS_ATOMIC},
	[0x16] = {SM_PKT_SEND, L | SM_PKT_INV, HAS_IMM | HAS_DATA},
	[0x17] = {SM_PKT_SEND, F | L | SM_PKT_INV, HAS_IMM | HAS_DATA},
	/* Of DC alone. */
	[0x18] = {SM_PKT_CONNECT, 0, HAS_WORD},
	[0x19] = {SM_PKT_DISCONNECT, 0, 0},
	[0x1a] = {SM_PKT_NAK, 0, HAS_WORD}, /* A cookie. */
};

/* What the headers hold, in their order, big endian. */
static const struct field {
	uint8_t has; /* Of which headers it is a part. */
	uint8_t bytes;
	uint16_t at; /* In struct sm_roce: a word of 64 bits if it has 8 bytes, else of 32. */
} fields[] = {
	{HAS_DCETH, 8, offsetof(struct sm_roce, key)},
	{HAS_DCETH, 1, offsetof(struct sm_roce, age)},
	{HAS_DCETH, 3, offsetof(struct sm_roce, h.src)},
	{HAS_DCETH, 4, offsetof(struct sm_roce, life)},
	{HAS_DETH, 4, offsetof(struct sm_roce, h.rkey)},
	{HAS_DETH, 4, offsetof(struct sm_roce, h.src)},
	{HAS_RETH | HAS_ATOMIC, 8, offsetof(struct sm_roce, h.raddr)},
	{HAS_RETH | HAS_ATOMIC, 4, offsetof(struct sm_roce, h.rkey)},
	{HAS_RETH, 4, offsetof(struct sm_roce, dma_len)},
	{HAS_ATOMIC, 8, offsetof(struct sm_roce, word[0])},
	{HAS_ATOMIC, 8, offsetof(struct sm_roce, word[1])},
	{HAS_AETH, 1, offsetof(struct sm_roce, syndrome)},
	{HAS_AETH, 3, offsetof(struct sm_roce, msn)},
	{HAS_WORD, 8, offsetof(struct sm_roce, word[0])},
};

/* AETH: what the upper three bits of the syndrome say, and the codes of a NAK. */
#define AETH_ACK 0x1fu /* No credits. */
#define AETH_RNR 0x20u
#define AETH_NAK 0x60u
/* "Invalid RD request", of a transport that is not used: in DC, no such connection. */
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
		if (sm_pkt_kinds[s->type].group != SM_PKTS_ANSWER)
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
	uint32_t n = BTH + ((has & HAS_IMM) != 0 ? 4 : 0);

	for (uint32_t i = 0; i < CRPC_DIM(fields); i++)
		if ((has & fields[i].has) != 0)
			n += fields[i].bytes;
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
sm_roce_icrc(const uint8_t ip_udp[SM_ROCE_IP_UDP], const uint8_t *packet, uint32_t n,
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

/* ---- bytes ---- */

static uint8_t *
field_put(const struct field *f, const struct sm_roce *p, uint8_t *at)
{
	const void *from = (const uint8_t *)p + f->at;
	uint64_t v = f->bytes == 8 ? *(const uint64_t *)from : *(const uint32_t *)from;

	for (uint32_t i = f->bytes; i-- != 0; v >>= 8)
		at[i] = (uint8_t)v;
	return at + f->bytes;
}

static const uint8_t *
field_get(const struct field *f, struct sm_roce *p, const uint8_t *at)
{
	void *to = (uint8_t *)p + f->at;
	uint64_t v = 0;

	for (uint32_t i = 0; i < f->bytes; i++)
		v = v << 8 | at[i];
	if (f->bytes == 8)
		*(uint64_t *)to = v;
	else
		*(uint32_t *)to = (uint32_t)v;
	return at + f->bytes;
}

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
	put32(to + 4, p->h.dst & 0xffffff);
	put32(to + 8, (p->ack_req ? UINT32_C(1) << 31 : 0) | (p->h.psn & 0xffffff));
	for (uint32_t i = 0; i < CRPC_DIM(fields); i++)
		if ((s.has & fields[i].has) != 0)
			at = field_put(&fields[i], p, at);
	if ((s.has & HAS_IMM) != 0) {
		memcpy(at, &p->h.imm, sizeof(p->h.imm));
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
	p->h.dst = sm_be32(from + 4) & 0xffffff;
	p->ack_req = (from[8] & 0x80) != 0;
	p->h.psn = sm_be32(from + 8) & 0xffffff;
	for (uint32_t i = 0; i < CRPC_DIM(fields); i++)
		if ((s.has & fields[i].has) != 0)
			at = field_get(&fields[i], p, at);
	p->h.src &= 0xffffff; /* A byte before it is reserved. */
	if ((s.has & HAS_IMM) != 0)
		memcpy(&p->h.imm, at, sizeof(p->h.imm));
	p->payload = from + headers;
	p->len = n - headers - pad;
	return true;
}

/* ---- packets of a ring ---- */

/* The opcode of a piece: the one with its type and, if it is a part of a message, its flags. */
static uint8_t
opcode_of(uint32_t type, uint32_t flags, bool data)
{
	for (uint32_t op = 0; op < CRPC_DIM(shapes); op++)
		if (shapes[op].type == type && (!data || shapes[op].flags == flags))
			return (uint8_t)op;
	return OP_ACK;
}

/* The syndrome of an ACK or NAK; 0xff: a NAK for which there is none. */
static uint8_t
syndrome_of(const struct sm_hdr *h)
{
	if (sm_pkt_type(h->head) == SM_PKT_ACK)
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
	uint32_t type = sm_pkt_type(h->head), flags = h->head >> 24, len = h->head & 0xffff;
	uint8_t group = sm_pkt_kind(h->head)->group;
	bool data = sm_pkt_kind(h->head)->data, ack = type == SM_PKT_ACK || type == SM_PKT_NAK;
	bool cookie = type == SM_PKT_NAK && h->imm == SM_NAK_COOKIE;
	uint32_t pieces = data && len != 0 ? 1 + ((len - 1) >> mtu_shift) : 1;
	bool first, last;
	uint8_t op;

	if (i >= pieces)
		return false;
	first = i == 0 && (type == SM_PKT_READ_RESP ? h->raddr == 0 : (flags & SM_PKT_FIRST) != 0);
	last = i == pieces - 1 && (flags & SM_PKT_LAST) != 0;
	flags = (first ? SM_PKT_FIRST : 0) | (last ? flags & ~(uint32_t)SM_PKT_FIRST : 0);
	op = group == SM_PKTS_DATAGRAM ? opcode_of(SM_PKT_SEND, flags & ~(uint32_t)SM_PKT_SE, true)
		: ack && !cookie       ? OP_ACK
				       : opcode_of(type, flags & ~(uint32_t)SM_PKT_SE, data);
	*p = (struct sm_roce){
		.h = *h,
		.opcode = (uint8_t)(transport | op),
		.solicited = (flags & SM_PKT_SE) != 0,
		.ack_req = transport != SM_ROCE_UC && last && group == SM_PKTS_REQUEST,
		.dma_len = type == SM_PKT_WRITE && (h->head >> 24 & SM_PKT_LAST) != 0 ? len
										  : h->imm,
		.syndrome = AETH_ACK,
		.msn = ack ? (uint32_t)h->raddr : h->imm,
	};
	p->h.dst &= 0xffffff;
	p->h.src &= 0xffffff;
	p->h.psn = (h->psn + i) & 0xffffff;
	if (group == SM_PKTS_CONTROL) { /* A request's connection knows them. */
		p->key = h->raddr;
		p->life = h->imm;
		p->age = h->rkey & 0xff;
	}
	if (cookie) {
		p->word[0] = h->raddr;
		return transport == SM_ROCE_DC;
	}
	if (ack) {
		p->syndrome = syndrome_of(h);
		return p->syndrome != 0xff;
	}
	if (data || group == SM_PKTS_DATAGRAM) {
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
sm_roce_hdr(struct sm_roce *p)
{
	struct sm_hdr *h = &p->h;
	struct shape s;

	if (!shape_of(p->opcode, &s))
		return false;
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
	case SM_PKT_ATOMIC_RESP:
		p->payload = (const uint8_t *)p->word;
		p->len = s.type == SM_PKT_ATOMIC_RESP ? sizeof(p->word[0]) : sizeof(p->word);
		break;
	case SM_PKT_READ_RESP:
		if ((p->syndrome & 0xe0) != 0 && (s.has & HAS_AETH) != 0)
			return false;
		break;
	default:
		break;
	}
	h->head = p->len | (uint32_t)s.type << 16 |
		(uint32_t)(s.flags | (p->solicited ? SM_PKT_SE : 0)) << 24;
	return true;
}
