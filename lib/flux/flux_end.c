/* SPDX-License-Identifier: BSD-3-Clause */
/* flux: how calls and requests end without a reply: fail, release, cancel, peers that left. */
#include <errno.h>

#include "flux_life.h"

#define FLUX_ERRNO(entry) ((entry) >> FLUX_SLOT_BITS & 0xfffu)

uint32_t
crpc_flux_cancel(struct crpc_flux_ep *ep, uint64_t now_ns, uint64_t cookie)
{
	crpc_owner_check(&ep->node->owner, "flux node");
	if (ep->ch == NULL)
		return 0;
	return __crpc_calls_cancel(&ep->ch->calls, &ep->node->sweep, cookie);
}

bool
__crpc_flux_take_other(struct crpc_flux_node *node, struct flux_chan *ch, struct crpc_done *done)
{
	struct flux_order *o = &ch->replies;
	uint32_t entry = o->entry[o->next++ & o->mask], slot = entry & FLUX_SLOT_MASK;
	struct rpc_call *call = rpc_call_at(&ch->calls, slot);

	if (entry == (slot | FLUX_FLAG)) {
		ch->calls.ended--;
		rpc_calls_free(&ch->calls, call);
		return false;
	}
	return rpc_calls_reply(
		&ch->calls, call, NULL, 0, -(int32_t)FLUX_ERRNO(entry), &node->stats.rpc, done);
}

uint16_t
__crpc_flux_reset(struct crpc_flux_node *node, bool forget, struct crpc_done *done, uint16_t n)
{
	uint16_t got = 0;
	struct flux_chan *ch;

	for (uint32_t i = 0; i < node->nout; i++) {
		ch = node->out[i];
		/* A21 pairs with R20: all replies that the server gave are published. */
		if (crpc_load_acquire(&ch->server_gone) == 0 || flux_look(&ch->replies, 1) != 0)
			continue;
		got += __crpc_calls_drop(
			&ch->calls, -ECONNRESET, &node->stats.rpc, done + got, (uint16_t)(n - got));
		if (forget && rpc_calls_in_use(&ch->calls) == 0)
			__crpc_flux_out_drop(node, i--);
	}
	return got;
}

/* Whether a token names an open request of a channel. */
static bool
holds(const struct flux_chan *ch, uint64_t token)
{
	return ch != NULL && ch->held[token & ch->held_mask] == token;
}

/* End a request of a caller that left. */
static int
end_departed(struct crpc_flux_node *node, uint64_t token, bool release)
{
	struct flux_chan **at = &node->departed, *ch;
	uint32_t slot = token & FLUX_SLOT_MASK;

	while ((ch = *at) != NULL && !holds(ch, token))
		at = &ch->next;
	if (ch == NULL)
		return -ENOENT;
	if (ch->room[slot] == 0 && !release)
		return -EOPNOTSUPP;
	ch->held[slot] = 0;
	node->stats.rpc.replies++;
	if (--ch->nheld == 0) {
		*at = ch->next;
		__crpc_flux_chan_put(ch);
	}
	return -ECONNRESET;
}

int
__crpc_flux_end(
	struct crpc_flux_node *node, uint64_t token, uint32_t entry, uint32_t len, bool release)
{
	struct flux_chan *ch = flux_chan_of(node, token);
	uint32_t slot = token & FLUX_SLOT_MASK;
	struct flux_order *o;
	bool note;

	crpc_owner_check(&node->owner, "flux node");
	if (!holds(ch, token))
		return end_departed(node, token, release);
	note = ch->room[slot] == 0;
	if (note && !release)
		return -EOPNOTSUPP;
	if (!note && len >= ch->room[slot])
		return -EMSGSIZE;
	ch->held[slot] = 0;
	node->stats.rpc.replies++;
	if (crpc_load_relaxed(&ch->caller_gone) != 0)
		return -ECONNRESET;
	o = &ch->answers;
	o->entry[o->next++ & o->mask] = slot | (note ? FLUX_FLAG : entry);
	if (o->next - o->known >= ch->lazy)
		flux_publish(o);
	return 0;
}

int
crpc_flux_fail(struct crpc_flux_node *node, uint64_t now_ns, uint64_t token, int32_t status)
{
	if (status > -1 || status < -CRPC_ERRNO_MAX)
		return -EINVAL;
	return __crpc_flux_end(
		node, token, FLUX_FLAG | (uint32_t)-status << FLUX_SLOT_BITS, 0, false);
}

int
crpc_flux_release(struct crpc_flux_node *node, uint64_t now_ns, uint64_t token)
{
	return __crpc_flux_end(node, token, 0, 0, true);
}
