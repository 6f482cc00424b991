/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mesh: a thin face over flux, or one many-producer rte_ring per node.
 *
 * Over rte_ring a node has two pools. A slot is an open call of its own; the answer's bytes are
 * copied to the slot and wait there for poll. A hold is a request or notification of somebody; its
 * bytes stay there from arrival to reply, and a reply that finds the caller's receiver full waits
 * there to be sent.
 *
 *     slot: free -> open -> answered -> given (until the next poll) -> free
 *                   open -> late -> free
 *     hold: free -> queued -> given -> free
 *                             given -> outbox -> free
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

/* rte_ring with the ordering on its accesses, not by fences: the thread sanitizer follows it. */
#ifndef RTE_USE_C11_MEM_MODEL
#define RTE_USE_C11_MEM_MODEL 1
#endif
#include <rte_ring.h>
#include <rte_ring_elem.h>

#include "crpc_log.h"
#include "crpc_mesh.h"

#define BURST 32u
#define WINDOW_DEFAULT 256u
#define MSG_SIZE_DEFAULT 32u
#define IDX_BITS 20
#define IDX_MASK ((1u << IDX_BITS) - 1)
/* A token is a hold and how often it was used: 2^43 uses until one comes again. */
#define HOLD_BITS 21
#define HOLD_MASK ((1u << HOLD_BITS) - 1)
#define HOLD_USES (UINT64_C(1) << (64 - HOLD_BITS))
#define NONE UINT32_MAX
#define NOT_STAMPED UINT64_MAX
_Static_assert(CRPC_FLUX_WINDOW_MAX * CRPC_FLUX_NODES_MAX <= 1u << IDX_BITS, "an id holds a slot");
_Static_assert(2 * CRPC_FLUX_WINDOW_MAX * (CRPC_FLUX_NODES_MAX - 1) + BURST <= 1u << HOLD_BITS,
	"a token holds a hold");
_Static_assert(CRPC_FLUX_NODES_MAX <= 256, "from is a byte");

enum mesh_kind { MESH_NOTIFY, MESH_REQUEST, MESH_RESPONSE };

/* What goes through a ring: this, then the payload. */
struct mesh_msg {
	uint32_t id;
	uint8_t len;
	uint8_t kind;
	uint8_t from;
	uint8_t life; /* the asker's incarnation: an answer to an earlier one is dropped */
};
_Static_assert(sizeof(struct mesh_msg) == 8, "CRPC_FLUX_MSG_MAX counts on it");
_Static_assert(CRPC_FLUX_MSG_MAX <= UINT8_MAX, "len is a byte");

/* A message of any size that fits. */
struct mesh_elem {
	struct mesh_msg m;
	char data[CRPC_FLUX_MSG_MAX];
};

enum slot_state { SLOT_FREE, SLOT_OPEN, SLOT_ANSWERED, SLOT_LATE };

struct mesh_slot {
	uint64_t cookie;
	uint64_t since_ns; /* of the first look at deadlines after the call, or NOT_STAMPED */
	uint32_t id;
	uint32_t next; /* in the free list or the list of the answered */
	uint16_t state;
	uint16_t len;
	uint32_t peer;
	uint32_t peer_epoch;
};

struct mesh_hold {
	uint64_t uses;
	uint32_t next;
	uint32_t epoch; /* the sender's incarnation; 0: it had left before */
	bool given;
	struct mesh_msg m;
};

/* A list of slots or holds, in order of arrival. */
struct list {
	uint32_t head;
	uint32_t tail;
};

