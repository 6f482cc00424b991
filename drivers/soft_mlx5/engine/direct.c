/* SPDX-License-Identifier: BSD-3-Clause */

/* Large payloads straight from their source; see direct.h. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "crpc_idle.h"
#include "qp.h"

#define REF_HEAD offsetof(struct sm_ref, seg)
#define CLAIMED UINT64_C(1)
/* Copies of less are not worth the way past the caches. */
#define FAR_LEAST (96u << 10)
/* What the kernel copies to a buffer of ours, so that it appears last: a line. */
#define TAIL CRPC_CACHE_LINE

_Static_assert(REF_HEAD + SM_GRANT_SEGS * sizeof(struct sm_seg) <= SM_FRAG, "it is one packet");
_Static_assert(SM_DIRECT_PIECE % SM_FRAG == 0 && SM_DIRECT_PIECE <= SM_DIRECT_AHEAD, "wire.h");

/* ---- which rings begin and end in this process ---- */

static LIST_HEAD(, sm_grants) list = LIST_HEAD_INITIALIZER(list);
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;

static void
grants_drop(struct sm_grants **gp)
{
	struct sm_grants *g = *gp;
	bool last;

	*gp = NULL;
	if (g == NULL)
		return;
	pthread_mutex_lock(&list_lock);
	last = --g->users == 0;
	if (last)
		LIST_REMOVE(g, link);
	pthread_mutex_unlock(&list_lock);
	if (last)
		free(g);
}

/* The grants behind a ring to us, if its writer lives in this process: one user more. */
static struct sm_grants *
grants_find(const struct sm_ring *r)
{
	struct sm_grants *g;

	pthread_mutex_lock(&list_lock);
	LIST_FOREACH(g, &list, link)
		if (g->cookie == r->from.cookie)
			break;
	if (g != NULL)
		g->users++;
	pthread_mutex_unlock(&list_lock);
	return g;
}

/* A number that neither another process nor another ring has; even. */
static uint64_t
cookie_make(const void *where)
{
	struct timespec ts;
	uint64_t z;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	z = (uint64_t)ts.tv_nsec << 20 ^ (uint64_t)ts.tv_sec << 50 ^ (uintptr_t)where ^
		(uint64_t)getpid() << 32;
	return (crpc_random(&z) & ~UINT64_C(1)) | UINT64_C(1) << 63;
}

void
sm_direct_open(struct sm_nic *nic, struct sm_peer *p, struct sm_ring_from *from)
{
	struct sm_grants *g = nic->attr.direct != 0 ? calloc(1, sizeof(*g)) : NULL;

	*from = (struct sm_ring_from){0};
	if (g == NULL)
		return;
	g->cookie = cookie_make(g);
	g->users = 1;
	*from = (struct sm_ring_from){g->cookie, (uintptr_t)&g->cookie, (uint32_t)getpid()};
	p->tx.grants = g;
	pthread_mutex_lock(&list_lock);
	LIST_INSERT_HEAD(&list, g, link);
	pthread_mutex_unlock(&list_lock);
}

/* ---- how to reach who writes a ring ---- */

const char *
sm_direct_name(uint32_t direct)
{
	static const char *const names[] = {"unsaid", "memcpy", "process_vm_readv", "ring"};

	return names[crpc_min(direct & 0xff, SM_DIRECT_NO)];
}

void
sm_direct_print(const struct sm_nic *nic, FILE *out)
{
	const struct sm_direct_count *n = &nic->direct;
	const struct sm_peer *p;
	const char *between = "";
	int why;

	fprintf(out,
		"\"direct\":{\"from\":%u,\"sent\":%" PRIu64 ",\"sent_bytes\":%" PRIu64
		",\"memcpy_bytes\":%" PRIu64 ",\"process_vm_readv_bytes\":%" PRIu64
		",\"withdrawn\":%" PRIu64 ",\"failed\":%" PRIu64 ",\"peers\":[",
		nic->attr.direct, n->sent, n->sent_bytes, n->memory_bytes, n->kernel_bytes,
		n->withdrawn, n->failed);
	TAILQ_FOREACH(p, &nic->peers, link) {
		if (p->tx.ring == NULL || p->dead)
			continue;
		why = (int)(p->rx.direct >> 8);
		fprintf(out, "%s{\"slot\":%u,\"to\":\"%s\",\"from\":\"%s\",\"why\":\"%s\"}",
			between, p->slot, sm_direct_name(crpc_load_relaxed(&p->tx.ring->direct)),
			sm_direct_name(p->rx.direct), why != 0 ? strerror(why) : "");
		between = ",";
	}
	fprintf(out, "]}");
}

