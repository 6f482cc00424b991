/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs of answers: see ipc_run.h. Bursts of 32 take 10 to 33 % less time by them. */
#include "ipc_run.h"
#include "ipc_client.h"
#include "ipc_server.h"
#include "rpc_copy.h"

/* ---- the server makes them ---- */

/*
 * End the requests, from the first on, that are open plain ones of client p and allow len bytes,
 * and list their slots. Returns how many.
 */
static inline uint32_t
end_plain(const struct crpc_ipc_server *s, struct ipc_peer *p, const struct crpc_req *req,
	uint32_t len, uint16_t *slots, uint32_t n)
{
	const uint64_t odd = IPC_TOKEN_FREE | IPC_TOKEN_FLAGS;
	uint64_t *const tokens = p->tokens, token;
	const uint32_t mask = s->req_mask;
	uint32_t i, slot;

	/* Whose a token is stands in it, and in p's table stand p's; none of the lone slot's. */
	for (i = 0; i < n; i++) {
		token = req[i].token;
		slot = (uint32_t)token & mask;
		if (tokens[slot] != token || (token & odd) != 0 || len > ipc_allowed(s, p, token))
			break;
		tokens[slot] = token | IPC_TOKEN_FREE;
		slots[i] = (uint16_t)slot;
	}
	p->open = (uint16_t)(p->open - i);
	return i;
}

/* Undo the end of k requests: they are not answered by a run. */
static crpc_noinline uint32_t
reopen_plain(
	const struct crpc_ipc_server *s, struct ipc_peer *p, const struct crpc_req *req, uint32_t k)
{
	for (uint32_t i = 0; i < k; i++)
		p->tokens[(uint32_t)req[i].token & s->req_mask] = req[i].token;
	p->open = (uint16_t)(p->open + k);
	return 0;
}

/* True if the start of a line, from number `line` of k on, could be taken for a word some day. */
static inline bool
looks_like_word(
	const struct ipc_slot *head, uint32_t place, uint32_t line, uint32_t k, uint32_t mask)
{
	uint32_t word;

	for (; line < k; line++) {
		memcpy(&word, (const uint8_t *)head + line * CRPC_CACHE_LINE, sizeof(word));
		if (((word ^ (place + line)) & mask) == 0)
			return true;
	}
	return false;
}

/*
 * Publish the answers of k requests of client p that were ended, whose slots stand at the place of
 * the next response, as one run: see ipc_run.h. False: that cannot be done with these
 * answers.
 */
static inline bool
put_run(struct ipc_peer *p, uint32_t mask, const uint8_t *msgs, uint32_t k, uint32_t size)
{
	uint32_t place = (uint32_t)p->resp_seq & mask, from = ipc_run_data(k, size);
	uint32_t line = (from + CRPC_CACHE_LINE - 1) / CRPC_CACHE_LINE;
	struct ipc_slot *head = ipc_slot_at(p->resp, place, CRPC_CACHE_LINE);
	uint8_t *to = (uint8_t *)head + from;

	for (uint32_t i = 0; i < k; i++, to += ipc_run_stride(size), msgs += size)
		rpc_copy(to, msgs, size);
	if (crpc_unlikely(looks_like_word(head, place, line, k, mask))) {
		for (uint32_t i = line; i < k; i++)
			ipc_spoil(ipc_slot_at(p->resp, place + i, CRPC_CACHE_LINE), place + i);
		return false;
	}
	/* R2, as in ipc_publish() */
	crpc_store_release(&head->word, ipc_word((uint32_t)p->resp_seq, size, IPC_SLOT_RUN | k));
	p->resp_seq += k;
	return true;
}