struct crpc_mesh_node {
	struct crpc_mesh *mesh;
	struct crpc_flux_node *flux; /* the flux backend; then nothing below is used */
	uint32_t id;
	uint32_t esize;
	uint32_t msg_size;
	uint32_t window;
	uint32_t nslots;
	uint32_t nholds;
	uint32_t pending;
	uint32_t holds_free;
	uint32_t changes; /* of the mesh, as last seen */
	uint8_t life;
	uint64_t now_ns;
	uint64_t next_scan_ns;
	struct rte_ring *inbox;
	struct mesh_slot *slot;
	char *slot_buf;
	uint32_t free_slot;
	struct list answered;
	struct list given; /* slots whose bytes the caller may read until the next poll */
	struct mesh_hold *hold;
	char *hold_buf;
	uint32_t free_hold;
	struct list queued;
	struct list outbox;
	uint32_t open[CRPC_FLUX_NODES_MAX]; /* calls per peer */
};

struct crpc_mesh {
	struct crpc_mesh_attr attr;
	struct crpc_flux *flux;
	uint32_t esize;
	pthread_mutex_t lock;
	_Atomic uint32_t changes;		      /* somebody left */
	_Atomic uint32_t epoch[CRPC_FLUX_NODES_MAX];  /* odd: joined */
	struct rte_ring *_Atomic inbox[CRPC_FLUX_NODES_MAX]; /* from the first join to the end */
};

/* ---- life ---- */

struct crpc_mesh *
crpc_mesh_create(const struct crpc_mesh_attr *attr)
{
	struct crpc_mesh *mesh;

	if ((unsigned int)attr->backend >= CRPC_MESH_BACKENDS) {
		crpc_err("mesh backend %u is unknown: 0 to %u exist", (unsigned int)attr->backend,
			CRPC_MESH_BACKENDS - 1);
		errno = EINVAL;
		return NULL;
	}
	mesh = calloc(1, sizeof(*mesh));
	if (mesh == NULL) {
		crpc_err("no memory for a mesh (%zu bytes)", sizeof(*mesh));
		errno = ENOMEM;
		return NULL;
	}
	mesh->attr = *attr;
	if (mesh->attr.flux.window == 0)
		mesh->attr.flux.window = WINDOW_DEFAULT;
	if (mesh->attr.flux.msg_size == 0)
		mesh->attr.flux.msg_size = MSG_SIZE_DEFAULT;
	/* flux also checks the sizes for the other backends; it allocates nothing until connect. */
	mesh->flux = crpc_flux_create(&mesh->attr.flux);
	if (mesh->flux == NULL) {
		free(mesh);
		return NULL;
	}
	mesh->esize = (uint32_t)crpc_align_up(
		sizeof(struct mesh_msg) + mesh->attr.flux.msg_size, 8);
	pthread_mutex_init(&mesh->lock, NULL);
	return mesh;
}

void
crpc_mesh_free(struct crpc_mesh *mesh)
{
	uint32_t i;

	if (mesh == NULL)
		return;
	for (i = 0; i < CRPC_FLUX_NODES_MAX; i++)
		free(crpc_load_relaxed(&mesh->inbox[i]));
	crpc_flux_free(mesh->flux);
	pthread_mutex_destroy(&mesh->lock);
	free(mesh);
}

/* A ring with room for a window of requests and of responses per peer, in memory of our own. */
static struct rte_ring *
inbox_create(const struct crpc_mesh *mesh)
{
	static const unsigned int flags[CRPC_MESH_BACKENDS] = {
		[CRPC_MESH_RTE_RING] = RING_F_SC_DEQ,
		[CRPC_MESH_RTE_RING_RTS] = RING_F_MP_RTS_ENQ | RING_F_SC_DEQ,
		[CRPC_MESH_RTE_RING_HTS] = RING_F_MP_HTS_ENQ | RING_F_SC_DEQ,
	};
	uint32_t count = (uint32_t)crpc_pow2_ceil(
		2ull * mesh->attr.flux.window * mesh->attr.flux.nodes);
	ssize_t len = rte_ring_get_memsize_elem(mesh->esize, count);
	struct rte_ring *r;

	if (len < 0)
		return NULL;
	r = aligned_alloc(CRPC_CACHE_GUARD, crpc_align_up((size_t)len, CRPC_CACHE_GUARD));
	if (r != NULL && rte_ring_init(r, "crpc_mesh", count, flags[mesh->attr.backend]) != 0) {
		free(r);
		r = NULL;
	}
	return r;
}