static void
direct_say(struct sm_peer *p, uint32_t direct)
{
	p->rx.direct = direct;
	/* D0: what decides lies in memory of ours; pairs with D1 in sm_direct_begin(). */
	crpc_store_release(&p->rx.ring->direct, direct);
}

/* 0, or why the memory of the ring's writer cannot be read. */
static int
kernel_probe(const struct sm_ring *r)
{
	uint64_t want = r->from.cookie, got = 0;
	struct iovec to = {&got, sizeof(got)};
	struct iovec from = {(void *)(uintptr_t)r->from.cookie_at, sizeof(got)};
	ssize_t n = process_vm_readv((pid_t)r->from.pid, &to, 1, &from, 1, 0);

	if (n < 0)
		return errno;
	/* Another one of that number: of another namespace. */
	return n == sizeof(got) && got == want ? 0 : ESRCH;
}

void
sm_direct_attach(struct sm_nic *nic, struct sm_peer *p)
{
	struct sm_ring *r = p->rx.ring;
	bool wanted = nic->attr.direct != 0 && r->from.cookie != 0;
	uint32_t direct = SM_DIRECT_NO;
	int rc;

	if (wanted)
		p->rx.grants = grants_find(r);
	if (p->rx.grants != NULL) {
		direct = SM_DIRECT_MEMORY;
	} else if (wanted && nic->attr.direct_kernel) {
		rc = kernel_probe(r);
		p->rx.pid = rc == 0 ? (int)r->from.pid : 0;
		direct = rc == 0 ? SM_DIRECT_KERNEL : SM_DIRECT_NO | (uint32_t)rc << 8;
	}
	direct_say(p, direct);
}

void
sm_direct_off(struct sm_nic *nic)
{
	struct sm_peer *p;

	if (nic->attr.direct == 0)
		return;
	nic->attr.direct = 0;
	TAILQ_FOREACH(p, &nic->peers, link)
		if (p->rx.ring != NULL) /* What is on its way is taken yet. */
			direct_say(p, SM_DIRECT_NO);
}

/* ---- grants ---- */

static struct sm_grant *
grant_at(const struct sm_tx *tx, uint64_t ref)
{
	return &tx->grants->grant[ref % SM_GRANTS];
}

bool
sm_direct_reclaim(struct sm_tx *tx)
{
	/* D2 pairs with D3 in pull_close(). */
	uint64_t pulled = crpc_load_acquire(&tx->ring->pulled);

	if (pulled - tx->reclaimed > tx->refs - tx->reclaimed)
		return false;
	for (; tx->reclaimed != pulled; tx->reclaimed++) {
		struct sm_grant *g = grant_at(tx, tx->reclaimed);

		/*
		 * D6 pairs with D7. D2 says the same, but by a word that each side has at an
		 * address of its own: a sanitizer does not know it for one.
		 */
		(void)crpc_load_acquire(&g->state);
		tx->open_bytes -= g->len;
	}
	return true;
}

static void
grant_withdraw(struct sm_grant *g)
{
	uint64_t state = crpc_load_acquire(&g->state);
	uint32_t tries = 0;

	while (state != 0) {
		/* D6 pairs with D7: what was copied under a claim was copied before. */
		if ((state & CLAIMED) == 0 && crpc_cas_acq_rel(&g->state, &state, 0))
			return;
		if ((state & CLAIMED) == 0)
			continue;
		/* A thread of ours copies, which takes microseconds, unless it lost its core. */
		if (++tries < 100)
			crpc_pause();
		else
			sched_yield();
		state = crpc_load_acquire(&g->state);
	}
}

