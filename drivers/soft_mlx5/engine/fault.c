/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A bad network, on request: what a context receives is lost, comes twice, late or in another
 * order, and receive queues look empty, each with its probability, from a seed.
 *
 * The wire itself loses nothing, so a requester waits for answers without a clock. Where it is to
 * be bad, each requester has the retransmission timer of a card: after the timeout without progress
 * it goes back to the oldest message that was not acknowledged, as often as retry_cnt allows.
 */
#include <errno.h>
#include <stdlib.h>

#include "crpc_log.h"
#include "priv.h"

#define HELD_MAX 64u
/* How late a packet may come. */
#define DELAY_NS UINT64_C(500000)
/* How often the retransmission timers are looked at. */
#define TIMERS_NS UINT64_C(50000)
/* Timeouts of a silent peer that count as one. */
#define SILENT_TIMEOUTS 8u

struct held {
	struct sm_peer *peer; /* NULL: free. */
	uint32_t head;
	uint64_t due;
	uint64_t passed; /* Packets that must have passed it. */
	uint8_t packet[sizeof(struct sm_pkt) + SM_FRAG];
};

struct sm_fault {
	uint64_t rng;
	uint64_t timers_at;
	uint64_t packets;
	/* Of 2^32. */
	uint64_t drop, corrupt, dup, delay, reorder, rnr;
	uint64_t seen[6];
	uint32_t nheld;
	struct held held[HELD_MAX];
};

static uint32_t
fault_random(struct sm_fault *f)
{
	/* SplitMix64 (Steele, Lea, Flood 2014). */
	uint64_t z = f->rng += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)(z >> 32);
}

static bool
happens(struct sm_fault *f, uint64_t of, uint32_t what)
{
	if (of == 0 || fault_random(f) >= of)
		return false;
	f->seen[what]++;
	return true;
}

static const char *const names[] = {"drop", "corrupt", "dup", "delay", "reorder", "rnr"};

/* "name=value"; false: not one of ours. */
static bool
setting(struct sm_fault *f, const char *text, size_t len)
{
	uint64_t *of[] = {&f->drop, &f->corrupt, &f->dup, &f->delay, &f->reorder, &f->rnr};
	const char *eq = memchr(text, '=', len);
	char value[32], *end;
	double p;

	if (eq == NULL || len - (size_t)(eq + 1 - text) >= sizeof(value) || eq + 1 == text + len)
		return false;
	memcpy(value, eq + 1, len - (size_t)(eq + 1 - text));
	value[len - (size_t)(eq + 1 - text)] = '\0';
	if ((size_t)(eq - text) == 4 && memcmp(text, "seed", 4) == 0) {
		f->rng = strtoull(value, &end, 0);
		return *end == '\0';
	}
	p = strtod(value, &end);
	if (*end != '\0' || !(p >= 0 && p <= 1))
		return false;
	for (uint32_t i = 0; i < CRPC_DIM(of); i++)
		if (strlen(names[i]) == (size_t)(eq - text) &&
			memcmp(names[i], text, (size_t)(eq - text)) == 0) {
			*of[i] = (uint64_t)(p * 4294967296.0);
			return true;
		}
	return false;
}

int
sm_fault_create(const char *text, uint32_t slot, struct sm_fault **fault)
{
	struct sm_fault *f;

	*fault = NULL;
	if (text == NULL || text[0] == '\0')
		return 0;
	f = calloc(1, sizeof(*f));
	if (f == NULL)
		return ENOMEM;
	f->rng = 1;
	for (size_t len; *text != '\0'; text += len + (text[len] == ',')) {
		len = strcspn(text, ",");
		if (!setting(f, text, len)) {
			crpc_err(
				"faults: '%.*s' is not seed=N or one of drop, corrupt, dup, delay, "
				"reorder, rnr =P with P from 0 to 1",
				(int)len, text);
			free(f);
			return EINVAL;
		}
	}
	f->rng += (uint64_t)slot << 32; /* Others have another fate. */
	*fault = f;
	return 0;
}

void
sm_fault_free(struct sm_fault *f)
{
	if (f != NULL)
		crpc_info("faults: %llu packets; lost %llu, corrupt %llu, twice %llu, late %llu, "
			  "out of order %llu, RNR %llu", (unsigned long long)f->packets,
			(unsigned long long)f->seen[0], (unsigned long long)f->seen[1],
			(unsigned long long)f->seen[2], (unsigned long long)f->seen[3],
			(unsigned long long)f->seen[4], (unsigned long long)f->seen[5]);
	free(f);
}