static void
list_init(struct list *l)
{
	l->head = l->tail = NONE;
}

static void
node_free(struct crpc_mesh_node *node)
{
	free(node->slot);
	free(node->slot_buf);
	free(node->hold);
	free(node->hold_buf);
	free(node);
}

/* The pools of a node over rte_ring. */
static int
node_pools(struct crpc_mesh_node *node, uint32_t peers)
{
	uint32_t i;

	node->nslots = node->window * peers;
	node->nholds = 2 * node->window * peers + BURST; /* requests, as many notifications */
	node->slot = calloc(node->nslots, sizeof(*node->slot));
	node->slot_buf = calloc(node->nslots, node->esize);
	node->hold = calloc(node->nholds, sizeof(*node->hold));
	node->hold_buf = calloc(node->nholds, node->esize);
	if (node->slot == NULL || node->slot_buf == NULL || node->hold == NULL ||
		node->hold_buf == NULL)
		return -ENOMEM;
	for (i = 0; i < node->nslots; i++) {
		node->slot[i].id = i;
		node->slot[i].next = i + 1 < node->nslots ? i + 1 : NONE;
	}
	for (i = 0; i < node->nholds; i++)
		node->hold[i].next = i + 1 < node->nholds ? i + 1 : NONE;
	node->holds_free = node->nholds;
	list_init(&node->answered);
	list_init(&node->given);
	list_init(&node->queued);
	list_init(&node->outbox);
	return 0;
}

/* Under the lock: the rte_ring side of join. */
static int
join_rte(struct crpc_mesh_node *node)
{
	struct crpc_mesh *mesh = node->mesh;
	struct mesh_elem junk;
	int rc;

	if (crpc_load_relaxed(&mesh->epoch[node->id]) & 1)
		return -EBUSY;
	rc = node_pools(node, mesh->attr.flux.nodes - 1);
	if (rc != 0)
		return rc;
	node->inbox = crpc_load_relaxed(&mesh->inbox[node->id]);
	if (node->inbox == NULL) {
		node->inbox = inbox_create(mesh);
		if (node->inbox == NULL)
			return -ENOMEM;
		/* R30: the ring before the pointer. Pairs with A30. */
		crpc_store_release(&mesh->inbox[node->id], node->inbox);
	}
	while (rte_ring_dequeue_burst_elem(node->inbox, &junk, node->esize, 1, NULL) != 0)
		; /* sent to an earlier incarnation */
	node->life = (uint8_t)(crpc_load_relaxed(&mesh->epoch[node->id]) >> 1);
	node->changes = crpc_load_acquire(&mesh->changes);
	crpc_store_release(&mesh->epoch[node->id], crpc_load_relaxed(&mesh->epoch[node->id]) + 1);
	return 0;
}

struct crpc_mesh_node *
crpc_mesh_join(struct crpc_mesh *mesh, uint32_t id)
{
	struct crpc_mesh_node *node;
	int rc = 0;

	if (id >= mesh->attr.flux.nodes) {
		crpc_err("no node %u: this mesh has 0 to %u", id, mesh->attr.flux.nodes - 1);
		errno = EINVAL;
		return NULL;
	}
	node = calloc(1, sizeof(*node));
	if (node == NULL) {
		errno = ENOMEM;
		return NULL;
	}
	node->mesh = mesh;
	node->id = id;
	node->esize = mesh->esize;
	node->msg_size = mesh->attr.flux.msg_size;
	node->window = mesh->attr.flux.window;
	if (mesh->attr.backend == CRPC_MESH_FLUX) {
		node->flux = crpc_flux_join(mesh->flux, id);
		rc = node->flux == NULL ? -errno : 0;
	} else {
		pthread_mutex_lock(&mesh->lock);
		rc = join_rte(node);
		pthread_mutex_unlock(&mesh->lock);
		if (rc != 0)
			crpc_err("node %u cannot join: %s", id,
				rc == -EBUSY ? "it has already" : "no memory");
	}
	if (rc == 0)
		return node;
	node_free(node);
	errno = -rc;
	return NULL;
}

