/* SPDX-License-Identifier: BSD-3-Clause */
/* The client's datapath: call and poll. What a poll does now and then is ipc_client_watch.c. */
#include <errno.h>
#include <sched.h>

#include "crpc_arena.h"
#include "ipc_client_watch.h"

/* ---- call ---- */

/*
 * The slot after the one in use is taken, or old: the next that is free. There are more slots than
 * depth, so there is one.
 */
crpc_noinline uint32_t
__crpc_ipc_step_over(struct crpc_ipc_client *c, uint32_t slot)
{
	struct ipc_call *call = &c->calls[slot];

	for (; (call->state & IPC_CALL_OPEN) != 0; call = &c->calls[slot]) {
		call->state |= IPC_CALL_OLD;
		slot = (slot + 1) & c->req_mask;
	}
	if (call->state == IPC_CALL_OLD) {
		call->state = 0;
		CRPC_CRASH_POINT("ipc.promise.1");
		ipc_spoil(ipc_slot_at(c->req, slot, c->req_slot), (uint32_t)c->req_seq + 1);
	}
	return slot;
}

/* Put one request into the promised slot, and promise the next. There is room. */
static inline void
put(struct crpc_ipc_client *c, const void *buf, uint32_t len, uint64_t cookie, uint64_t state,
		uint32_t flags, bool small)
{
	/* Of a block the reference is there already. */
	uint32_t skip = (flags & IPC_SLOT_BLOCK) != 0 ? IPC_REF_LEN : 0;

	if (small)
		ipc_copy_small(c->next->data + skip, buf, len);
	else if (len != 0)
		memcpy(c->next->data + skip, buf, len);
	ipc_send(c, len + skip, cookie, state, flags);
}

/* Put one short request into the lone slot. No place is in use. */
static inline void
put_lone(struct crpc_ipc_client *c, const void *buf, uint32_t len, uint64_t cookie, uint64_t state)
{
	ipc_copy_small(c->lone->data, buf, len);
	ipc_send_lone(c, len, cookie, state);
}

/* 0 if a request of len bytes can be taken now. */
static int
why_not(struct crpc_ipc_client *c, uint32_t len)
{
	if (c->status != 0)
		return c->status;
	if (len > c->lay.req_max)
		return -EMSGSIZE;
	if (c->open >= c->room) {
		c->stats.again++;
		return -EAGAIN;
	}
	return 0;
}

static crpc_noinline int
call_otherwise(struct crpc_ipc_client *c, const void *buf, uint32_t len, uint64_t cookie,
		uint64_t state, uint32_t flags)
{
	int rc = why_not(c, len);

	if (rc != 0)
		return rc;
	if (c->open == 0 && len < c->lone_end && flags == 0)
		put_lone(c, buf, len, cookie, state);
	else
		put(c, buf, len, cookie, state, flags, false);
	ipc_ring_if_asleep(c);
	return 0;
}

/* call(), when others are open. */
static crpc_noinline int
call_plain(struct crpc_ipc_client *c, const void *buf, uint32_t len, uint64_t cookie)
{
	if (crpc_unlikely(c->open >= c->room || len > c->small_max))
		return call_otherwise(c, buf, len, cookie, IPC_CALL_OPEN, 0);
	put(c, buf, len, cookie, IPC_CALL_OPEN, 0, true);
	ipc_ring_if_asleep(c);
	return 0;
}

/* The ways are functions of their own, so that neither saves registers for the other. */
int
crpc_ipc_client_call(struct crpc_ipc_client *c, const void *buf, uint32_t len, uint64_t cookie)
{
	IPC_OWNER_CHECK(c);
	if (c->open != 0 || len >= c->lone_end)
		return call_plain(c, buf, len, cookie);
	put_lone(c, buf, len, cookie, IPC_CALL_OPEN);
	ipc_ring_if_asleep(c);
	return 0;
}

/*
 * As put() of each of n small requests; there is room for all. len and stride are constants where
 * it is instantiated for speed.
 */