/* Answer as many as one run takes; 0: the first has to be answered alone. */
static inline uint32_t
reply_some(struct crpc_ipc_server *s, const struct crpc_req *req, const uint8_t *msgs, uint32_t len,
	uint32_t n)
{
	uint32_t id = (uint32_t)(req->token >> IPC_TOKEN_ID_SHIFT) - 1, place, k;
	struct ipc_slot *head;
	bool done = false;
	struct ipc_peer *p;

	if (crpc_unlikely(id >= s->lay.max_clients || len >= s->run_end))
		return 0;
	p = &s->peers[id];
	place = (uint32_t)p->resp_seq & s->resp_mask;
	k = s->resp_mask + 1 - place; /* to the end of the ring */
	k = k < IPC_RUN_MAX ? k : IPC_RUN_MAX;
	k = k < n ? k : n;
	if (k < IPC_RUN_MIN || (p->resp_seq & (IPC_RUN_EPOCH - 1)) <= s->resp_mask)
		return 0;
	head = ipc_slot_at(p->resp, place, CRPC_CACHE_LINE);
	k = end_plain(s, p, req, len, (uint16_t *)(void *)head->data, k);
	if (k >= IPC_RUN_MIN)
		done = put_run(p, s->resp_mask, msgs, k, len);
	return crpc_likely(done) ? k : reopen_plain(s, p, req, k);
}

uint16_t
crpc_ipc_server_reply_burst(struct crpc_ipc_server *s, uint64_t now_ns, const struct crpc_req *req,
	const void *msgs, uint32_t len, uint16_t n)
{
	const uint8_t *m = msgs;
	uint32_t done = 0, run;

	crpc_owner_check(&s->owner, "ipc server");
	while (done < n) {
		run = reply_some(s, req + done, m + (size_t)done * len, len, n - done);
		if (run == 0) {
			if (crpc_ipc_server_reply(
				    s, now_ns, req[done].token, m + (size_t)done * len, len) != 0)
				break;
			run = 1;
		}
		done += run;
	}
	return (uint16_t)done;
}

/* ---- the client reads them ---- */

/* Take up to n answers to plain calls, the first of which is at data. Returns how many. */
static inline uint32_t
take_plain(struct crpc_ipc_client *c, const _Atomic uint16_t *slots, uint32_t size,
	const uint8_t *data, struct crpc_done *done, uint32_t n)
{
	struct ipc_call *const all = c->call, *call;
	const uint32_t mask = c->req_mask;
	uint32_t i, slot;

	for (i = 0; i < n; i++, data += ipc_run_stride(size)) {
		slot = crpc_load_relaxed(&slots[i]);
		call = &all[slot];
		if (crpc_unlikely(slot > mask || size > call->resp_max || !ipc_is_plain(call)))
			break;
		done[i] = (struct crpc_done){call->rpc.cookie, data, size, 0};
		call->rpc.deadline_ns = RPC_FREE;
		call->state &= IPC_CALL_OLD;
	}
	c->calls.open -= i;
	return i;
}

/*
 * Take answers from the run that the response `word` at the head is, up to n, from the one at
 * run_at on, which is how far earlier polls came. Returns how many completions, or -1 with what
 * ipc_take_any() returns.
 *
 * Everything that the server may have written is checked: the run lies within the ring, its answers
 * in the run. It may change while it is read: what is used is what was checked.
 */
crpc_noinline int
__crpc_ipc_poll_run(struct crpc_ipc_client *c, uint64_t word, struct crpc_done *done, uint32_t n)
{
	uint32_t k = ipc_word_slot(word) & IPC_SLOT_MASK, size = ipc_word_size(word);
	uint32_t place = (uint32_t)c->resp_seq & c->resp_mask, i = c->run_at, got = 0, m;
	const _Atomic uint16_t *slots = (const _Atomic uint16_t *)(const void *)c->head->data;
	const uint8_t *data = (const uint8_t *)c->head + ipc_run_data(k, size);
	int rc;

	if (k < IPC_RUN_MIN || k > IPC_RUN_MAX || k > c->resp_mask + 1 - place || k <= i ||
		size > IPC_RUN_SIZE || c->resp_slot != CRPC_CACHE_LINE)
		return -1;
	for (; i < k && got < n; i++) {
		m = take_plain(c, slots + i, size, data + i * ipc_run_stride(size), &done[got],
			(uint32_t)crpc_min(k - i, n - got));
		got += m;
		i += m;
		if (crpc_likely(i == k || got == n))
			break;
		rc = ipc_take_any(c, crpc_load_relaxed(&slots[i]), size,
			data + i * ipc_run_stride(size), &done[got]);
		/* Those before it are complete: the next turn meets it again, as its first. */
		if (rc < 0 && got != 0)
			break;
		if (rc < 0)
			return -1;
		got += (uint32_t)rc;
	}
	c->run_at = i < k ? i : 0;
	if (i == k)
		ipc_step_head(c, k);
	return (int)got;
}