void
crpc_mesh_leave(struct crpc_mesh_node *node)
{
	struct crpc_mesh *mesh = node->mesh;

	if (node->flux != NULL) {
		crpc_flux_leave(node->flux);
	} else {
		crpc_mesh_flush(node);
		pthread_mutex_lock(&mesh->lock);
		/* R31: all that the node sent, then its leaving. Pairs with A31. */
		crpc_store_release(
			&mesh->epoch[node->id], crpc_load_relaxed(&mesh->epoch[node->id]) + 1);
		crpc_store_release(&mesh->changes, crpc_load_relaxed(&mesh->changes) + 1);
		pthread_mutex_unlock(&mesh->lock);
	}
	node_free(node);
}

int
crpc_mesh_connect(struct crpc_mesh_node *node, uint32_t peer)
{
	if (node->flux != NULL)
		return crpc_flux_connect(node->flux, peer);
	if (peer >= node->mesh->attr.flux.nodes || peer == node->id) {
		crpc_err("node %u cannot connect to %u: peers are 0 to %u without itself", node->id,
			peer, node->mesh->attr.flux.nodes - 1);
		return -EINVAL;
	}
	return crpc_load_acquire(&node->mesh->epoch[peer]) & 1 ? 0 : -ENOTCONN;
}

/* ---- lists of slots and holds ---- */

static void
slot_append(struct crpc_mesh_node *node, struct list *l, uint32_t i)
{
	node->slot[i].next = NONE;
	if (l->head == NONE)
		l->head = i;
	else
		node->slot[l->tail].next = i;
	l->tail = i;
}

static void
hold_append(struct crpc_mesh_node *node, struct list *l, uint32_t i)
{
	node->hold[i].next = NONE;
	if (l->head == NONE)
		l->head = i;
	else
		node->hold[l->tail].next = i;
	l->tail = i;
}

static void
slot_free(struct crpc_mesh_node *node, uint32_t i)
{
	struct mesh_slot *s = &node->slot[i];

	s->state = SLOT_FREE;
	s->next = node->free_slot;
	node->free_slot = i;
	node->open[s->peer]--;
	node->pending--;
}

static void
hold_free(struct crpc_mesh_node *node, uint32_t i)
{
	node->hold[i].given = false;
	node->hold[i].uses = (node->hold[i].uses + 1) % HOLD_USES;
	node->hold[i].next = node->free_hold;
	node->free_hold = i;
	node->holds_free++;
}

/* ---- sending ---- */

static unsigned int
send_to(struct crpc_mesh_node *node, uint32_t peer, const void *elems, unsigned int n)
{
	/* A30 pairs with R30. */
	struct rte_ring *r = crpc_load_acquire(&node->mesh->inbox[peer]);

	return rte_ring_enqueue_burst_elem(r, elems, node->esize, n, NULL);
}

/* 0 or why node cannot send to peer; epoch is the peer's incarnation. */
static int
can_send(struct crpc_mesh_node *node, uint32_t peer, uint32_t len, uint32_t *epoch)
{
	if (peer >= node->mesh->attr.flux.nodes || peer == node->id)
		return -ENOTCONN;
	*epoch = crpc_load_acquire(&node->mesh->epoch[peer]);
	if (!(*epoch & 1))
		return -ENOTCONN;
	return len > node->msg_size ? -EMSGSIZE : 0;
}