static inline void
put_burst(struct crpc_ipc_client *c, const uint8_t *msgs, const uint64_t *cookies, uint32_t n,
		uint32_t len, uint32_t stride)
{
	uint32_t seq = (uint32_t)c->req_seq, next = c->next_slot, i;
	struct ipc_call *const calls = c->calls, *call = &calls[next], *after;
	const uint32_t mask = c->req_mask;
	uint8_t *const req = c->req;
	struct ipc_slot *s = c->next;

	for (i = 0; i < n; i++, seq++, msgs += len) {
		next = (next + 1) & mask;
		after = &calls[next];
		call->cookie = cookies[i];
		call->state = IPC_CALL_OPEN;
		if (crpc_unlikely(after->state != 0)) {
			c->req_seq = seq; /* its low half is all that step_over reads */
			next = __crpc_ipc_step_over(c, next);
			after = &calls[next];
		}
		ipc_copy_small(s->data, msgs, len);
		CRPC_CRASH_POINT("ipc.burst.1");
		crpc_store_release(&s->word, ipc_word(seq, len, next)); /* C1, R1 */
		CRPC_CRASH_POINT("ipc.burst.2");
		call = after;
		s = ipc_slot_at(req, next, stride);
	}
	c->next = s;
	c->next_slot = next;
}

uint16_t
crpc_ipc_client_call_burst(struct crpc_ipc_client *c, const void *msgs, uint32_t len,
		const uint64_t *cookies, uint16_t n)
{
	const uint8_t *m = msgs;
	uint64_t seq = c->req_seq;
	uint32_t room, i;

	if (n == 1)
		return crpc_ipc_client_call(c, msgs, len, cookies[0]) == 0;
	IPC_OWNER_CHECK(c);
	if (crpc_unlikely(len > c->small_max)) {
		for (i = 0; i < n; i++)
			if (call_otherwise(c, m + (size_t)i * len, len, cookies[i], IPC_CALL_OPEN,
					    0) != 0)
				break;
		return (uint16_t)i;
	}
	room = c->open < c->room ? c->room - c->open : 0;
	if (crpc_unlikely(n > room)) {
		c->stats.again++;
		n = (uint16_t)room;
	}
	if (len == 32 && c->req_slot == CRPC_CACHE_LINE)
		put_burst(c, m, cookies, n, 32, CRPC_CACHE_LINE);
	else
		put_burst(c, m, cookies, n, len, c->req_slot);
	c->req_seq = seq + n;
	c->open += n;
	ipc_ring_if_asleep(c);
	return n;
}

int
crpc_ipc_client_call_timed(struct crpc_ipc_client *c, const void *buf, uint32_t len,
		uint64_t cookie, uint64_t timeout_us)
{
	uint32_t slot = c->next_slot;
	bool lone = c->open == 0 && len < c->lone_end;
	int rc;

	IPC_OWNER_CHECK(c);
	if (lone)
		slot = c->req_mask + 1;
	rc = call_otherwise(c, buf, len, cookie, IPC_CALL_OPEN | IPC_CALL_STAMPED, 0);
	if (rc != 0)
		return rc;
	c->deadline[slot] = timeout_us == 0 ? UINT64_MAX
					    : ipc_deadline(__crpc_ipc_now_ns(), timeout_us);
	c->deadlines = true;
	if (lone)
		c->aside |= IPC_ASIDE_ODD;
	return 0;
}

int
crpc_ipc_client_notify(struct crpc_ipc_client *c, const void *buf, uint32_t len)
{
	int rc;

	IPC_OWNER_CHECK(c);
	rc = call_otherwise(
			c, buf, len, 0, IPC_CALL_OPEN | IPC_CALL_ONEWAY, IPC_SLOT_ONEWAY);
	if (rc != 0)
		return rc;
	c->oneway++;
	c->stats.notifies++;
	return 0;
}

int
crpc_ipc_client_call_ref(struct crpc_ipc_client *c, uint64_t ref, const void *buf, uint32_t len,
		uint64_t cookie)
{
	int rc;

	IPC_OWNER_CHECK(c);
	if (c->arena == NULL || c->server_member == 0)
		return -ENOTSUP;
	if (len > UINT32_MAX - IPC_REF_LEN)
		return -EMSGSIZE;
	rc = why_not(c, len + IPC_REF_LEN);
	if (rc != 0)
		return rc;
	if (crpc_arena_give(c->arena, ref, c->server_member) != 0)
		return -EINVAL;
	CRPC_CRASH_POINT("ipc.ref.1");
	memcpy(c->next->data, &ref, sizeof(ref));
	c->refs[c->next_slot] = ref;
	put(c, buf, len, cookie, IPC_CALL_OPEN | IPC_CALL_BLOCK, IPC_SLOT_BLOCK, false);
	ipc_ring_if_asleep(c);
	return 0;
}

/* ---- poll ---- */

/* A response without bytes: the status that the server gave. */
static bool
read_status(struct crpc_ipc_client *c, uint32_t size, struct crpc_done *done)
{
	if (size <= c->resp_max)
		return true;
	if (size <= IPC_SIZE_STATUS || size > IPC_SIZE_STATUS + IPC_ERRNO_MAX)
		return false;
	done->data = NULL;
	done->len = 0;
	done->status = -(int32_t)(size - IPC_SIZE_STATUS);
	c->stats.failed++;
	return true;
}