/* Keep a copy for later; false: no place. */
static bool
hold(struct sm_nic *nic, struct sm_peer *p, const struct sm_pkt *pkt, uint32_t head, uint64_t ns,
	uint64_t packets)
{
	struct sm_fault *f = nic->fault;

	for (uint32_t i = 0; i < HELD_MAX; i++) {
		struct held *h = &f->held[i];

		if (h->peer != NULL)
			continue;
		h->peer = p;
		h->head = head;
		h->due = nic->now + ns;
		h->passed = packets != 0 ? f->packets + packets : UINT64_MAX;
		memcpy(h->packet, (const void *)pkt, sizeof(*pkt) + (head & 0xffff));
		f->nheld++;
		return true;
	}
	return false;
}

/* Deliver what is due of a peer's. */
static void
release_due(struct sm_nic *nic, struct sm_peer *p)
{
	struct sm_fault *f = nic->fault;

	for (uint32_t i = 0; i < HELD_MAX && f->nheld != 0; i++) {
		struct held *h = &f->held[i];

		if (h->peer != p || (nic->now < h->due && f->packets < h->passed))
			continue;
		h->peer = NULL;
		f->nheld--;
		sm_peer_packet(nic, p, (struct sm_pkt *)(void *)h->packet, h->head);
	}
}

void
sm_fault_forget(struct sm_nic *nic, const struct sm_peer *p)
{
	struct sm_fault *f = nic->fault;

	for (uint32_t i = 0; f != NULL && i < HELD_MAX; i++)
		if (f->held[i].peer == p) {
			f->held[i].peer = NULL;
			f->nheld--;
		}
}

void
sm_fault_packet(struct sm_nic *nic, struct sm_peer *p, struct sm_pkt *pkt, uint32_t head)
{
	struct sm_fault *f = nic->fault;

	f->packets++;
	p->spoke++;
	if (happens(f, f->drop, 0) || happens(f, f->corrupt, 1)) /* The ICRC tells. */
		return;
	if (happens(f, f->delay, 3) &&
		hold(nic, p, pkt, head, 1 + fault_random(f) % DELAY_NS, 0))
		return;
	if (happens(f, f->reorder, 4) &&
		hold(nic, p, pkt, head, DELAY_NS, 1 + fault_random(f) % 4))
		return;
	if (happens(f, f->dup, 2))
		hold(nic, p, pkt, head, fault_random(f) % DELAY_NS, 1);
	if (f->rnr != 0 && happens(f, f->rnr, 5) && sm_resp_rnr(nic, p, pkt, head))
		return;
	sm_peer_packet(nic, p, pkt, head);
}

static uint64_t
timeout_ns(const struct sm_qp *qp)
{
	return qp->attr.timeout == 0 ? UINT64_C(10000000) : UINT64_C(4096) << qp->attr.timeout;
}

static void
timer(struct sm_nic *nic, struct sm_qp *qp)
{
	uint64_t mark = (uint64_t)qp->psn_acked << 32 ^ (uint64_t)qp->rd_head << 16 ^ qp->rd_off;

	if (qp->wr_done == qp->wr_tx || qp->waiting || mark != qp->rto_mark || qp->rto_at == 0) {
		qp->rto_mark = mark;
		qp->rto_at = nic->now + timeout_ns(qp);
		return;
	}
	if (nic->now < qp->rto_at)
		return;
	qp->rto_at = nic->now + timeout_ns(qp);
	/* A peer that says nothing at all may wait for a core: it gets more time. */
	if (qp->peer->spoke != qp->rto_spoke)
		qp->rto_silent = 0;
	else
		qp->rto_silent++;
	qp->rto_spoke = qp->peer->spoke;
	sm_sq_timeout(nic, qp, qp->rto_silent % SILENT_TIMEOUTS == 0);
}

void
sm_fault_timers(struct sm_nic *nic)
{
	struct sm_peer *p;
	struct sm_qp *qp, *next;

	if (nic->now < nic->fault->timers_at)
		return;
	nic->fault->timers_at = nic->now + TIMERS_NS;
	TAILQ_FOREACH(p, &nic->peers, link) {
		if (p->dead)
			continue;
		release_due(nic, p);
		for (qp = TAILQ_FIRST(&p->qps); qp != NULL; qp = next) {
			next = TAILQ_NEXT(qp, peer_link);
			if (qp->dct == NULL && qp->type != SM_QPT_UC &&
				(qp->state == SM_QPS_RTS || qp->state == SM_QPS_SQD))
				timer(nic, qp);
		}
	}
}
