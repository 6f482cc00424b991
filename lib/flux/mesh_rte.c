/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mesh over one many-producer rte_ring per node.
 *
 * A reply's bytes are copied to the slot of its call and wait there for poll. A hold is a request
 * or notification of a peer; its bytes stay there from arrival to reply, and a reply that finds the
 * caller's receiver full waits there to be sent.
 *
 *     slot: see rpc_calls.h; two windows per peer, first in, first out, as in flux_path.c
 *     hold: free -> queued -> given -> free
 *                             given -> outbox -> free
 */
#include <errno.h>
#include <stdlib.h>

/* rte_ring with the ordering on its accesses, not by fences: the thread sanitizer follows it. */
#ifndef RTE_USE_C11_MEM_MODEL
#define RTE_USE_C11_MEM_MODEL 1
#endif
#include <rte_ring.h>
#include <rte_ring_elem.h>

#include "crpc_log.h"
#include "crpc_owner.h"
#include "mesh_priv.h"
#include "rpc_calls.h"
#include "rpc_copy.h"

#define BURST 32u
/* A token is a hold and how often it was used: 2^43 uses until one is repeated. */
#define HOLD_BITS 21
#define HOLD_MASK ((1u << HOLD_BITS) - 1)
#define HOLD_USES (UINT64_C(1) << (64 - HOLD_BITS))
#define NONE      UINT32_MAX
_Static_assert(2 * CRPC_FLUX_WINDOW_MAX * (CRPC_FLUX_NODES_MAX - 1) + BURST <= 1u << HOLD_BITS,
	"a token has bits for a hold");
_Static_assert(CRPC_FLUX_NODES_MAX <= 256, "from is a byte");

enum mesh_kind { MESH_NOTIFY, MESH_REQUEST, MESH_RESPONSE };

/* What goes through a ring: this, then the payload. */
struct mesh_msg {
	uint32_t id;
	uint32_t to;    /* epoch of the receiver: one that has joined again drops the message */
	uint32_t epoch; /* of the sender */
	uint8_t len;
	uint8_t kind;
	uint8_t from;
};
_Static_assert(CRPC_FLUX_MSG_MAX <= UINT8_MAX, "len is a byte");

/* A message of any size that fits. */
struct mesh_elem {
	struct mesh_msg m;
	char data[CRPC_FLUX_MSG_MAX];
};

struct mesh_call {
	struct rpc_call rpc;
	uint16_t len;
	uint8_t peer;
	struct mesh_call *next; /* of those that are answered */
};

struct mesh_hold {
	uint64_t uses;
	uint32_t next;
	bool given;
	struct mesh_msg m; /* the request's; once answered, with the reply's len */
};

/* Holds in order of arrival. */
struct list {
	uint32_t head;
	uint32_t tail;
};

struct rte_node;

/* The calls to one peer. Its endpoint. */
struct rte_peer {
	struct rte_node *node;
	uint32_t id;
	uint32_t epoch;    /* that the calls were made to */
	uint32_t answered; /* calls whose reply waits for poll */
	bool left;         /* it was seen to have left that epoch */
	struct rpc_calls calls;
	char *buf; /* replies, by slot */
};

struct rte_node {
	struct crpc_mesh *mesh;
	uint32_t id;
	uint32_t nholds;
	uint32_t holds_free;
	uint32_t changes;  /* of the mesh, as last seen */
	bool reset;        /* calls to peers that left are open */
	uint32_t reset_at; /* position of the receiver behind the last replies of these peers */
	uint32_t epoch;    /* its own */
	uint32_t esize;    /* bytes of a message in a ring */
	uint32_t stride;   /* bytes from one slot's or hold's payload to the next */
	struct crpc_owner owner;
	struct rte_ring *inbox;
	struct rpc_sweep sweep;
	struct crpc_rpc_counts counts;
	struct rte_peer *peer[CRPC_FLUX_NODES_MAX];
	struct rpc_calls *calls[CRPC_FLUX_NODES_MAX];
	struct mesh_call *answered, **answered_last;
	struct mesh_hold *hold;
	char *hold_buf;
	uint32_t free_hold;
	struct list queued;
	struct list outbox;
};

/* Nodes and endpoints as mesh_ops passes them. */
static struct rte_node *
node_of(struct crpc_flux_node *handle)
{
	return (struct rte_node *)(void *)handle;
}

