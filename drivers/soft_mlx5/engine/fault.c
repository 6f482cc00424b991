/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A bad network, on request: what a context receives is lost, comes twice, late or in another
 * order, and receive queues look empty, each with its probability, from a seed.
 */
#include <errno.h>
#include <stdlib.h>

#include "crpc_log.h"
#include "cq.h"
#include "fault.h"

#define HELD_MAX 64u
#define TEXT_MAX 512u
/* How late a packet may come. */
#define DELAY_NS UINT64_C(500000)

struct held {
	struct sm_peer *peer; /* NULL: free. */
	struct sm_hdr hdr;
	uint64_t due;
	uint64_t passed; /* Packets that must have passed it. */
	uint8_t payload[SM_FRAG];
};

/* What can go wrong, each with its probability. */
enum fault {
	DROP,
	CORRUPT,
	DUP,
	DELAY,
	REORDER,
	RNR,
	INVAL,
	ACCESS,
	OP,
	PROT,
	BADRESP,
	CQFULL,
	FAULTS,
	QP = FAULTS, /* Not a fault: only of this queue pair, 0: of all. */
	SLOW,
	DEAD,
	SEED,
	SETTINGS,
};

static const char *const names[SETTINGS] = {"drop", "corrupt", "dup", "delay", "reorder", "rnr",
	"inval", "access", "op", "prot", "badresp", "cqfull", "qp", "slow", "dead", "seed"};

struct sm_fault {
	uint64_t on[SETTINGS]; /* As the text says; of 2^32, where it is a fault. */
	uint64_t rng;
	uint64_t packets;
	uint64_t busy_until; /* Slow DMA. */
	uint64_t seen[FAULTS];
	uint32_t nheld;
	struct held held[HELD_MAX];
};

static uint32_t
fault_random(struct sm_fault *f)
{
	return (uint32_t)(crpc_random(&f->rng) >> 32);
}

static bool
happens(struct sm_fault *f, enum fault what)
{
	if (f->on[what] == 0 || fault_random(f) >= f->on[what])
		return false;
	f->seen[what]++;
	return true;
}

/* The value of a setting; false: it has none, or another. */
static bool
value_take(uint64_t *on, bool share, const char *value)
{
	double p = 0;
	char *end;

	if (value == NULL || value[0] == '\0' || value[0] == '-')
		return false;
	if (share)
		p = strtod(value, &end);
	else
		*on = strtoull(value, &end, 0);
	if (*end != '\0' || !(p >= 0 && p <= 1))
		return false;
	if (share)
		*on = (uint64_t)(p * 4294967296.0);
	return true;
}

static int
parse(const char *text, uint64_t on[SETTINGS])
{
	char copy[TEXT_MAX], *at = copy, *s, *value;
	size_t len = strlen(text);
	uint32_t i;

	if (len >= sizeof(copy))
		return crpc_fail(EINVAL, "faults: %zu bytes, not %u at most", len, TEXT_MAX - 1);
	memcpy(copy, text, len + 1);
	while (at != NULL && *at != '\0') {
		const char *given = text + (at - copy);

		s = strsep(&at, ",");
		value = strchr(s, '=');
		if (value != NULL)
			*value++ = '\0';
		for (i = 0; i < SETTINGS && strcmp(names[i], s) != 0; i++)
			;
		if (i == SETTINGS || !value_take(&on[i], i < FAULTS, value))
			return crpc_fail(EINVAL,
				"faults: '%.*s' is not seed=N, qp=N, slow=NANOSECONDS, dead=1 or "
				"one of drop, corrupt, dup, delay, reorder, rnr, inval, access, "
				"op, prot, badresp, cqfull =P with P from 0 to 1",
				(int)strcspn(given, ","), given);
	}
	return 0;
}

bool
sm_fault_local(const struct sm_fault *f)
{
	return f != NULL && f->on[PROT] != 0;
}

bool
sm_fault_prot(struct sm_fault *f, const struct sm_qp *qp)
{
	return (f->on[QP] == 0 || f->on[QP] == qp->qpn) && happens(f, PROT);
}

bool
sm_fault_stops(const struct sm_fault *f, uint64_t now)
{
	return f->on[DEAD] != 0 || now < f->busy_until;
}

int
sm_nic_faults(struct sm_nic *nic, const char *text)
{
	uint64_t on[SETTINGS] = {0};
	int rc = parse(text, on);
	struct sm_fault *f;
	struct sm_obj *obj;

	if (rc != 0)
		return rc;
	SM_LOCKED(nic);
	f = nic->fault != NULL ? nic->fault : calloc(1, sizeof(*f));
	if (f == NULL)
		return ENOMEM;
	/* Other contexts have another fate from the same seed. */
	if (on[SEED] != 0 || f->rng == 0)
		f->rng = crpc_max(on[SEED], 1) + ((uint64_t)nic->slot << 32);
	memcpy(f->on, on, sizeof(f->on));
	nic->fault = f;
	nic->lossy = true;
	sm_direct_off(nic);
	TAILQ_FOREACH(obj, &nic->objs[SM_OBJ_QP], link)
		sm_qp_way(nic, (struct sm_qp *)obj);
	return 0;
}