/*
 * The answer to a call that is not just open, or that failed, or that comes with a block. 1: *done
 * is set; 0: it only gave a slot back; -1: it answers no open call, or has an impossible size.
 */
static crpc_noinline int
take_other(struct crpc_ipc_client *c, uint32_t field, uint32_t size, const void *data,
		struct crpc_done *done)
{
	bool block = (field & IPC_SLOT_BLOCK) != 0, wanted;
	uint32_t slot = field & ~IPC_SLOT_BLOCK;
	struct ipc_call *call;
	uint64_t state;

	if (slot > c->req_mask + 1)
		return -1;
	call = &c->calls[slot];
	state = call->state;
	wanted = (state & (IPC_CALL_ONEWAY | IPC_CALL_EXPIRED)) == 0;
	*done = (struct crpc_done){.cookie = call->cookie, .data = data, .len = size};
	if ((state & IPC_CALL_OPEN) == 0 || !read_status(c, size, done))
		return -1;
	if (block && (c->arena == NULL || done->data == NULL || size < IPC_REF_LEN ||
				     !__crpc_ipc_block_answer(c, done, wanted)))
		return -1;
	if ((state & IPC_CALL_BLOCK) != 0 && done->status != 0)
		__crpc_ipc_block_back(c, slot);
	call->state = state & IPC_CALL_OLD;
	c->open--;
	if (slot > c->req_mask) {
		c->aside &= IPC_ASIDE_STAY;
		/* Its answer had no room there: the next calls save the detour. */
		if (data != c->lone_data)
			c->lone_end = 0;
	}
	if (wanted)
		return 1;
	c->stats.failed -= done->status != 0;
	c->swallowed++;
	c->oneway -= (state & IPC_CALL_ONEWAY) != 0;
	c->expired -= (state & IPC_CALL_EXPIRED) != 0;
	c->stats.late += (state & IPC_CALL_EXPIRED) != 0;
	return 0;
}

/* As take_other(), for the answers that come every time. */
static inline int
take_one(struct crpc_ipc_client *c, uint32_t slot, uint32_t size, const void *data,
		struct crpc_done *done)
{
	struct ipc_call *call = &c->calls[slot];

	if (crpc_unlikely(slot > c->req_mask || size > c->resp_max ||
			    call->state != IPC_CALL_OPEN))
		return take_other(c, slot, size, data, done);
	ipc_take(c, call, size, data, done);
	return 1;
}

/*
 * Take up to n answers of a run that are plain, as take_one(). size is a constant where it is
 * instantiated for speed. Returns how many.
 */
static inline uint32_t
take_plain(struct crpc_ipc_client *c, const _Atomic uint16_t *slots, uint32_t size,
		const uint8_t *data, struct crpc_done *done, uint32_t n)
{
	struct ipc_call *const calls = c->calls, *call;
	const uint32_t mask = c->req_mask;
	uint32_t i, slot;

	for (i = 0; i < n; i++, data += ipc_run_stride(size)) {
		slot = crpc_load_relaxed(&slots[i]);
		call = &calls[slot];
		if (crpc_unlikely(slot > mask || call->state != IPC_CALL_OPEN))
			break;
		call->state = 0;
		done[i].cookie = call->cookie;
		done[i].data = data;
		done[i].len = size;
		done[i].status = 0;
	}
	c->open -= i;
	return i;
}

/* Where the answers of the run of k at the head begin. */
static inline const uint8_t *
run_data(const struct crpc_ipc_client *c, uint32_t k, uint32_t size)
{
	return (const uint8_t *)c->head + ipc_run_data(k, size);
}

static inline const _Atomic uint16_t *
run_slots(const struct crpc_ipc_client *c)
{
	return (const _Atomic uint16_t *)(const void *)c->head->data;
}

/*
 * Take up to n answers from the run of k at the head, from the one at run_at on, which is how far
 * earlier polls came. Returns how many completions, or -1 with what take_other() says.
 */
static crpc_noinline int
poll_run_rest(struct crpc_ipc_client *c, uint32_t k, uint32_t size, struct crpc_done *done,
		uint32_t n)
{
	const _Atomic uint16_t *slots = run_slots(c);
	const uint8_t *data = run_data(c, k, size);
	uint32_t i = c->run_at, got = 0, m;
	int rc;

	while (i < k && got < n) {
		m = k - i < n - got ? k - i : n - got;
		m = take_plain(c, slots + i, size, data + i * ipc_run_stride(size), &done[got], m);
		got += m;
		i += m;
		if (i == k || got == n)
			break;
		rc = take_other(c, crpc_load_relaxed(&slots[i]), size,
				data + i * ipc_run_stride(size), &done[got]);
		if (rc < 0)
			return -1;
		got += (uint32_t)rc;
		i++;
	}
	c->run_at = i < k ? i : 0;
	if (i == k)
		ipc_step_head(c, k);
	return (int)got;
}

