/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The wire between hosts: RoCEv2 over UDP.
 *
 *     queue pairs --> private ring of each peer --> sm_udp_send(): packets of the MTU --> sendmmsg
 *     recvmmsg --> sm_udp_receive(): ICRC, form, queue pair, sender --> as from a ring
 *
 * A peer is an address and a slot there; slot n of a host has port 4791 + n, so that the first
 * context of a host speaks on the port that RoCEv2 has, and no context forwards for another.
 *
 * Everything that comes is hostile, and says itself where it comes from. Memory is only for peers
 * that this context connects to, and for those that have shown that they receive at their address:
 *
 *     DCI                                              DCT
 *      | CONNECT, cookie 0 or of before ---------------> | not known: nothing is kept of it
 *      | <------- COOKIE: MAC of the sender's address    |
 *      | CONNECT, cookie ------------------------------> | a peer
 *
 * An answer is never longer than what it answers.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "crpc_log.h"
#include "fault.h"
#include "pcap.h"
#include "qp.h"
#include "wire_udp.h"

/* Packets of one system call. */
#define BATCH 32u
/* Packets that are received, and sent, in one pass. */
#define RECEIVE_CALLS 4u
#define SEND_CALLS    8u
/* What the kernel is asked to hold: bursts come while this process does not run. */
#define SOCKET_BYTES (4 << 20)

struct sm_udp {
	int fd;
	uint64_t secret[2]; /* Of cookies. */
	/* Encoded, and not yet taken by the kernel: from..to. */
	uint32_t from, to;
	struct mmsghdr tx[BATCH], rx[BATCH];
	struct iovec tx_iov[BATCH], rx_iov[BATCH];
	struct sockaddr_in tx_addr[BATCH], rx_addr[BATCH];
	uint8_t tx_bytes[BATCH][SM_ROCE_BYTES];
	uint8_t rx_bytes[BATCH][SM_ROCE_BYTES];
};

static void
buffers_init(struct sm_udp *u)
{
	for (uint32_t i = 0; i < BATCH; i++) {
		u->tx_iov[i].iov_base = u->tx_bytes[i];
		u->rx_iov[i] = (struct iovec){u->rx_bytes[i], SM_ROCE_BYTES};
		u->tx_addr[i].sin_family = AF_INET;
		u->tx[i].msg_hdr = (struct msghdr){.msg_name = &u->tx_addr[i],
			.msg_namelen = sizeof(u->tx_addr[i]),
			.msg_iov = &u->tx_iov[i],
			.msg_iovlen = 1};
		u->rx[i].msg_hdr = (struct msghdr){
			.msg_name = &u->rx_addr[i], .msg_iov = &u->rx_iov[i], .msg_iovlen = 1};
	}
}

/* Its descriptor, or -errno. */
static int
socket_open(uint32_t addr, uint32_t slot)
{
	struct sockaddr_in sin = {.sin_family = AF_INET,
		.sin_port = htons((uint16_t)(SM_ROCE_PORT + slot)),
		.sin_addr.s_addr = htonl(addr)};
	int fd = sm_fd_hide(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	int whole = IP_PMTUDISC_DO, bytes = SOCKET_BYTES, rc;

	if (fd < 0)
		return -errno;
	/* The ICRC covers the identification and the flags of IPv4: with this they are known. */
	if (setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &whole, sizeof(whole)) != 0 ||
		bind(fd, (struct sockaddr *)&sin, sizeof(sin)) != 0) {
		rc = -errno;
		close(fd);
		return rc;
	}
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) != 0)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) != 0)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	return fd;
}