/* Calls of one ring burst: slots first, given back for what does not fit. */
static uint32_t
call_some(struct crpc_mesh_node *node, uint32_t peer, uint32_t epoch, const char *msgs,
	uint32_t len, const uint64_t *cookies, uint32_t n)
{
	uint64_t buf[BURST * sizeof(struct mesh_elem) / 8];
	uint32_t slots[BURST], i, sent;
	struct mesh_slot *s;
	struct mesh_msg *m;

	for (i = 0; i < n; i++) {
		slots[i] = node->free_slot;
		s = &node->slot[slots[i]];
		node->free_slot = s->next;
		s->id += 1u << IDX_BITS;
		s->state = SLOT_OPEN;
		s->cookie = cookies[i];
		s->since_ns = NOT_STAMPED;
		s->peer = peer;
		s->peer_epoch = epoch;
		m = (struct mesh_msg *)(void *)((char *)buf + (size_t)i * node->esize);
		*m = (struct mesh_msg){
			s->id, (uint8_t)len, MESH_REQUEST, (uint8_t)node->id, node->life};
		memcpy(m + 1, msgs + (size_t)i * len, len);
	}
	node->open[peer] += n;
	node->pending += n;
	sent = send_to(node, peer, buf, n);
	while (i > sent)
		slot_free(node, slots[--i]);
	return sent;
}

uint32_t
crpc_mesh_call_burst(struct crpc_mesh_node *node, uint32_t peer, const void *msgs, uint32_t len,
	const uint64_t *cookies, uint32_t n)
{
	uint32_t done = 0, epoch, want, got;

	if (node->flux != NULL)
		return crpc_flux_call_burst(node->flux, peer, msgs, len, cookies, n);
	if (can_send(node, peer, len, &epoch) != 0)
		return 0;
	n = (uint32_t)crpc_min(n, node->window - node->open[peer]);
	while (done < n) {
		want = (uint32_t)crpc_min(n - done, BURST);
		got = call_some(node, peer, epoch, (const char *)msgs + (size_t)done * len, len,
			cookies + done, want);
		done += got;
		if (got < want)
			break;
	}
	return done;
}

int
crpc_mesh_call(
	struct crpc_mesh_node *node, uint32_t peer, const void *buf, uint32_t len, uint64_t cookie)
{
	uint32_t epoch;
	int rc;

	if (node->flux != NULL)
		return crpc_flux_call(node->flux, peer, buf, len, cookie);
	rc = can_send(node, peer, len, &epoch);
	if (rc != 0)
		return rc;
	return crpc_mesh_call_burst(node, peer, buf, len, &cookie, 1) == 1 ? 0 : -EAGAIN;
}

int
crpc_mesh_notify(struct crpc_mesh_node *node, uint32_t peer, const void *buf, uint32_t len)
{
	struct mesh_elem e;
	uint32_t epoch;
	int rc;

	if (node->flux != NULL)
		return crpc_flux_notify(node->flux, peer, buf, len);
	rc = can_send(node, peer, len, &epoch);
	if (rc != 0)
		return rc;
	e.m = (struct mesh_msg){0, (uint8_t)len, MESH_NOTIFY, (uint8_t)node->id, node->life};
	memcpy(e.data, buf, len);
	return send_to(node, peer, &e, 1) == 1 ? 0 : -EAGAIN;
}

/* True if the caller has left: the answer would reach its successor. A31 pairs with R31. */
static bool
caller_left(const struct crpc_mesh_node *node, const struct mesh_hold *h)
{
	return crpc_load_acquire(&node->mesh->epoch[h->m.from]) != h->epoch;
}

void
crpc_mesh_flush(struct crpc_mesh_node *node)
{
	struct list full;
	uint32_t i;

	if (node->flux != NULL) {
		crpc_flux_flush(node->flux);
		return;
	}
	/* Replies that found a full receiver: what still does waits, the others do not for it. */
	if (node->outbox.head == NONE)
		return;
	list_init(&full);
	while ((i = node->outbox.head) != NONE) {
		node->outbox.head = node->hold[i].next;
		if (caller_left(node, &node->hold[i]) ||
			send_to(node, node->hold[i].m.from,
				node->hold_buf + (size_t)i * node->esize, 1) == 1)
			hold_free(node, i);
		else
			hold_append(node, &full, i);
	}
	node->outbox = full;
}