/* poll_run() took m plain ones, and here is one that is not. */
static crpc_noinline int
poll_run_odd(struct crpc_ipc_client *c, uint32_t k, uint32_t m, struct crpc_done *done, uint32_t n)
{
	int rc;

	c->run_at = m;
	rc = poll_run_rest(c, k, IPC_RUN_SIZE, done + m, n - m);
	return rc < 0 ? rc : rc + (int)m;
}

/*
 * Take answers from the run that the response `word` at the head is, up to n: as poll_run_rest().
 * Most often all of them are plain, and there is room.
 *
 * Everything that the server may have written is checked: the run lies within the ring, its answers
 * in the run. It may change while it is read; each slot is read once.
 */
static crpc_noinline int
poll_run(struct crpc_ipc_client *c, uint64_t word, struct crpc_done *done, uint32_t n)
{
	uint32_t k = ipc_word_slot(word) & IPC_SLOT_MASK, size = ipc_word_size(word), m;
	uint32_t place = (uint32_t)c->resp_seq & c->resp_mask;

	if (k < IPC_RUN_MIN || k > IPC_RUN_MAX || k > c->resp_mask + 1 - place || k <= c->run_at ||
			size > IPC_RUN_SIZE || size > c->resp_max ||
			c->resp_slot != CRPC_CACHE_LINE)
		return -1;
	if (size != IPC_RUN_SIZE || k > n || c->run_at != 0)
		return poll_run_rest(c, k, size, done, n);
	m = take_plain(c, run_slots(c), IPC_RUN_SIZE, run_data(c, k, IPC_RUN_SIZE), done, k);
	if (crpc_unlikely(m != k))
		return poll_run_odd(c, k, m, done, n);
	ipc_step_head(c, k);
	return (int)k;
}

/* The answer to the call that was alone is a status, or late, or too long: as take_other(). */
static crpc_noinline int
lone_other(struct crpc_ipc_client *c, uint32_t size, struct crpc_done *done)
{
	if (size > c->lone_resp_max && size <= c->resp_max)
		return -1;
	memcpy(c->lone_data, c->lone->data, CRPC_IPC_SMALL);
	return take_other(c, c->req_mask + 1, size, c->lone_data, done);
}

/* The answer to the call that was alone, if it is there: as take_one(). */
static inline int
poll_lone(struct crpc_ipc_client *c, struct crpc_done *done)
{
	uint64_t size = ipc_lone_size(c);

	if (size > IPC_SIZE_MAX)
		return 0;
	if (crpc_unlikely(size > c->lone_resp_max || c->lone_call->state != IPC_CALL_OPEN)) {
		c->lone_done++;
		return lone_other(c, (uint32_t)size, done);
	}
	ipc_take_lone(c, (uint32_t)size, done);
	return 1;
}

bool
__crpc_ipc_has_answer(const struct crpc_ipc_client *c)
{
	return ipc_ring_has_answer(c) ||
	       ((c->aside & IPC_ASIDE_LONE) != 0 && ipc_lone_size(c) <= IPC_SIZE_MAX);
}

/* Take answers from the ring, up to n. Returns how many completions. */
static inline uint32_t
poll_ring(struct crpc_ipc_client *c, struct crpc_done *done, uint32_t n)
{
	uint32_t slot, got = 0;
	uint64_t word;
	int rc;

	while (got < n) {
		/* A2 pairs with R2 in ipc_publish(). Copied once; then only the copy is used. */
		word = crpc_load_acquire(&c->head->word);
		if (ipc_word_seq(word) != (uint32_t)c->resp_seq)
			break;
		slot = ipc_word_slot(word);
		if ((slot & IPC_SLOT_RUN) != 0) {
			rc = poll_run(c, word, &done[got], n - got);
		} else {
			rc = take_one(c, slot, ipc_word_size(word), c->head->data, &done[got]);
			ipc_step_head(c, 1);
		}
		if (crpc_unlikely(rc < 0)) {
			__crpc_ipc_bad_answer(c);
			break;
		}
		got += (uint32_t)rc;
	}
	return got;
}

