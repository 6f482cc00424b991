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
};

static const char *const names[FAULTS] = {"drop", "corrupt", "dup", "delay", "reorder", "rnr",
	"inval", "access", "op", "prot", "badresp", "cqfull"};

/* As the text says. */
struct faults {
	uint64_t of[FAULTS]; /* Of 2^32. */
	uint64_t qpn;        /* Only of this queue pair; 0: of all. */
	uint64_t slow_ns;
	uint64_t dead;
	uint64_t seed;
	bool seeded;
};

struct sm_fault {
	struct faults on;
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
	if (f->on.of[what] == 0 || fault_random(f) >= f->on.of[what])
		return false;
	f->seen[what]++;
	return true;
}

/* "name=value"; false: not one of ours. */
static bool
setting(struct faults *f, const char *text, size_t len)
{
	const struct {
		const char *name;
		uint64_t *to;
	} numbers[] = {{"seed", &f->seed}, {"qp", &f->qpn}, {"slow", &f->slow_ns},
		{"dead", &f->dead}};
	const char *eq = memchr(text, '=', len);
	size_t name = eq == NULL ? 0 : (size_t)(eq - text);
	char value[32], *end;
	double p;

	if (eq == NULL || len - name - 1 >= sizeof(value) || name + 1 == len)
		return false;
	memcpy(value, eq + 1, len - name - 1);
	value[len - name - 1] = '\0';
	for (uint32_t i = 0; i < CRPC_DIM(numbers); i++)
		if (strlen(numbers[i].name) == name && memcmp(numbers[i].name, text, name) == 0) {
			f->seeded |= numbers[i].to == &f->seed;
			*numbers[i].to = strtoull(value, &end, 0);
			return *end == '\0' && value[0] != '-';
		}
	p = strtod(value, &end);
	if (*end != '\0' || !(p >= 0 && p <= 1))
		return false;
	for (uint32_t i = 0; i < FAULTS; i++)
		if (strlen(names[i]) == name && memcmp(names[i], text, name) == 0) {
			f->of[i] = (uint64_t)(p * 4294967296.0);
			return true;
		}
	return false;
}

static int
parse(const char *text, struct faults *f)
{
	*f = (struct faults){0};
	for (size_t len; *text != '\0'; text += len + (text[len] == ',')) {
		len = strcspn(text, ",");
		if (setting(f, text, len))
			continue;
		crpc_err(
			"faults: '%.*s' is not seed=N, qp=N, slow=NANOSECONDS, dead=1 or one of "
			"drop, corrupt, dup, delay, reorder, rnr, inval, access, op, prot, "
			"badresp, cqfull =P with P from 0 to 1",
			(int)len, text);
		return EINVAL;
	}
	return 0;
}

/* Those of a context: others have another fate from the same seed. */
static void
faults_set(struct sm_fault *f, const struct faults *on, uint32_t slot)
{
	f->on = *on;
	if (on->seeded || f->rng == 0)
		f->rng = (on->seeded ? on->seed : 1) + ((uint64_t)slot << 32);
}

int
sm_fault_create(const char *text, uint32_t slot, struct sm_fault **fault)
{
	struct faults on;
	int rc;

	*fault = NULL;
	if (text == NULL || text[0] == '\0')
		return 0;
	rc = parse(text, &on);
	if (rc != 0)
		return rc;
	*fault = calloc(1, sizeof(**fault));
	if (*fault == NULL)
		return ENOMEM;
	faults_set(*fault, &on, slot);
	return 0;
}

bool
sm_fault_local(const struct sm_fault *f)
{
	return f != NULL && f->on.of[PROT] != 0;
}

bool
sm_fault_prot(struct sm_fault *f, const struct sm_qp *qp)
{
	return (f->on.qpn == 0 || f->on.qpn == qp->qpn) && happens(f, PROT);
}

bool
sm_fault_stops(const struct sm_fault *f, uint64_t now)
{
	return f->on.dead != 0 || now < f->busy_until;
}

void
sm_fault_begin(struct sm_nic *nic)
{
	const struct sm_fault *f = nic->fault;

	nic->lossy |= f != NULL;
	sm_direct_off(nic);
	for (uint32_t i = 0; i < SM_QPS_MAX; i++)
		if (nic->qps[i] != NULL)
			sm_qp_way(nic, nic->qps[i]);
	nic->stopping = f != NULL && (f->on.dead != 0 || f->on.slow_ns != 0);
	nic->stopped = nic->stopping || nic->orphan || nic->vanished;
	nic->alive_at = 0; /* The timers run from now on. */
}

/* @on NULL: have timers, and the faults that there are. */
static int
nic_faults(struct sm_nic *nic, const struct faults *on)
{
	static const struct faults none;
	int rc = sm_lock_live(nic);
	bool had = nic->fault != NULL;

	if (rc != 0)
		return rc;
	if (!had)
		nic->fault = calloc(1, sizeof(*nic->fault));
	if (nic->fault == NULL)
		rc = ENOMEM;
	else if (on != NULL || !had)
		faults_set(nic->fault, on != NULL ? on : &none, nic->slot);
	if (rc == 0)
		sm_fault_begin(nic);
	sm_unlock(nic);
	return rc;
}

int
sm_nic_timers(struct sm_nic *nic)
{
	return nic_faults(nic, NULL);
}

int
sm_nic_faults(struct sm_nic *nic, const char *text)
{
	struct faults on;
	int rc = parse(text, &on);

	return rc != 0 ? rc : nic_faults(nic, &on);
}

/* A pass of @p work was done: what it moved takes its time, and queues overrun. */
void
sm_fault_pass(struct sm_nic *nic, uint32_t work)
{
	struct sm_fault *f = nic->fault;
	struct sm_obj *obj;

	f->busy_until = nic->now + f->on.slow_ns * work;
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
		if (f->on.of[i] != 0 || f->seen[i] != 0)
			fprintf(out, ",\"%s\":{\"share\":%.6g,\"seen\":%llu}", names[i],
				(double)f->on.of[i] / 4294967296.0,
				(unsigned long long)f->seen[i]);
}

void
sm_fault_free(struct sm_fault *f)
{
	if (f != NULL)
		crpc_info("faults: %llu packets; lost %llu, corrupt %llu, twice %llu, late %llu, "
			  "out of order %llu, RNR %llu", (unsigned long long)f->packets,
			(unsigned long long)f->seen[DROP], (unsigned long long)f->seen[CORRUPT],
			(unsigned long long)f->seen[DUP], (unsigned long long)f->seen[DELAY],
			(unsigned long long)f->seen[REORDER], (unsigned long long)f->seen[RNR]);
	free(f);
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
sm_fault_release(struct sm_nic *nic, struct sm_peer *p)
{
	struct sm_fault *f = nic->fault;

	for (uint32_t i = 0; f != NULL && i < HELD_MAX && f->nheld != 0; i++) {
		struct held *h = &f->held[i];

		if (h->peer != p || (nic->now < h->due && f->packets < h->passed))
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
	if (f->on.qpn != 0 && (h->dst & SM_PSN_MASK) != f->on.qpn) {
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