struct sm_grant *
sm_direct_begin(struct sm_nic *nic, struct sm_qp *qp, uint32_t left, bool *full)
{
	struct sm_tx *tx = &qp->peer->tx;
	struct sm_grant *g;
	uint32_t direct;

	*full = false;
	if (nic->attr.direct == 0 || left < nic->attr.direct || tx->grants == NULL ||
		!qp->kind->reliable || nic->settling)
		return NULL;
	direct = crpc_load_acquire(&tx->ring->direct); /* D1 pairs with D0. */
	if ((direct != SM_DIRECT_MEMORY && direct != SM_DIRECT_KERNEL) || !sm_direct_reclaim(tx))
		return NULL;
	g = grant_at(tx, tx->refs);
	left = (uint32_t)crpc_min(left, SM_DIRECT_PIECE);
	*full = tx->refs - tx->reclaimed == SM_GRANTS ||
		tx->open_bytes + left > SM_DIRECT_AHEAD;
	if (*full)
		return NULL;
	grant_withdraw(g); /* Of a reader that dropped it, if it is not free. */
	g->qp = qp;
	g->len = left;
	g->nseg = 0;
	return g;
}

uint32_t
sm_direct_bytes(const struct sm_peer *p, const struct sm_grant *g)
{
	/* A reader in this process finds the pieces in the grant. */
	bool shared = crpc_load_relaxed(&p->tx.ring->direct) == SM_DIRECT_MEMORY;

	return (uint32_t)(REF_HEAD + (shared ? 0 : g->nseg * sizeof(struct sm_seg)));
}

void
sm_direct_put(
	struct sm_nic *nic, struct sm_qp *qp, struct sm_grant *g, void *payload, uint32_t bytes)
{
	struct sm_tx *tx = &qp->peer->tx;
	struct sm_ref ref = {
		.state = tx->grants->cookie + 2 * tx->refs,
		.at = (uintptr_t)&g->state,
		.len = g->len,
		.nseg = (uint32_t)((bytes - REF_HEAD) / sizeof(struct sm_seg)),
	};

	memcpy(payload, &ref, REF_HEAD);
	memcpy((uint8_t *)payload + REF_HEAD, g->seg, bytes - REF_HEAD);
	tx->refs++;
	tx->open_bytes += g->len;
	nic->direct.sent++;
	nic->direct.sent_bytes += g->len;
	/* D4: the grant is whole; pairs with D5 in pull_memory(). */
	crpc_store_release(&g->state, ref.state);
}

void
sm_direct_withdraw(struct sm_nic *nic, const struct sm_qp *qp)
{
	struct sm_tx *tx = &qp->peer->tx;

	if (tx->grants == NULL)
		return;
	for (uint64_t i = tx->reclaimed; i != tx->refs; i++)
		if (grant_at(tx, i)->qp == qp)
			grant_withdraw(grant_at(tx, i));
}

static bool
has_key(const struct sm_grant *g, uint32_t index)
{
	for (uint32_t i = 0; i < g->nseg; i++)
		if (g->key[i] == index)
			return true;
	return false;
}

void
sm_direct_withdraw_key(struct sm_nic *nic, uint32_t index)
{
	struct sm_peer *p;

	TAILQ_FOREACH(p, &nic->peers, link)
		for (uint64_t i = p->tx.reclaimed; i != p->tx.refs; i++)
			if (has_key(grant_at(&p->tx, i), index))
				grant_withdraw(grant_at(&p->tx, i));
}

void
sm_direct_close(struct sm_nic *nic, struct sm_peer *p)
{
	if (p->tx.grants != NULL)
		for (uint32_t i = 0; i < SM_GRANTS; i++)
			grant_withdraw(&p->tx.grants->grant[i]);
	grants_drop(&p->tx.grants);
	grants_drop(&p->rx.grants);
}