int
sm_udp_open(uint32_t addr, uint32_t slot, struct sm_udp **udp)
{
	struct sm_udp *u = calloc(1, sizeof(*u));
	int fd;

	if (u == NULL)
		return ENOMEM;
	sm_roce_init();
	fd = getrandom(u->secret, sizeof(u->secret), 0) == sizeof(u->secret)
		? socket_open(addr, slot)
		: -errno;
	if (fd < 0) {
		free(u);
		return crpc_fail(-fd, "cannot bind UDP port %u of %u.%u.%u.%u: %s",
			SM_ROCE_PORT + slot, addr >> 24, addr >> 16 & 0xff, addr >> 8 & 0xff,
			addr & 0xff, strerror(-fd));
	}
	u->fd = fd;
	buffers_init(u);
	*udp = u;
	return 0;
}

void
sm_udp_close(struct sm_udp *u)
{
	if (u == NULL)
		return;
	close(u->fd);
	free(u);
}

/* ---- out ---- */

/* Give the kernel what is encoded; false: it takes no more now. */
static bool
batch_send(struct sm_udp *u)
{
	while (u->from != u->to) {
		int n = sendmmsg(u->fd, u->tx + u->from, u->to - u->from, MSG_DONTWAIT);

		if (n > 0)
			u->from += (uint32_t)n;
		else if (errno == EAGAIN || errno == ENOBUFS || errno == EINTR)
			return false;
		else
			u->from++; /* No way there, or too long for it: lost, as on a network. */
	}
	u->from = u->to = 0;
	return true;
}

/* To a slot of a host; there is room in the batch. */
static void
packet_encode(struct sm_nic *nic, uint32_t slot, uint32_t addr, const struct sm_roce *roce)
{
	struct sm_udp *u = nic->udp;
	struct sm_roce_path path = {nic->attr.udp_addr, addr, (uint16_t)(SM_ROCE_PORT + nic->slot),
		(uint16_t)(SM_ROCE_PORT + slot)};
	uint8_t *to = u->tx_bytes[u->to], headers[SM_ROCE_IP_UDP];
	uint32_t n = sm_roce_put(roce, to);

	if (n == 0)
		return;
	sm_roce_ip_udp(&path, n + SM_ROCE_ICRC, headers);
	sm_roce_icrc(headers, to, n, to + n);
	u->tx_iov[u->to].iov_len = n + SM_ROCE_ICRC;
	u->tx_addr[u->to].sin_addr.s_addr = htonl(addr);
	u->tx_addr[u->to].sin_port = htons(path.dport);
	u->to++;
	if (crpc_unlikely(nic->pcap != NULL))
		sm_pcap_packet(nic->pcap, nic->now, path.src, addr, roce);
}

/* What lies in the ring to a peer; false: the kernel takes no more. */
static bool
peer_send(struct sm_nic *nic, struct sm_peer *p, uint32_t *calls)
{
	struct sm_udp *u = nic->udp;
	struct sm_pkt *pkt;
	uint32_t head;

	while ((pkt = sm_rx_peek(&p->out, &head)) != NULL) {
		const uint8_t *payload = (const uint8_t *)pkt + sizeof(*pkt);
		enum sm_roce_transport transport;
		const struct sm_qp *qp;
		struct sm_roce roce;
		struct sm_hdr h;
		uint32_t shift;

		sm_pkt_get(pkt, head, &h);
		transport = sm_roce_of(nic, h.src, &h, &shift);
		while (sm_roce_piece(&h, payload, shift, transport, p->piece, &roce)) {
			/* By which a DCT distinguishes a DCI from an earlier one. */
			qp = sm_qp_find(nic, h.src & SM_PSN_MASK);
			if (qp != NULL && sm_pkt_kind(head)->group == SM_PKTS_REQUEST)
				roce.life = qp->dc.life;
			if (sm_pkt_type(head) == SM_PKT_CONNECT)
				roce.word[0] = p->cookie;
			if (u->to == BATCH && ((*calls)++ == SEND_CALLS || !batch_send(u)))
				return false;
			packet_encode(nic, p->slot, p->gen, &roce);
			p->piece++;
		}
		p->piece = 0;
		sm_rx_done(&p->out, head & 0xffff);
		nic->work++;
	}
	return true;
}