int
sm_nic_timers(struct sm_nic *nic)
{
	return nic->fault != NULL ? 0 : sm_nic_faults(nic, "");
}

/* A pass of @p work was done: what it moved takes its time, and queues overrun. */
void
sm_fault_pass(struct sm_nic *nic, uint32_t work)
{
	struct sm_fault *f = nic->fault;
	struct sm_obj *obj;

	f->busy_until = nic->now + f->on[SLOW] * work;
	if (work == 0 || !happens(f, CQFULL))
		return;
	TAILQ_FOREACH(obj, &nic->objs[SM_OBJ_CQ], link)
		if (obj->users != 0 && !((struct sm_cq *)obj)->failed) {
			sm_cq_overrun(nic, (struct sm_cq *)obj);
			return;
		}
}

void
sm_fault_print(const struct sm_fault *f, FILE *out)
{
	fprintf(out, "\"packets\":%llu", (unsigned long long)(f == NULL ? 0 : f->packets));
	for (uint32_t i = 0; f != NULL && i < FAULTS; i++)
		if (f->on[i] != 0 || f->seen[i] != 0)
			fprintf(out, ",\"%s\":{\"share\":%.6g,\"seen\":%llu}", names[i],
				(double)f->on[i] / 4294967296.0,
				(unsigned long long)f->seen[i]);
}

/* Keep a copy for later; false: no place. */
static bool
hold(struct sm_nic *nic, struct sm_peer *p, const struct sm_hdr *hdr, const uint8_t *payload,
	uint64_t ns, uint64_t packets)
{
	struct sm_fault *f = nic->fault;

	for (uint32_t i = 0; i < HELD_MAX; i++) {
		struct held *h = &f->held[i];

		if (h->peer != NULL)
			continue;
		h->peer = p;
		h->hdr = *hdr;
		h->due = nic->now + ns;
		h->passed = packets != 0 ? f->packets + packets : UINT64_MAX;
		if ((hdr->head & 0xffff) != 0)
			memcpy(h->payload, payload, hdr->head & 0xffff);
		f->nheld++;
		return true;
	}
	return false;
}

void
sm_fault_release(struct sm_nic *nic)
{
	struct sm_fault *f = nic->fault;

	for (uint32_t i = 0; f != NULL && i < HELD_MAX && f->nheld != 0; i++) {
		struct held *h = &f->held[i];

		struct sm_peer *p = h->peer;

		if (p == NULL || p->dead || (nic->now < h->due && f->packets < h->passed))
			continue;
		h->peer = NULL;
		f->nheld--;
		sm_peer_packet(nic, p, &h->hdr, h->payload);
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

/* Refuse a request as if the responder had found fault with it; true: done. */
static bool
refused(struct sm_nic *nic, struct sm_peer *p, const struct sm_hdr *h)
{
	struct sm_fault *f = nic->fault;

	return (happens(f, RNR) && sm_resp_refuse(nic, p, h, SM_NAK_RNR)) ||
		(happens(f, INVAL) && sm_resp_refuse(nic, p, h, SM_NAK_INVALID)) ||
		(happens(f, ACCESS) && sm_resp_refuse(nic, p, h, SM_NAK_ACCESS)) ||
		(happens(f, OP) && sm_resp_refuse(nic, p, h, SM_NAK_OP));
}

void
sm_fault_packet(
	struct sm_nic *nic, struct sm_peer *p, const struct sm_hdr *h, const uint8_t *payload)
{
	struct sm_fault *f = nic->fault;
	uint32_t type = sm_pkt_type(h->head);
	struct sm_hdr bad = *h;

	f->packets++;
	p->spoke++;
	if (f->on[QP] != 0 && (h->dst & SM_PSN_MASK) != f->on[QP]) {
		sm_peer_packet(nic, p, h, payload);
		return;
	}
	if (happens(f, DROP) || happens(f, CORRUPT)) /* Its ICRC does not fit. */
		return;
	if (happens(f, DELAY) && hold(nic, p, h, payload, 1 + fault_random(f) % DELAY_NS, 0))
		return;
	if (happens(f, REORDER) && hold(nic, p, h, payload, DELAY_NS, 1 + fault_random(f) % 4))
		return;
	if (happens(f, DUP))
		hold(nic, p, h, payload, fault_random(f) % DELAY_NS, 1);
	if (refused(nic, p, h))
		return;
	/* The last packet of a response, and nothing in it. */
	if ((type == SM_PKT_READ_RESP || type == SM_PKT_ATOMIC_RESP) && happens(f, BADRESP)) {
		bad.head = (h->head & 0xffff0000u) | (uint32_t)SM_PKT_LAST << 24;
		h = &bad;
	}
	sm_peer_packet(nic, p, h, payload);
}