void
sm_direct_fork_child(void)
{
	/* Who held the lock does not exist here, and what is listed are the parent's rings. */
	pthread_mutex_init(&list_lock, NULL);
	LIST_INIT(&list);
}

/* ---- references that come ---- */

/* Copy it out of the ring and check it; false: no writer of ours made it. */
static bool
pull_open(struct sm_pull *pull, const struct sm_hdr *h, const uint8_t *payload)
{
	const struct sm_rx *rx = &pull->peer->rx;
	struct sm_ref *ref = &pull->ref;
	uint32_t bytes = h->head & 0xffff;
	uint64_t sum = 0;

	if (bytes < REF_HEAD || bytes > sizeof(*ref))
		return false;
	memcpy(ref, payload, bytes);
	if (ref->len == 0 || ref->len > SM_DIRECT_PIECE || ref->nseg > SM_GRANT_SEGS ||
		bytes != REF_HEAD + ref->nseg * sizeof(struct sm_seg))
		return false;
	if (ref->nseg == 0)
		return rx->grants != NULL;
	for (uint32_t i = 0; i < ref->nseg; i++) {
		if (ref->seg[i].len > ref->len)
			return false;
		sum += ref->seg[i].len;
	}
	return rx->grants == NULL && rx->pid != 0 && sum == ref->len;
}

/* Whatever became of it: the grant is the writer's again. */
static void
pull_close(struct sm_pull *pull)
{
	struct sm_rx *rx = &pull->peer->rx;

	rx->pulled++;
	rx->run += pull->ref.len;
	crpc_store_release(&rx->ring->pulled, rx->pulled); /* D3 */
}

/* The place of byte @pos in the pieces, and how many bytes lie there. */
static const uint8_t *
seg_at(const struct sm_seg *seg, uint32_t nseg, uint32_t pos, uint32_t *len)
{
	for (uint32_t i = 0; i < nseg; i++) {
		if (pos < seg[i].len) {
			*len = (uint32_t)(seg[i].len - pos);
			return (const uint8_t *)(uintptr_t)(seg[i].addr + pos);
		}
		pos -= (uint32_t)seg[i].len;
	}
	*len = 0;
	return NULL;
}

/*
 * True if @dst is best written past the caches: it was written longer ago than they remember, or is
 * the next part of a long stretch. A card writes to memory, or to a small part of the caches.
 */
static bool
is_far(struct sm_trail *t, const void *dst, uint32_t len)
{
	uint64_t at = (uintptr_t)dst, place = at >> SM_TRAIL_SHIFT, when;
	bool known = t->at[place % SM_TRAIL].place == place;

	when = t->at[place % SM_TRAIL].when;
	t->at[place % SM_TRAIL].place = place;
	t->at[place % SM_TRAIL].when = t->copied;
	t->run = at == t->end ? t->run + len : len;
	t->end = at + len;
	t->copied += len;
	return known && t->copied - when > 2 * len ? t->copied - when > SM_FAR_BYTES
						   : t->run > SM_FAR_BYTES;
}

static void
gather(struct sm_trail *trail, const struct sm_grant *g, uint32_t pos, const struct iovec *to,
	uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint8_t *dst = to[i].iov_base;
		size_t left = to[i].iov_len;

		while (left != 0) {
			uint32_t have, part;
			const uint8_t *src = seg_at(g->seg, g->nseg, pos, &have);

			part = (uint32_t)crpc_min(left, have);
			if (is_far(trail, dst, part) && part >= FAR_LEAST)
				sm_copy_far(dst, src, part);
			else
				sm_copy(dst, src, part);
			dst += part;
			left -= part;
			pos += part;
		}
	}
}

/* In one process. False: it was withdrawn. */
static bool
pull_memory(struct sm_pull *pull, const struct iovec *to, uint32_t n, uint32_t bytes)
{
	struct sm_grants *all = pull->peer->rx.grants;
	uint64_t state = pull->ref.state;
	struct sm_grant *g = &all->grant[(state - all->cookie) / 2 % SM_GRANTS];
	bool ok;

	/* D5 pairs with D4. */
	if (!crpc_cas_acq_rel(&g->state, &state, state | CLAIMED))
		return false;
	ok = pull->ref.len == g->len && bytes <= g->len - pull->pos;
	if (ok)
		gather(&pull->nic->trail, g, pull->pos, to, n);
	crpc_store_release(&g->state, pull->ref.state); /* D7 */
	pull->nic->direct.memory_bytes += ok ? bytes : 0;
	return ok;
}