void
sm_udp_send(struct sm_nic *nic)
{
	uint32_t calls = 0;
	struct sm_peer *p;

	if (!batch_send(nic->udp))
		return;
	TAILQ_FOREACH (p, &nic->peers, link) {
		if (p->self || p->tx.ring == NULL)
			continue;
		sm_peer_late(p);
		if (!peer_send(nic, p, &calls)) { /* The others are first in the next pass. */
			TAILQ_REMOVE(&nic->peers, p, link);
			TAILQ_INSERT_TAIL(&nic->peers, p, link);
			break;
		}
	}
	batch_send(nic->udp);
}

/* ---- in ---- */

static uint64_t
rotl(uint64_t v, uint32_t n)
{
	return v << n | v >> (64 - n);
}

static void
sip_rounds(uint64_t v[4], uint32_t n)
{
	while (n-- != 0) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = rotl(v[1], 13) ^ v[0];
		v[3] = rotl(v[3], 16) ^ v[2];
		v[0] = rotl(v[0], 32) + v[3];
		v[2] += v[1];
		v[3] = rotl(v[3], 21) ^ v[0];
		v[1] = rotl(v[1], 17) ^ v[2];
		v[2] = rotl(v[2], 32);
	}
}

/* SipHash-2-4 (Aumasson and Bernstein 2012) of eight bytes. */
uint64_t
sm_udp_cookie(const struct sm_nic *nic, uint32_t addr, uint32_t slot)
{
	const uint64_t *k = nic->udp->secret,
		       m[2] = {(uint64_t)addr << 32 | slot, UINT64_C(8) << 56};
	uint64_t v[4] = {k[0] ^ UINT64_C(0x736f6d6570736575), k[1] ^ UINT64_C(0x646f72616e646f6d),
		k[0] ^ UINT64_C(0x6c7967656e657261), k[1] ^ UINT64_C(0x7465646279746573)};

	for (uint32_t i = 0; i < 2; i++) {
		v[3] ^= m[i];
		sip_rounds(v, 2);
		v[0] ^= m[i];
	}
	v[2] ^= 0xff;
	sip_rounds(v, 4);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/*
 * A CONNECT of an unknown sender: its peer if it has our cookie, else it gets it, if it can. One
 * without the target's key is refused, and nothing is kept of it either.
 */
static struct sm_peer *
stranger(struct sm_nic *nic, const struct sm_qp *dct, const struct sm_roce *roce, uint32_t addr)
{
	bool knows_key = roce->h.raddr == dct->dc.key;
	uint32_t slot = roce->h.src >> 16;
	uint64_t cookie = sm_udp_cookie(nic, addr, slot);
	const struct sm_hdr h = {.head = (uint32_t)SM_PKT_NAK << 16,
		.dst = roce->h.src,
		.src = roce->h.dst,
		.psn = roce->h.psn,
		.raddr = knows_key ? cookie : 0,
		.imm = knows_key ? SM_NAK_COOKIE : SM_NAK_ACCESS};
	struct sm_roce answer;

	if (knows_key && roce->word[0] == cookie)
		return sm_peer_from(nic, slot, addr, true);
	if (nic->udp->to != BATCH && sm_roce_piece(&h, NULL, 0, SM_ROCE_DC, 0, &answer))
		packet_encode(nic, slot, addr, &answer);
	return NULL;
}

/* Whom a packet is from; NULL: its queue pair does not listen to them. */
static struct sm_peer *
sender_of(struct sm_nic *nic, const struct sm_qp *qp, const struct sm_roce *roce,
	const struct sm_roce_path *path)
{
	bool datagram = qp->kind->takes == SM_TAKES_DATAGRAMS;
	bool target = qp->kind->sends == SM_SENDS_NOTHING;
	struct sm_peer *p = qp->peer;
	uint32_t addr = path->src;

	/* The port is that of the slot: another one belongs to another process there. */
	if (path->sport != SM_ROCE_PORT + (datagram || target ? roce->h.src >> 16 : p->slot))
		return NULL;
	if (datagram) /* Nothing is kept of who sends datagrams. */
		return &nic->nowhere;
	if (target) {
		p = sm_peer_find(nic, roce->h.src >> 16, addr);
		if (p == NULL)
			return roce->opcode == SM_ROCE_OP_CONNECT ? stranger(nic, qp, roce, addr)
								  : NULL;
		return p->dead || p->tx.ring == NULL ? NULL : p;
	}
	return p != &nic->nowhere && p->gen == addr && !p->dead ? p : NULL;
}

void
sm_udp_packet(struct sm_nic *nic, const struct sm_roce_path *path, const uint8_t *bytes, uint32_t n)
{
	uint8_t headers[SM_ROCE_IP_UDP], icrc[SM_ROCE_ICRC];
	struct sm_roce roce;
	struct sm_peer *p;
	struct sm_qp *qp;
	bool target;

	if (n <= SM_ROCE_ICRC || n > SM_ROCE_BYTES)
		return;
	n -= SM_ROCE_ICRC;
	if (!sm_roce_get(bytes, n, &roce))
		return;
	sm_roce_ip_udp(path, n + SM_ROCE_ICRC, headers);
	sm_roce_icrc(headers, bytes, n, icrc);
	if (memcmp(icrc, bytes + n, sizeof(icrc)) != 0)
		return;
	if (crpc_unlikely(nic->pcap != NULL))
		sm_pcap_packet(nic->pcap, nic->now, path->src, path->dst, &roce);
	qp = sm_qp_find(nic, roce.h.dst);
	if (qp == NULL || (roce.opcode & 0xe0) != qp->kind->transport || !sm_roce_hdr(&roce))
		return;
	p = sender_of(nic, qp, &roce, path);
	if (p == NULL)
		return;
	target = qp->kind->sends == SM_SENDS_NOTHING;
	if (p == &nic->nowhere)
		roce.h.raddr = SM_GRH_PRESENT | SM_GRH_IPV4 | path->src;
	else if (!target)
		roce.h.src = qp->dest_qpn;
	p->heard = p->busy = true;
	if (target && sm_pkt_kind(roce.h.head)->group == SM_PKTS_REQUEST &&
		!sm_dct_knows(nic, qp, p, &roce.h, roce.life))
		return;
	if (crpc_unlikely(nic->fault != NULL)) {
		sm_fault_packet(nic, p, &roce.h, roce.payload);
	} else {
		p->spoke++;
		sm_peer_packet(nic, p, &roce.h, roce.payload);
	}
}

uint32_t
sm_udp_receive(struct sm_nic *nic)
{
	struct sm_udp *u = nic->udp;
	struct sm_peer *p;
	uint32_t sum = 0;

	TAILQ_FOREACH (p, &nic->peers, link) {
		p->was_busy = p->busy;
		p->busy = false;
	}
	for (uint32_t calls = 0; calls < RECEIVE_CALLS; calls++) {
		int n;

		for (uint32_t i = 0; i < BATCH; i++)
			u->rx[i].msg_hdr.msg_namelen = sizeof(u->rx_addr[i]);
		n = recvmmsg(u->fd, u->rx, BATCH, MSG_DONTWAIT, NULL);
		for (int i = 0; i < n; i++) {
			const struct sockaddr_in *sin = &u->rx_addr[i];
			struct sm_roce_path path = {ntohl(sin->sin_addr.s_addr), nic->attr.udp_addr,
				ntohs(sin->sin_port), (uint16_t)(SM_ROCE_PORT + nic->slot)};

			if ((u->rx[i].msg_hdr.msg_flags & MSG_TRUNC) == 0)
				sm_udp_packet(nic, &path, u->rx_bytes[i], u->rx[i].msg_len);
		}
		if (n > 0)
			sum += (uint32_t)n;
		if (n < (int)BATCH)
			break;
	}
	return sum;
}