/* poll(), when a call is in the lone slot and others are not, or blocks are held, or calls due. */
static crpc_noinline uint16_t
poll_all(struct crpc_ipc_client *c, struct crpc_done *done, uint16_t n)
{
	uint32_t got = 0;
	int rc;

	if (crpc_unlikely(c->n_held != 0))
		__crpc_ipc_free_held(c);
	if (crpc_unlikely((c->aside & IPC_ASIDE_DUE) != 0))
		got = __crpc_ipc_expire(c, 0, done, n);
	if ((c->aside & IPC_ASIDE_LONE) != 0 && got < n) {
		rc = poll_lone(c, done + got);
		if (crpc_unlikely(rc < 0))
			__crpc_ipc_bad_answer(c);
		else
			got += (uint32_t)rc;
	}
	got += poll_ring(c, done + got, n - got);
	if (crpc_unlikely(--c->countdown == 0))
		return __crpc_ipc_look_around(c, done, n, (uint16_t)got);
	return (uint16_t)got;
}

/* poll(), when no call is in the lone slot. */
static crpc_noinline uint16_t
poll_plain(struct crpc_ipc_client *c, struct crpc_done *done, uint16_t n)
{
	uint32_t got = poll_ring(c, done, n);

	if (crpc_unlikely(--c->countdown == 0))
		return __crpc_ipc_look_around(c, done, n, (uint16_t)got);
	return (uint16_t)got;
}

uint16_t
crpc_ipc_client_poll(struct crpc_ipc_client *c, struct crpc_done *done, uint16_t n)
{
	uint64_t size;
	uint16_t got = 0;

	IPC_OWNER_CHECK(c);
	n = (uint16_t)crpc_min(n, CRPC_BURST_MAX);
	if (c->aside == 0)
		return poll_plain(c, done, n);
	if (c->aside != IPC_ASIDE_LONE || c->open != 1 || n == 0)
		return poll_all(c, done, n);
	/* Its answer is in its slot or, too long for that, in the ring. */
	size = ipc_lone_size(c);
	if (size <= c->lone_resp_max) {
		ipc_take_lone(c, (uint32_t)size, done);
		got = 1;
	} else if (size <= IPC_SIZE_MAX || ipc_ring_has_answer(c)) {
		return poll_all(c, done, n);
	}
	if (crpc_unlikely(--c->countdown == 0))
		return __crpc_ipc_look_around(c, done, n, got);
	return got;
}

int
crpc_ipc_client_call_sync(struct crpc_ipc_client *c, const void *buf, uint32_t len, void *resp,
		uint32_t cap, uint64_t timeout_us)
{
	struct crpc_done done;
	uint32_t spins = 0;
	int rc;

	if (crpc_ipc_client_open(c) != 0)
		return -EBUSY;
	rc = timeout_us == 0 ? crpc_ipc_client_call(c, buf, len, 0)
			     : crpc_ipc_client_call_timed(c, buf, len, 0, timeout_us);
	if (rc != 0)
		return rc;
	while (crpc_ipc_client_poll(c, &done, 1) == 0)
		if (++spins >= IPC_SYNC_SPINS)
			sched_yield();
	if (done.status != 0)
		return done.status;
	if (done.len > cap)
		return -EMSGSIZE;
	if (done.len != 0)
		memcpy(resp, done.data, done.len);
	return (int)done.len;
}

void
crpc_ipc_client_flush(struct crpc_ipc_client *c)
{
	IPC_OWNER_CHECK(c);
	__crpc_ipc_announce(c);
}

/* ---- getters ---- */

int
crpc_ipc_client_status(const struct crpc_ipc_client *c)
{
	return c->status;
}

uint32_t
crpc_ipc_client_depth(const struct crpc_ipc_client *c)
{
	return c->lay.depth;
}

uint32_t
crpc_ipc_client_open(const struct crpc_ipc_client *c)
{
	return c->open - c->oneway - c->expired;
}

uint32_t
crpc_ipc_client_req_max(const struct crpc_ipc_client *c)
{
	return c->lay.req_max;
}

uint32_t
crpc_ipc_client_resp_max(const struct crpc_ipc_client *c)
{
	return c->lay.resp_max;
}

uint32_t
crpc_ipc_client_id(const struct crpc_ipc_client *c)
{
	return c->id;
}

uid_t
crpc_ipc_client_owner_uid(const struct crpc_ipc_client *c)
{
	return crpc_shm_owner_uid(c->seg);
}

void
crpc_ipc_client_stats(const struct crpc_ipc_client *c, struct crpc_ipc_client_stats *stats)
{
	*stats = c->stats;
	stats->calls = c->req_seq - 1 - c->stats.notifies;
	stats->completed += c->resp_seq - 1 + c->lone_done - c->swallowed;
}