/* ---- receiving ---- */

static void
take_request(struct crpc_mesh_node *node, const struct mesh_msg *m)
{
	uint32_t i = node->free_hold, epoch = crpc_load_acquire(&node->mesh->epoch[m->from]);

	node->free_hold = node->hold[i].next;
	node->hold[i].epoch = (epoch & 1) != 0 && (uint8_t)(epoch >> 1) == m->life ? epoch : 0;
	node->holds_free--;
	node->hold[i].m = *m;
	memcpy(node->hold_buf + (size_t)i * node->esize + sizeof(*m), m + 1, m->len);
	hold_append(node, &node->queued, i);
}

static void
take_response(struct crpc_mesh_node *node, const struct mesh_msg *m)
{
	uint32_t i = m->id & IDX_MASK;
	struct mesh_slot *s = i < node->nslots ? &node->slot[i] : NULL;

	if (s == NULL || s->id != m->id || s->peer != m->from || m->life != node->life)
		return; /* to an earlier incarnation of this node */
	if (s->state == SLOT_LATE) {
		slot_free(node, i);
	} else if (s->state == SLOT_OPEN) {
		s->state = SLOT_ANSWERED;
		s->len = m->len;
		memcpy(node->slot_buf + (size_t)i * node->esize, m + 1, m->len);
		slot_append(node, &node->answered, i);
	}
}

/* Empty the receiver, as far as there is room for what it may hold; bounded by its size. */
static void
pump(struct crpc_mesh_node *node)
{
	uint64_t buf[BURST * sizeof(struct mesh_elem) / 8];
	uint32_t rounds = rte_ring_get_size(node->inbox) / BURST + 1, n, i;
	const struct mesh_msg *m;

	crpc_mesh_flush(node);
	for (; rounds > 0 && node->holds_free >= BURST; rounds--) {
		n = rte_ring_dequeue_burst_elem(node->inbox, buf, node->esize, BURST, NULL);
		for (i = 0; i < n; i++) {
			m = (const struct mesh_msg *)(const void *)((const char *)buf +
				(size_t)i * node->esize);
			if (m->kind == MESH_RESPONSE)
				take_response(node, m);
			else
				take_request(node, m);
		}
		if (n < BURST)
			break;
	}
}

/*
 * Calls past their deadline, and calls to a peer that left before the `changes`: none of them has
 * an answer in the receiver, which was emptied since.
 */
static uint32_t
fail_calls(struct crpc_mesh_node *node, uint32_t changes, struct crpc_done *done, uint32_t n)
{
	uint64_t limit = node->mesh->attr.flux.deadline_ns;
	bool due = limit != 0 && node->now_ns >= node->next_scan_ns, gone;
	struct mesh_slot *s;
	uint32_t i, got = 0;

	if (!due && changes == node->changes)
		return 0;
	for (i = 0; i < node->nslots && got < n; i++) {
		s = &node->slot[i];
		if (s->state != SLOT_OPEN && s->state != SLOT_LATE)
			continue;
		if (due && s->since_ns == NOT_STAMPED)
			s->since_ns = node->now_ns;
		gone = crpc_load_relaxed(&node->mesh->epoch[s->peer]) != s->peer_epoch;
		if (s->state == SLOT_OPEN &&
				(gone || (due && node->now_ns - s->since_ns >= limit))) {
			done[got++] = (struct crpc_done){.cookie = s->cookie,
				.status = gone ? -ECONNRESET : -ETIMEDOUT};
			s->state = SLOT_LATE;
		}
		if (s->state == SLOT_LATE && gone)
			slot_free(node, i);
	}
	if (got < n) { /* else there may be more: go on at the next poll */
		node->changes = changes;
		node->next_scan_ns = node->now_ns + limit / 4;
	}
	return got;
}

