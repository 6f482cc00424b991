/* SPDX-License-Identifier: BSD-3-Clause */

/* Large payloads straight from their source; see direct.h. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/random.h>

#include "crpc_idle.h"
#include "qp.h"

#define CLAIMED UINT64_C(1)
/* Copies of less are not worth the way past the caches. */
#define FAR_LEAST (96u << 10)

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
		if (g->cookie == r->cookie)
			break;
	if (g != NULL)
		g->users++;
	pthread_mutex_unlock(&list_lock);
	return g;
}

uint64_t
sm_direct_open(struct sm_nic *nic, struct sm_peer *p)
{
	struct sm_grants *g = nic->attr.direct != 0 ? calloc(1, sizeof(*g)) : NULL;

	/* A number that neither another process nor another ring has; even, and not 0. */
	if (g == NULL || getrandom(&g->cookie, sizeof(g->cookie), 0) != sizeof(g->cookie)) {
		free(g);
		return 0;
	}
	g->cookie = (g->cookie & ~UINT64_C(1)) | UINT64_C(1) << 63;
	g->users = 1;
	p->tx.grants = g;
	pthread_mutex_lock(&list_lock);
	LIST_INSERT_HEAD(&list, g, link);
	pthread_mutex_unlock(&list_lock);
	return g->cookie;
}

/* ---- how to reach who writes a ring ---- */

void
sm_direct_attach(struct sm_nic *nic, struct sm_peer *p)
{
	struct sm_ring *r = p->rx.ring;

	if (nic->attr.direct != 0 && r->cookie != 0)
		p->rx.grants = grants_find(r);
	/* D0: the grants are known; pairs with D1 in sm_direct_begin(). */
	crpc_store_release(&r->direct, p->rx.grants != NULL);
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
			crpc_store_release(&p->rx.ring->direct, 0); /* D0 */
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

	*full = false;
	if (nic->attr.direct == 0 || left < nic->attr.direct || tx->grants == NULL ||
		!qp->kind->reliable || nic->settling)
		return NULL;
	/* D1 pairs with D0. */
	if (crpc_load_acquire(&tx->ring->direct) != 1 || !sm_direct_reclaim(tx))
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

void
sm_direct_put(struct sm_nic *nic, struct sm_qp *qp, struct sm_grant *g, void *payload)
{
	struct sm_tx *tx = &qp->peer->tx;
	struct sm_ref ref = {.state = tx->grants->cookie + 2 * tx->refs, .len = g->len};

	memcpy(payload, &ref, sizeof(ref));
	tx->refs++;
	tx->open_bytes += g->len;
	nic->direct.sent++;
	nic->direct.sent_bytes += g->len;
	/* D4: the grant is whole; pairs with D5 in sm_pull_to(). */
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
	if ((h->head & 0xffff) != sizeof(pull->ref) || pull->peer->rx.grants == NULL)
		return false;
	memcpy(&pull->ref, payload, sizeof(pull->ref));
	return pull->ref.len != 0 && pull->ref.len <= SM_DIRECT_PIECE;
}

/* Whatever became of it: the grant is the writer's again. */
static void
pull_close(struct sm_pull *pull)
{
	struct sm_rx *rx = &pull->peer->rx;

	rx->pulled++;
	rx->run += (uint32_t)pull->ref.len;
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
gather(struct sm_trail *trail, const struct sm_grant *g, uint32_t pos, uint8_t *dst, uint32_t left)
{
	uint32_t have, part;

	for (; left != 0; left -= part, pos += part, dst += part) {
		const uint8_t *src = seg_at(g->seg, g->nseg, pos, &have);

		part = (uint32_t)crpc_min(left, have);
		if (is_far(trail, dst, part) && part >= FAR_LEAST)
			sm_copy_far(dst, src, part);
		else
			sm_copy(dst, src, part);
	}
}

bool
sm_pull_to(struct sm_pull *pull, void *dst, uint32_t n)
{
	struct sm_grants *all = pull->peer->rx.grants;
	uint64_t state = pull->ref.state;
	struct sm_grant *g = &all->grant[(state - all->cookie) / 2 % SM_GRANTS];
	bool ok;

	/* D5 pairs with D4. */
	ok = crpc_cas_acq_rel(&g->state, &state, state | CLAIMED);
	if (crpc_likely(ok)) {
		ok = pull->ref.len == g->len && n <= g->len - pull->pos;
		if (ok)
			gather(&pull->nic->trail, g, pull->pos, dst, n);
		crpc_store_release(&g->state, pull->ref.state); /* D7 */
	}
	if (crpc_unlikely(!ok)) { /* It was withdrawn. */
		pull->nic->direct.withdrawn++;
		pull->syndrome = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
		return false;
	}
	pull->nic->direct.received_bytes += n;
	pull->pos += n;
	return true;
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
