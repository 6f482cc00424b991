/* SPDX-License-Identifier: BSD-3-Clause */
/* The client's datapath: call and poll. What a poll does now and then is ipc_client_watch.c. */
#include <errno.h>

#include "crpc_arena.h"
#include "ipc_client.h"
#include "rpc_copy.h"

/* ---- call ---- */

/*
 * The slot after the one in use is taken, or old: the next that is free. There are more slots than
 * depth, so there is one.
 */
crpc_noinline uint32_t
__crpc_ipc_step_over(struct crpc_ipc_client *c, uint32_t slot)
{
	struct ipc_call *call = &c->call[slot];

	for (; (call->state & IPC_CALL_OPEN) != 0; call = &c->call[slot]) {
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

crpc_noinline int
__crpc_ipc_refusal(struct crpc_ipc_client *c, uint32_t len, uint32_t resp_max)
{
	if (c->status != 0)
		return c->status;
	if (len > c->req_max || resp_max > c->resp_max)
		return -EMSGSIZE;
	c->stats.rpc.again++;
	return -EAGAIN;
}

static inline int
call_until(struct crpc_ipc_client *c, const void *buf, uint32_t len, uint32_t resp_max,
	uint64_t cookie, uint64_t deadline_ns)
{
	int rc = ipc_refuse(c, len, resp_max);
	bool lone = ipc_goes_alone(c, len);

	crpc_owner_check(&c->owner, "ipc client");
	if (crpc_unlikely(rc != 0))
		return rc;
	rpc_copy(lone ? c->lone->data : c->next->data, buf, len);
	ipc_send_call(c, len, lone, cookie, deadline_ns);
	return 0;
}

int
crpc_ipc_client_call(struct crpc_ipc_client *c, uint64_t now_ns, const void *buf, uint32_t len,
	uint32_t resp_max, uint64_t cookie)
{
	return call_until(c, buf, len, resp_max, cookie, rpc_deadline(now_ns, c->timeout_ns));
}

int
crpc_ipc_client_call_timed(struct crpc_ipc_client *c, uint64_t now_ns, const void *buf,
	uint32_t len, uint32_t resp_max, uint64_t cookie, uint64_t timeout_us)
{
	uint64_t timeout_ns = ipc_timeout_ns(timeout_us);

	__crpc_sweep_expect(&c->sweep, now_ns, timeout_ns);
	return call_until(c, buf, len, resp_max, cookie, rpc_deadline(now_ns, timeout_ns));
}

int
crpc_ipc_client_notify(struct crpc_ipc_client *c, uint64_t now_ns, const void *buf, uint32_t len)
{
	int rc = ipc_refuse(c, len, 0);

	crpc_owner_check(&c->owner, "ipc client");
	if (rc != 0)
		return rc;
	rpc_copy(c->next->data, buf, len);
	/* Its place comes back as that of a call that has ended. */
	c->call[c->next_slot].rpc.deadline_ns = RPC_ENDED;
	c->calls.ended++;
	ipc_send(c, len, IPC_CALL_OPEN | IPC_CALL_ONEWAY, IPC_SLOT_ONEWAY);
	ipc_ring_if_asleep(c);
	c->oneway++;
	c->stats.rpc.notifies++;
	return 0;
}

int
crpc_ipc_client_call_ref(struct crpc_ipc_client *c, uint64_t now_ns, uint64_t ref, const void *buf,
	uint32_t len, uint32_t resp_max, uint64_t cookie)
{
	int rc;

	crpc_owner_check(&c->owner, "ipc client");
	if (c->arena == NULL || c->server_member == 0)
		return -ENOTSUP;
	rc = len > UINT32_MAX - IPC_REF_LEN ? -EMSGSIZE
					    : ipc_refuse(c, len + IPC_REF_LEN, resp_max);
	if (rc != 0)
		return rc;
	if (crpc_arena_give(c->arena, ref, c->server_member) != 0)
		return -EINVAL;
	CRPC_CRASH_POINT("ipc.ref.1");
	memcpy(c->next->data, &ref, sizeof(ref));
	rpc_copy(c->next->data + IPC_REF_LEN, buf, len);
	c->refs[c->next_slot] = ref;
	rpc_calls_open(
		&c->calls, &c->call[c->next_slot].rpc, cookie, rpc_deadline(now_ns, c->timeout_ns));
	ipc_send(c, len + IPC_REF_LEN, IPC_CALL_OPEN | IPC_CALL_BLOCK, IPC_SLOT_BLOCK);
	ipc_ring_if_asleep(c);
	return 0;
}

/*
 * As ipc_send() of n requests; there is room. The loop works on copies of the counts, since the
 * compiler has to assume that a store to a slot changes them: bursts are 25 % faster.
 */
static inline void
put_burst(struct crpc_ipc_client *c, const uint8_t *m, uint32_t len, const uint64_t *cookies,
	uint32_t n, uint64_t deadline_ns)
{
	uint32_t seq = (uint32_t)c->req_seq, slot = c->next_slot, next, i;
	struct ipc_call *const all = c->call, *call;
	const uint32_t mask = c->req_mask, stride = c->req_slot;
	uint8_t *const req = c->req;
	struct ipc_slot *s = c->next;

	c->calls.open += n;
	for (i = 0; i < n; i++, seq++, m += len, slot = next) {
		next = (slot + 1) & mask;
		call = &all[slot];
		call->rpc.cookie = cookies[i];
		call->rpc.deadline_ns = deadline_ns;
		call->state = IPC_CALL_OPEN;
		if (crpc_unlikely(all[next].state != 0)) {
			c->req_seq = seq; /* its low half is all that step_over reads */
			next = __crpc_ipc_step_over(c, next);
		}
		rpc_copy(s->data, m, len);
		CRPC_CRASH_POINT("ipc.burst.1");
		crpc_store_release(&s->word, ipc_word(seq, len, next)); /* C1, R1 */
		CRPC_CRASH_POINT("ipc.burst.2");
		s = ipc_slot_at(req, next, stride);
	}
	c->next = s;
	c->next_slot = slot;
}

uint16_t
crpc_ipc_client_call_burst(struct crpc_ipc_client *c, uint64_t now_ns, const void *msgs,
	uint32_t len, uint32_t resp_max, const uint64_t *cookies, uint16_t n)
{
	uint64_t deadline_ns = rpc_deadline(now_ns, c->timeout_ns), seq = c->req_seq;
	const uint8_t *m = msgs;
	uint32_t room;

	if (n == 1)
		return call_until(c, m, len, resp_max, cookies[0], deadline_ns) == 0;
	crpc_owner_check(&c->owner, "ipc client");
	if (crpc_unlikely(len > c->req_max || resp_max > c->resp_max))
		return 0;
	room = c->room - crpc_min(c->room, ipc_in_use(c));
	if (crpc_unlikely(n > room)) {
		c->stats.rpc.again++;
		n = (uint16_t)room;
	}
	put_burst(c, m, len, cookies, n, deadline_ns);
	c->req_seq = seq + n;
	ipc_ring_if_asleep(c);
	return n;
}

/* ---- poll ---- */

/* A response without bytes: the status that the server gave. */
static bool
read_status(struct crpc_ipc_client *c, uint32_t size, struct crpc_done *done)
{
	if (size <= c->resp_max)
		return true;
	if (size <= IPC_SIZE_STATUS || size > IPC_SIZE_STATUS + CRPC_ERRNO_MAX)
		return false;
	*done = (struct crpc_done){.status = -(int32_t)(size - IPC_SIZE_STATUS)};
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
	struct crpc_done answer = {.data = data, .len = size};
	bool block = (field & IPC_SLOT_BLOCK) != 0, open, got;
	uint32_t slot = field & ~IPC_SLOT_BLOCK;
	struct ipc_call *call;

	if (slot > c->req_mask + 1)
		return -1;
	call = &c->call[slot];
	open = call->rpc.deadline_ns < RPC_CANCELED;
	if ((call->state & IPC_CALL_OPEN) == 0 || !read_status(c, size, &answer))
		return -1;
	if (block &&
		(c->arena == NULL || answer.data == NULL || size < IPC_REF_LEN ||
			!__crpc_ipc_block_answer(c, &answer, open)))
		return -1;
	if ((call->state & IPC_CALL_BLOCK) != 0 && answer.status != 0)
		__crpc_ipc_block_back(c, slot);
	if (slot > c->req_mask) {
		c->aside &= IPC_ASIDE_HELD;
		/* Its answer had no room there: the next calls save the detour. */
		if (data != c->lone_data)
			c->lone_end = 0;
	}
	c->stats.failed += open && answer.status != 0;
	if ((call->state & IPC_CALL_ONEWAY) != 0) {
		c->oneway--;
		c->stats.rpc.late--;
	}
	got = rpc_calls_complete(
		&c->calls, &call->rpc, answer.data, answer.len, answer.status, &c->stats.rpc, done);
	call->rpc.deadline_ns = RPC_FREE;
	call->state &= IPC_CALL_OLD;
	return got;
}

/* As take_other(), for the answers that come every time. */
static inline int
take_one(struct crpc_ipc_client *c, uint32_t slot, uint32_t size, const void *data,
		struct crpc_done *done)
{
	struct ipc_call *call = &c->call[slot];

	if (crpc_unlikely(slot > c->req_mask || size > c->resp_max || !ipc_is_plain(call)))
		return take_other(c, slot, size, data, done);
	ipc_take(c, call, size, data, done);
	return 1;
}

/*
 * Take answers from the run that the response `word` at the head is, up to n, from the one at
 * run_at on, which is how far earlier polls came. Returns how many completions, or -1 with what
 * take_other() returns.
 *
 * Everything that the server may have written is checked: the run lies within the ring, its answers
 * in the run. It may change while it is read; each slot is read once.
 */
static crpc_noinline int
poll_run(struct crpc_ipc_client *c, uint64_t word, struct crpc_done *done, uint32_t n)
{
	uint32_t k = ipc_word_slot(word) & IPC_SLOT_MASK, size = ipc_word_size(word);
	uint32_t place = (uint32_t)c->resp_seq & c->resp_mask, i = c->run_at, got = 0;
	const _Atomic uint16_t *slots = (const _Atomic uint16_t *)(const void *)c->head->data;
	const uint8_t *data = (const uint8_t *)c->head + ipc_run_data(k, size);
	int rc;

	if (k < IPC_RUN_MIN || k > IPC_RUN_MAX || k > c->resp_mask + 1 - place || k <= i ||
		size > IPC_RUN_SIZE || size > c->resp_max || c->resp_slot != CRPC_CACHE_LINE)
		return -1;
	for (data += i * ipc_run_stride(size); i < k && got < n;
		i++, data += ipc_run_stride(size)) {
		rc = take_one(c, crpc_load_relaxed(&slots[i]), size, data, &done[got]);
		if (crpc_unlikely(rc < 0))
			return -1;
		got += (uint32_t)rc;
	}
	c->run_at = i < k ? i : 0;
	if (i == k)
		ipc_step_head(c, k);
	return (int)got;
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
	if (crpc_unlikely(size > c->lone_resp_max || !ipc_is_plain(c->lone_call)))
		return lone_other(c, (uint32_t)size, done);
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

/* Answers, from wherever they are. */
static inline uint32_t
take_answers(struct crpc_ipc_client *c, struct crpc_done *done, uint32_t n)
{
	uint32_t got = 0;
	int rc;

	if (crpc_unlikely(c->n_held != 0))
		__crpc_ipc_free_held(c);
	if ((c->aside & IPC_ASIDE_LONE) != 0 && n != 0) {
		rc = poll_lone(c, done);
		if (crpc_unlikely(rc < 0))
			__crpc_ipc_bad_answer(c);
		else
			got = (uint32_t)rc;
		/* With no other call open it would be there, or, too long for that, in the ring. */
	}
	return got + poll_ring(c, done + got, n - got);
}

/* poll(), when calls may be due or are canceled: see rpc_calls.h. */
static crpc_noinline uint16_t
poll_and_sweep(struct crpc_ipc_client *c, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	uint16_t k = rpc_sweep_turn(&c->sweep, now_ns, false, done, n);
	uint32_t got = take_answers(c, done + k, n - k);

	c->sweep.taken += got;
	k = (uint16_t)(k + got);
	return (uint16_t)(k +
		rpc_sweep_turn(&c->sweep, now_ns, k < n, done + k, (uint16_t)(n - k)));
}

uint16_t
crpc_ipc_client_poll(struct crpc_ipc_client *c, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	uint16_t got;

	crpc_owner_check(&c->owner, "ipc client");
	n = (uint16_t)crpc_min(n, CRPC_BURST_MAX);
	if (crpc_unlikely(c->sweep.active || now_ns >= c->sweep.next_ns)) {
		got = poll_and_sweep(c, now_ns, done, n);
	} else {
		got = (uint16_t)take_answers(c, done, n);
		c->sweep.taken += got;
	}
	if (crpc_unlikely(--c->countdown == 0))
		return __crpc_ipc_look_around(c, now_ns, done, n, got);
	return got;
}

uint32_t
crpc_ipc_client_cancel(struct crpc_ipc_client *c, uint64_t now_ns, uint64_t cookie)
{
	crpc_owner_check(&c->owner, "ipc client");
	return __crpc_calls_cancel(&c->calls, &c->sweep, cookie);
}

void
crpc_ipc_client_flush(struct crpc_ipc_client *c, uint64_t now_ns)
{
	crpc_owner_check(&c->owner, "ipc client");
	__crpc_ipc_announce(c);
}