static struct rte_peer *
peer_of(struct crpc_flux_ep *handle)
{
	return (struct rte_peer *)(void *)handle;
}

/* ---- join, connect, leave ---- */

/* A ring with room for a window of requests and of responses per peer. */
static struct rte_ring *
inbox_create(const struct crpc_mesh *mesh, uint32_t esize)
{
	static const unsigned int flags[CRPC_MESH_BACKENDS] = {
		[CRPC_MESH_RTE_RING] = RING_F_SC_DEQ,
		[CRPC_MESH_RTE_RING_RTS] = RING_F_MP_RTS_ENQ | RING_F_SC_DEQ,
		[CRPC_MESH_RTE_RING_HTS] = RING_F_MP_HTS_ENQ | RING_F_SC_DEQ,
	};
	uint32_t count = (uint32_t)crpc_pow2_ceil(2ull * mesh->attr.window * mesh->attr.nodes);
	ssize_t len = rte_ring_get_memsize_elem(esize, count);
	struct rte_ring *r;

	if (len < 0)
		return NULL;
	r = aligned_alloc(CRPC_CACHE_GUARD, crpc_align_up((size_t)len, CRPC_CACHE_GUARD));
	if (r != NULL && rte_ring_init(r, "crpc_mesh", count, flags[mesh->backend]) != 0) {
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
node_free(struct rte_node *node)
{
	uint32_t i;

	for (i = 0; i < CRPC_FLUX_NODES_MAX; i++)
		free(node->peer[i]);
	free(node->hold);
	free(node->hold_buf);
	free(node);
}

/* Requests of each peer, and as many notifications. */
static int
holds_create(struct rte_node *node, const struct crpc_flux_attr *attr)
{
	uint32_t i;

	node->nholds = 2 * attr->window * (attr->nodes - 1) + BURST;
	node->hold = calloc(node->nholds, sizeof(*node->hold));
	node->hold_buf = calloc(node->nholds, node->stride);
	if (node->hold == NULL || node->hold_buf == NULL)
		return -ENOMEM;
	for (i = 0; i < node->nholds; i++)
		node->hold[i].next = i + 1 < node->nholds ? i + 1 : NONE;
	node->holds_free = node->nholds;
	list_init(&node->queued);
	list_init(&node->outbox);
	return 0;
}

/* Under the lock. */
static int
join(struct rte_node *node)
{
	struct crpc_mesh *mesh = node->mesh;
	uint32_t epoch;
	int rc;

	epoch = crpc_load_relaxed(&mesh->epoch[node->id]);
	if (epoch & 1)
		return -EBUSY;
	rc = holds_create(node, &mesh->attr);
	if (rc != 0)
		return rc;
	node->inbox = crpc_load_relaxed(&mesh->inbox[node->id]);
	if (node->inbox == NULL) {
		node->inbox = inbox_create(mesh, node->esize);
		if (node->inbox == NULL)
			return -ENOMEM;
		/* R30: the ring before the pointer. Pairs with A30. */
		crpc_store_release(&mesh->inbox[node->id], node->inbox);
	}
	node->epoch = epoch + 1;
	node->changes = crpc_load_acquire(&mesh->changes);
	/* R31: the inbox and the changes of this join before its epoch. Pairs with A31. */
	crpc_store_release(&mesh->epoch[node->id], node->epoch);
	return 0;
}

static struct crpc_flux_node *
rte_join(struct crpc_mesh *mesh, uint32_t id)
{
	struct rte_node *node;
	int rc = -ENOMEM;

	if (id >= mesh->attr.nodes) {
		crpc_err("no node %u: this mesh has 0 to %u", id, mesh->attr.nodes - 1);
		errno = EINVAL;
		return NULL;
	}
	node = calloc(1, sizeof(*node));
	if (node != NULL) {
		node->mesh = mesh;
		node->id = id;
		node->stride = (uint32_t)crpc_align_up(mesh->attr.msg_size, 8);
		node->esize = (uint32_t)sizeof(struct mesh_msg) + node->stride;
		node->answered_last = &node->answered;
		node->sweep = (struct rpc_sweep){
			.table = node->calls, .ntables = mesh->attr.nodes, .counts = &node->counts};
		__crpc_sweep_expect(&node->sweep, 0, mesh->attr.deadline_ns);
		pthread_mutex_lock(&mesh->lock);
		rc = join(node);
		pthread_mutex_unlock(&mesh->lock);
	}
	if (rc == 0)
		return (struct crpc_flux_node *)(void *)node;
	crpc_err("node %u cannot join: %s", id,
		rc == -EBUSY ? "it has joined already" : "no memory");
	if (node != NULL)
		node_free(node);
	errno = -rc;
	return NULL;
}

static int
rte_connect(struct crpc_flux_node *handle, uint32_t id, struct crpc_flux_ep **ep)
{
	struct rte_node *node = node_of(handle);
	const struct crpc_flux_attr *attr = &node->mesh->attr;
	uint32_t nslots = 2 * attr->window;
	size_t calls = (nslots + 1) * sizeof(struct mesh_call);
	struct rte_peer *peer;

	if (id >= attr->nodes || id == node->id)
		return crpc_fail(-EINVAL,
			"node %u cannot connect to %u: peers are 0 to %u without itself", node->id,
			id, attr->nodes - 1);
	/* A31 pairs with R31: the inbox of the node that joined. */
	if (!(crpc_load_acquire(&node->mesh->epoch[id]) & 1))
		return -ENOTCONN;
	peer = node->peer[id];
	if (peer == NULL) {
		peer = calloc(1, sizeof(*peer) + calls + (nslots + 1) * (size_t)node->stride);
		if (peer == NULL)
			return -ENOMEM;
		peer->node = node;
		peer->id = id;
		__crpc_calls_init(
			&peer->calls, peer + 1, nslots, sizeof(struct mesh_call), attr->start);
		peer->calls.last = rpc_call_at(&peer->calls, nslots);
		peer->buf = (char *)(peer + 1) + calls;
		node->peer[id] = peer;
		node->calls[id] = &peer->calls;
	}
	*ep = (struct crpc_flux_ep *)(void *)peer;
	return 0;
}

/* ---- sending ---- */

static void
list_append(struct rte_node *node, struct list *l, uint32_t i)
{
	node->hold[i].next = NONE;
	if (l->head == NONE)
		l->head = i;
	else
		node->hold[l->tail].next = i;
	l->tail = i;
}

static void
hold_free(struct rte_node *node, uint32_t i)
{
	node->hold[i].given = false;
	node->hold[i].uses = (node->hold[i].uses + 1) % HOLD_USES;
	node->hold[i].next = node->free_hold;
	node->free_hold = i;
	node->holds_free++;
}

static void *
hold_data(const struct rte_node *node, uint32_t i)
{
	return node->hold_buf + (size_t)i * node->stride;
}

static struct mesh_msg
msg_of(const struct rte_node *node, enum mesh_kind kind, uint32_t id, uint32_t to, uint32_t len)
{
	return (struct mesh_msg){
		id, to, node->epoch, (uint8_t)len, (uint8_t)kind, (uint8_t)node->id};
}

static unsigned int
send_to(struct rte_node *node, uint32_t peer, const void *elems, unsigned int n)
{
	/* A30 pairs with R30. */
	struct rte_ring *r = crpc_load_acquire(&node->mesh->inbox[peer]);

	return rte_ring_enqueue_burst_elem(r, elems, node->esize, n, NULL);
}

static uint32_t
pending(const struct rte_peer *peer)
{
	return peer->calls.open + peer->calls.ended;
}

/* 0 or why no message of this size can be sent to a peer. */
static int
check(struct rte_peer *peer, uint32_t len)
{
	const struct crpc_mesh *mesh = peer->node->mesh;
	uint32_t epoch = crpc_load_acquire(&mesh->epoch[peer->id]); /* A31 pairs with R31. */

	crpc_owner_check(&peer->node->owner, "mesh node");
	if (!(epoch & 1))
		return -ECONNRESET;
	if (len > mesh->attr.msg_size)
		return -EMSGSIZE;
	if (pending(peer) == 0) {
		peer->epoch = epoch;
		peer->left = false;
	}
	/* Calls to an earlier incarnation are to be polled. */
	return peer->epoch == epoch ? 0 : -EAGAIN;
}

/*
 * Put back the slot that was taken last. It is the next to be taken: behind the others it would
 * come round too early to a slot whose reply the last poll gave out.
 */
static void
untake(struct rpc_calls *calls, struct rpc_call *call)
{
	call->deadline_ns = RPC_FREE;
	call->next = calls->free;
	calls->free = call;
	calls->open--;
}

/* Calls of one ring burst: slots first, put back for what does not fit. */
static uint32_t
call_some(struct rte_peer *peer, const char *msgs, uint32_t len, const uint64_t *cookies,
	uint64_t deadline_ns, uint32_t n)
{
	struct mesh_elem buf[BURST];
	struct rte_node *node = peer->node;
	struct rpc_call *call[BURST];
	struct mesh_msg *m;
	uint32_t i, sent;

	for (i = 0; i < n; i++) {
		call[i] = rpc_calls_take(&peer->calls, cookies[i], deadline_ns);
		m = (struct mesh_msg *)(void *)((char *)buf + (size_t)i * node->esize);
		*m = msg_of(node, MESH_REQUEST, call[i]->id, peer->epoch, len);
		rpc_copy(m + 1, msgs + (size_t)i * len, len);
	}
	sent = send_to(node, peer->id, buf, n);
	while (i > sent)
		untake(&peer->calls, call[--i]);
	return sent;
}

static uint16_t
rte_call_burst(struct crpc_flux_ep *ep, uint64_t now_ns, const void *msgs, uint32_t len,
	uint32_t resp_max, const uint64_t *cookies, uint16_t n)
{
	struct rte_peer *peer = peer_of(ep);
	const struct crpc_flux_attr *attr = &peer->node->mesh->attr;
	uint64_t deadline_ns = rpc_deadline(now_ns, attr->deadline_ns);
	uint32_t done = 0, want, got;

	if (resp_max > attr->msg_size || check(peer, len) != 0)
		return 0;
	n = (uint16_t)crpc_min(n, attr->window - pending(peer));
	while (done < n) {
		want = (uint32_t)crpc_min(n - done, BURST);
		got = call_some(peer, (const char *)msgs + (size_t)done * len, len, cookies + done,
			deadline_ns, want);
		done += got;
		if (got < want)
			break;
	}
	return (uint16_t)done;
}

static int
rte_call(struct crpc_flux_ep *ep, uint64_t now_ns, const void *buf, uint32_t len, uint32_t resp_max,
	uint64_t cookie)
{
	struct rte_peer *peer = peer_of(ep);
	int rc = check(peer, len > resp_max ? len : resp_max);

	if (rc != 0)
		return rc;
	return rte_call_burst(ep, now_ns, buf, len, resp_max, &cookie, 1) == 1 ? 0 : -EAGAIN;
}

static int
rte_notify(struct crpc_flux_ep *ep, uint64_t now_ns, const void *buf, uint32_t len)
{
	struct rte_peer *peer = peer_of(ep);
	struct rte_node *node = peer->node;
	struct mesh_elem e;
	int rc = check(peer, len);

	if (rc != 0)
		return rc;
	e.m = msg_of(node, MESH_NOTIFY, 0, peer->epoch, len);
	memcpy(e.data, buf, len);
	return send_to(node, peer->id, &e, 1) == 1 ? 0 : -EAGAIN;
}

/* True if the caller has left: the reply would reach its successor. A31 pairs with R31. */
static bool
caller_left(const struct rte_node *node, const struct mesh_hold *h)
{
	return crpc_load_acquire(&node->mesh->epoch[h->m.from]) != h->m.epoch;
}

/* Send the reply to a request: false if the receiver is full. */
static bool
send_reply(struct rte_node *node, const struct mesh_hold *h, const void *buf)
{
	struct mesh_elem e;

	e.m = msg_of(node, MESH_RESPONSE, h->m.id, h->m.epoch, h->m.len);
	rpc_copy(e.data, buf, h->m.len);
	return send_to(node, h->m.from, &e, 1) == 1;
}

/* Send replies that found a full receiver. One that is still full delays no other. */
static void
rte_flush(struct crpc_flux_node *handle, uint64_t now_ns)
{
	struct rte_node *node = node_of(handle);
	struct list full;
	uint32_t i;

	if (node->outbox.head == NONE)
		return;
	list_init(&full);
	while ((i = node->outbox.head) != NONE) {
		node->outbox.head = node->hold[i].next;
		if (caller_left(node, &node->hold[i]) ||
			send_reply(node, &node->hold[i], hold_data(node, i)))
			hold_free(node, i);
		else
			list_append(node, &full, i);
	}
	node->outbox = full;
}

/* ---- receiving ---- */

static void
take_request(struct rte_node *node, const struct mesh_msg *m)
{
	uint32_t i = node->free_hold;

	node->free_hold = node->hold[i].next;
	node->holds_free--;
	node->hold[i].m = *m;
	memcpy(hold_data(node, i), m + 1, m->len);
	list_append(node, &node->queued, i);
}

static void
take_response(struct rte_node *node, const struct mesh_msg *m)
{
	struct rte_peer *peer = node->peer[m->from];
	struct rpc_call *rpc;
	struct mesh_call *call;

	rpc = rpc_calls_find(&peer->calls, m->id);
	if (rpc == NULL)
		return;
	if (rpc->deadline_ns == RPC_ENDED) {
		rpc_calls_reply(&peer->calls, rpc, NULL, 0, 0, &node->counts, NULL); /* late */
		return;
	}
	rpc->deadline_ns = RPC_NEVER;
	call = (struct mesh_call *)rpc;
	call->len = m->len;
	call->peer = m->from;
	memcpy(peer->buf + (size_t)rpc_call_index(&peer->calls, m->id) * node->stride, m + 1,
		m->len);
	call->next = NULL;
	*node->answered_last = call;
	node->answered_last = &call->next;
	peer->answered++;
}

/* Empty the receiver, as far as there is room for what it may hold; bounded by its size. */
static void
pump(struct rte_node *node)
{
	struct mesh_elem buf[BURST];
	uint32_t rounds = rte_ring_get_size(node->inbox) / BURST + 1, esize = node->esize, n, i;
	const struct mesh_msg *m;

	crpc_owner_check(&node->owner, "mesh node");
	rte_flush((struct crpc_flux_node *)(void *)node, 0);
	for (; rounds > 0 && node->holds_free >= BURST; rounds--) {
		n = rte_ring_dequeue_burst_elem(node->inbox, buf, esize, BURST, NULL);
		for (i = 0; i < n; i++) {
			m = (const struct mesh_msg *)(const void *)((const char *)buf +
				(size_t)i * esize);
			if (m->to != node->epoch)
				continue; /* sent to an earlier incarnation */
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
 * Mark the peers that have left with calls open. All that they sent lies before the position which
 * producers had reserved by now. RTS may publish it later, when another producer is done.
 */
static void
mark_left(struct rte_node *node)
{
	const struct rte_ring *r = node->inbox;
	const uintptr_t head = node->mesh->backend == CRPC_MESH_RTE_RING_RTS
		? (uintptr_t)&r->rts_prod.head.val.pos
		: (uintptr_t)&r->prod.head;
	struct rte_peer *peer;
	uint32_t i;

	for (i = 0; i < node->mesh->attr.nodes; i++) {
		peer = node->peer[i];
		if (peer == NULL || pending(peer) == 0)
			continue;
		/* A31 pairs with R31. */
		peer->left = crpc_load_acquire(&node->mesh->epoch[i]) != peer->epoch;
		node->reset |= peer->left;
	}
	node->reset_at = crpc_load_relaxed((const _Atomic uint32_t *)head);
}

/* Complete calls to peers that left, once all that they sent was received and polled. */
static uint16_t
reset_calls(struct rte_node *node, struct crpc_done *done, uint16_t n)
{
	struct rte_peer *peer;
	uint16_t got = 0;
	uint32_t i;

	if ((int32_t)(node->inbox->cons.head - node->reset_at) < 0)
		return 0;
	node->reset = false;
	for (i = 0; i < node->mesh->attr.nodes; i++) {
		peer = node->peer[i];
		if (peer == NULL || !peer->left)
			continue;
		if (peer->answered == 0)
			got += __crpc_calls_drop(&peer->calls, -ECONNRESET, &node->counts,
				done + got, (uint16_t)(n - got));
		peer->left = pending(peer) != 0;
		node->reset |= peer->left;
	}
	return got;
}

static uint16_t
rte_poll(struct crpc_flux_node *handle, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	struct rte_node *node = node_of(handle);
	uint32_t changes = crpc_load_acquire(&node->mesh->changes); /* A31 pairs with R31. */
	struct mesh_call *call;
	struct rte_peer *peer;
	uint32_t slot;
	uint16_t got;

	n = (uint16_t)crpc_min(n, CRPC_BURST_MAX);
	if (changes != node->changes)
		mark_left(node);
	node->changes = changes;
	pump(node);
	/* Before the replies, which may take all the room in every poll. */
	got = rpc_sweep_turn(&node->sweep, now_ns, true, done, n);
	if (node->reset)
		got += reset_calls(node, done + got, (uint16_t)(n - got));
	while (got < n && (call = node->answered) != NULL) {
		node->answered = call->next;
		if (call->next == NULL)
			node->answered_last = &node->answered;
		peer = node->peer[call->peer];
		peer->answered--;
		slot = rpc_call_index(&peer->calls, call->rpc.id);
		got += rpc_calls_reply(&peer->calls, &call->rpc,
			peer->buf + (size_t)slot * node->stride, call->len, 0, &node->counts,
			done + got);
	}
	return got;
}

static uint16_t
rte_recv(struct crpc_flux_node *handle, uint64_t now_ns, struct crpc_req *req, uint16_t n)
{
	struct rte_node *node = node_of(handle);
	struct mesh_hold *h;
	uint16_t got = 0;
	uint32_t i;

	n = (uint16_t)crpc_min(n, CRPC_BURST_MAX);
	pump(node);
	while (got < n && (i = node->queued.head) != NONE) {
		h = &node->hold[i];
		node->queued.head = h->next;
		h->given = true;
		req[got++] = (struct crpc_req){.token = h->uses << HOLD_BITS | i,
			.data = hold_data(node, i),
			.len = h->m.len,
			.peer = h->m.from};
	}
	return got;
}

/* End a request with a reply, or a notification. */
static int
end_hold(struct rte_node *node, uint64_t token, const void *buf, uint32_t len, bool release)
{
	uint32_t i = token & HOLD_MASK;
	struct mesh_hold *h = i < node->nholds ? &node->hold[i] : NULL;

	crpc_owner_check(&node->owner, "mesh node");
	if (h == NULL || !h->given || h->uses != token >> HOLD_BITS)
		return -ENOENT;
	if (len > node->mesh->attr.msg_size)
		return -EMSGSIZE;
	if (h->m.kind == MESH_NOTIFY && !release)
		return -EOPNOTSUPP;
	h->given = false;
	if (h->m.kind == MESH_NOTIFY || caller_left(node, h)) {
		hold_free(node, i);
		return h->m.kind == MESH_NOTIFY ? 0 : -ECONNRESET;
	}
	h->m.len = (uint8_t)len;
	if (send_reply(node, h, buf)) {
		hold_free(node, i);
	} else {
		rpc_copy(hold_data(node, i), buf, len);
		list_append(node, &node->outbox, i);
	}
	return 0;
}

static int
rte_reply(struct crpc_flux_node *handle, uint64_t now_ns, uint64_t token, const void *buf,
	uint32_t len)
{
	return end_hold(node_of(handle), token, buf, len, false);
}

static int
rte_release(struct crpc_flux_node *handle, uint64_t now_ns, uint64_t token)
{
	return end_hold(node_of(handle), token, NULL, 0, true);
}

static uint32_t
rte_pending(const struct crpc_flux_node *handle, uint32_t id)
{
	const struct rte_node *node = (const struct rte_node *)(const void *)handle;
	uint32_t i, n = 0;

	for (i = 0; i < CRPC_FLUX_NODES_MAX; i++)
		if (node->peer[i] != NULL && (id == UINT32_MAX || id == i))
			n += pending(node->peer[i]);
	return n;
}

static void
rte_leave(struct crpc_flux_node *handle)
{
	struct rte_node *node = node_of(handle);
	struct crpc_mesh *mesh = node->mesh;

	node->owner = (struct crpc_owner){NULL};
	rte_flush(handle, 0);
	pthread_mutex_lock(&mesh->lock);
	/* R31: all that the node sent, then its leaving. Pairs with A31. */
	crpc_store_release(&mesh->epoch[node->id], crpc_load_relaxed(&mesh->epoch[node->id]) + 1);
	crpc_store_release(&mesh->changes, crpc_load_relaxed(&mesh->changes) + 1);
	pthread_mutex_unlock(&mesh->lock);
	node_free(node);
}

const struct mesh_ops __crpc_mesh_rte_ops = {
	.join = rte_join,
	.leave = rte_leave,
	.connect = rte_connect,
	.notify = rte_notify,
	.call_burst = rte_call_burst,
	.call = rte_call,
	.poll = rte_poll,
	.recv = rte_recv,
	.reply = rte_reply,
	.release = rte_release,
	.flush = rte_flush,
	.pending = rte_pending,
};
