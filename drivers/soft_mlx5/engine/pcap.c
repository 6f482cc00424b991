/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Captures: what a context receives, and over UDP also what it sends, as RoCEv2 frames in a file of
 * pcap with nanoseconds, which any number of contexts may share: each appends whole records.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crpc_log.h"
#include "pcap.h"
#include "qp.h"

#define PCAP_MAGIC_NS 0xa1b23c4du
#define PCAP_ETHERNET 1u
#define ETHERNET 14u
#define RECORD 16u
#define BUFFER (128u << 10)
#define FRAME_MAX (ETHERNET + SM_ROCE_IP_UDP + SM_ROCE_BYTES)
/* Contexts of one host have no addresses: each slot gets one of those for benchmarks. */
#define SHM_ADDR 0xc6120000u /* 198.18.0.0 */

struct sm_pcap {
	int fd;
	bool broken;
	uint64_t epoch;
	uint32_t fill;
	uint8_t buf[BUFFER];
};

struct pcap_head {
	uint32_t magic;
	uint16_t major, minor;
	uint32_t zone, accuracy, longest, link;
};

/* The file with its header, which one of those who open it writes. */
static int
pcap_file(const char *path, int *fdp)
{
	struct pcap_head head = {PCAP_MAGIC_NS, 2, 4, 0, 0, FRAME_MAX, PCAP_ETHERNET}, found;
	int fd = sm_fd_hide(open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644)), rc = 0;
	struct stat st;

	if (fd < 0)
		return errno;
	while (flock(fd, LOCK_EX) != 0 && errno == EINTR)
		;
	if (fstat(fd, &st) != 0)
		rc = errno;
	else if (st.st_size == 0)
		rc = write(fd, &head, sizeof(head)) == (ssize_t)sizeof(head) ? 0 : EIO;
	else if (S_ISREG(st.st_mode) && (pread(fd, &found, sizeof(found), 0) != sizeof(found) ||
					  memcmp(&found, &head, sizeof(head)) != 0))
		rc = EEXIST;
	flock(fd, LOCK_UN);
	if (rc != 0)
		close(fd);
	*fdp = fd;
	return rc;
}

int
sm_pcap_open(const char *path, uint64_t epoch_ns, struct sm_pcap **pcap)
{
	struct sm_pcap *c;
	int rc;

	*pcap = NULL;
	if (path == NULL || path[0] == '\0')
		return 0;
	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return ENOMEM;
	sm_roce_init();
	c->epoch = epoch_ns;
	rc = pcap_file(path, &c->fd);
	if (rc != 0) {
		crpc_err("capture %s: %s", path,
			rc == EEXIST ? "the file is there and is none of ours: remove it"
				     : strerror(rc));
		free(c);
		return rc;
	}
	*pcap = c;
	return 0;
}

void
sm_pcap_flush(struct sm_pcap *c)
{
	if (c->fill == 0)
		return;
	/* One call for whole records: those of others come before or behind. */
	if (!c->broken && write(c->fd, c->buf, c->fill) != (ssize_t)c->fill)
		c->broken = true; /* It ends here. */
	c->fill = 0;
}

void
sm_pcap_close(struct sm_pcap *c, bool drop)
{
	if (c == NULL)
		return;
	if (!drop)
		sm_pcap_flush(c);
	close(c->fd);
	free(c);
}

void
sm_pcap_packet(struct sm_pcap *c, uint64_t now, uint32_t src, uint32_t dst, const struct sm_roce *p)
{
	/*
	 * As a card chooses it: constant for a pair of queue pairs, so that a flow keeps its path.
	 */
	struct sm_roce_path path = {src, dst,
		(uint16_t)(0xc000 | ((p->h.dst ^ p->h.dst >> 14) & 0x3fff)), SM_ROCE_PORT};
	uint8_t *frame, *ib;
	uint32_t n, record[4];

	if (c->fill + RECORD + FRAME_MAX > BUFFER)
		sm_pcap_flush(c);
	frame = c->buf + c->fill + RECORD;
	ib = frame + ETHERNET + SM_ROCE_IP_UDP;
	n = sm_roce_put(p, ib);
	if (n == 0)
		return;
	sm_roce_ip_udp(&path, n + SM_ROCE_ICRC, frame + ETHERNET);
	sm_roce_icrc(frame + ETHERNET, ib, n, ib + n);
	memset(frame, 0, ETHERNET);
	frame[0] = frame[6] = 0x02; /* Administered locally. */
	for (uint32_t i = 0; i < 4; i++) {
		frame[2 + i] = (uint8_t)(dst >> (24 - 8 * i));
		frame[8 + i] = (uint8_t)(src >> (24 - 8 * i));
	}
	frame[12] = 0x08; /* IPv4. */
	n += ETHERNET + SM_ROCE_IP_UDP + SM_ROCE_ICRC;
	now += c->epoch;
	record[0] = (uint32_t)(now / 1000000000u);
	record[1] = (uint32_t)(now % 1000000000u);
	record[2] = record[3] = n;
	memcpy(c->buf + c->fill, record, RECORD);
	c->fill += RECORD + n;
}

enum sm_roce_transport
sm_roce_of(const struct sm_nic *nic, uint32_t qpn, const struct sm_hdr *h, uint32_t *mtu_shift)
{
	const struct sm_qp *qp = sm_qp_find(nic, qpn & SM_PSN_MASK);
	uint8_t group = sm_pkt_kind(h->head)->group;

	*mtu_shift = qp != NULL ? qp->mtu_shift : 12;
	if (group == SM_PKTS_DATAGRAM)
		return SM_ROCE_UD;
	if (group == SM_PKTS_CONTROL)
		return SM_ROCE_DC;
	return qp != NULL ? (enum sm_roce_transport)qp->kind->transport : SM_ROCE_RC;
}

void
sm_pcap_ring(struct sm_nic *nic, const struct sm_peer *p, const struct sm_hdr *h,
	const uint8_t *payload)
{
	uint32_t shift, dst = nic->attr.udp_addr != 0 ? nic->attr.udp_addr : SHM_ADDR | nic->slot;
	uint32_t src = p->self ? dst : SHM_ADDR | p->slot;
	enum sm_roce_transport transport = sm_roce_of(nic, h->dst, h, &shift);
	struct sm_roce roce;

	for (uint32_t i = 0; sm_roce_piece(h, payload, shift, transport, i, &roce); i++)
		sm_pcap_packet(nic->pcap, nic->now, src, dst, &roce);
}