uint32_t
crpc_mesh_poll(struct crpc_mesh_node *node, struct crpc_done *done, uint32_t n, uint64_t now_ns)
{
	uint32_t got, i, changes;
	struct mesh_slot *s;

	if (node->flux != NULL)
		return crpc_flux_poll(node->flux, done, n, now_ns);
	n = (uint32_t)crpc_min(n, CRPC_BURST_MAX);
	node->now_ns = now_ns;
	changes = crpc_load_acquire(&node->mesh->changes); /* A31 pairs with R31. */
	while ((i = node->given.head) != NONE) {
		node->given.head = node->slot[i].next;
		slot_free(node, i);
	}
	pump(node);
	/* Before the answers, which may take all the room at every poll. */
	got = fail_calls(node, changes, done, n);
	while (got < n && (i = node->answered.head) != NONE) {
		s = &node->slot[i];
		node->answered.head = s->next;
		done[got++] = (struct crpc_done){.cookie = s->cookie,
			.data = node->slot_buf + (size_t)i * node->esize, .len = s->len};
		slot_append(node, &node->given, i);
	}
	return got;
}

uint32_t
crpc_mesh_recv(struct crpc_mesh_node *node, struct crpc_req *req, uint32_t n)
{
	struct mesh_hold *h;
	uint32_t got = 0, i;

	if (node->flux != NULL)
		return crpc_flux_recv(node->flux, req, n);
	n = (uint32_t)crpc_min(n, CRPC_BURST_MAX);
	pump(node);
	while (got < n && (i = node->queued.head) != NONE) {
		h = &node->hold[i];
		node->queued.head = h->next;
		h->given = true;
		req[got++] = (struct crpc_req){.token = h->uses << HOLD_BITS | i,
			.data = node->hold_buf + (size_t)i * node->esize + sizeof(h->m),
			.len = h->m.len, .peer = h->m.from};
	}
	return got;
}

int
crpc_mesh_reply(struct crpc_mesh_node *node, uint64_t token, const void *buf, uint32_t len)
{
	uint32_t i = token & HOLD_MASK;
	struct mesh_hold *h;
	struct mesh_elem e;

	if (node->flux != NULL)
		return crpc_flux_reply(node->flux, token, buf, len);
	h = i < node->nholds ? &node->hold[i] : NULL;
	if (h == NULL || !h->given || h->uses != token >> HOLD_BITS)
		return -ENOENT;
	if (len > node->msg_size)
		return -EMSGSIZE;
	h->given = false;
	if (h->m.kind == MESH_NOTIFY) {
		hold_free(node, i);
		return 0;
	}
	if (caller_left(node, h)) {
		hold_free(node, i);
		return -ENOENT;
	}
	e.m = (struct mesh_msg){
		h->m.id, (uint8_t)len, MESH_RESPONSE, (uint8_t)node->id, h->m.life};
	if (len != 0)
		memcpy(e.data, buf, len);
	if (send_to(node, h->m.from, &e, 1) == 1) {
		hold_free(node, i);
	} else {
		memcpy(node->hold_buf + (size_t)i * node->esize, &e, sizeof(e.m) + len);
		hold_append(node, &node->outbox, i);
	}
	return 0;
}

int
crpc_mesh_release(struct crpc_mesh_node *node, uint64_t token)
{
	return node->flux != NULL ? crpc_flux_release(node->flux, token)
				  : crpc_mesh_reply(node, token, NULL, 0);
}

uint32_t
crpc_mesh_pending(const struct crpc_mesh_node *node)
{
	return node->flux != NULL ? crpc_flux_pending(node->flux, UINT32_MAX) : node->pending;
}