/* From another process: 0, ECANCELED (it was withdrawn), or why not. */
static int
pull_kernel(struct sm_pull *pull, const struct iovec *to, uint32_t n, uint32_t bytes)
{
	struct iovec from[SM_GRANT_SEGS + 1], into[SM_PULL_PLACES + 2];
	uint32_t tail = (uint32_t)crpc_min(to[n - 1].iov_len, TAIL);
	uint32_t m = 0, pos = pull->pos, left = bytes, have;
	const struct sm_ref *ref = &pull->ref;
	uint64_t state = 0;
	uint8_t last[TAIL];
	ssize_t got;

	for (; left != 0 && m < SM_GRANT_SEGS; m++) {
		from[m].iov_base = (void *)(uintptr_t)seg_at(ref->seg, ref->nseg, pos, &have);
		from[m].iov_len = crpc_min(left, have);
		pos += (uint32_t)from[m].iov_len;
		left -= (uint32_t)from[m].iov_len;
	}
	memcpy(into, to, n * sizeof(*to));
	/* Behind the bytes, and read behind them: if it still holds they were valid. */
	from[m] = (struct iovec){(void *)(uintptr_t)ref->at, sizeof(state)};
	into[n - 1].iov_len -= tail;
	into[n] = (struct iovec){last, tail};
	into[n + 1] = (struct iovec){&state, sizeof(state)};
	got = process_vm_readv(pull->peer->rx.pid, into, n + 2, from, m + 1, 0);
	if (got < 0)
		return errno;
	if ((size_t)got != bytes + sizeof(state))
		return EFAULT;
	pull->nic->direct.kernel_bytes += bytes;
	if (state != ref->state)
		return ECANCELED;
	sm_copy((uint8_t *)to[n - 1].iov_base + into[n - 1].iov_len, last, tail);
	return 0;
}

bool
sm_pull_to(struct sm_pull *pull, const struct iovec *to, uint32_t n)
{
	struct sm_peer *p = pull->peer;
	uint32_t bytes = 0;
	int rc;

	for (uint32_t i = 0; i < n; i++)
		bytes += (uint32_t)to[i].iov_len;
	if (p->rx.grants != NULL)
		rc = pull_memory(pull, to, n, bytes) ? 0 : ECANCELED;
	else
		rc = pull_kernel(pull, to, n, bytes);
	pull->pos += bytes;
	if (crpc_likely(rc == 0))
		return true;
	if (rc == ECANCELED) {
		pull->nic->direct.withdrawn++;
		pull->syndrome = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
		return false;
	}
	pull->nic->direct.failed++;
	pull->syndrome = rc == ESRCH ? MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR
				     : MLX5_CQE_SYNDROME_REMOTE_OP_ERR;
	if (rc != ESRCH) /* Dead: that shows by itself. */
		direct_say(p, SM_DIRECT_NO | (uint32_t)rc << 8);
	return false;
}

bool
sm_direct_packet(struct sm_nic *nic, struct sm_peer *p, const struct sm_hdr *h,
	const uint8_t *payload)
{
	struct sm_pull pull = {.nic = nic, .peer = p};
	struct sm_hdr plain = *h;

	if (!pull_open(&pull, h, payload))
		return false;
	plain.head = (h->head & 0xff000000u) | (uint32_t)sm_pkt_kind(h->head)->plain << 16;
	if (sm_pkt_kind(plain.head)->group == SM_PKTS_ANSWER)
		sm_sq_answer(nic, p, &plain, NULL, &pull);
	else
		sm_resp_request(nic, p, &plain, NULL, &pull);
	pull_close(&pull);
	return true;
}
