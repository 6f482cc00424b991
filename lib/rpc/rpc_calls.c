/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc_calls.h"

#include <errno.h>

void
__crpc_calls_init(
	struct rpc_calls *calls, void *mem, uint32_t size, uint32_t stride, uint32_t first_use)
{
	struct rpc_call *call;

	*calls = (struct rpc_calls){.slot = mem,
		.stride = stride,
		.mask = (uint32_t)crpc_pow2_ceil(size + 1) - 1,
		.size = size,
		.drop_at = 1};
	rpc_call_at(calls, 0)->deadline_ns = RPC_FREE;
	for (uint32_t i = size; i != 0; i--) {
		call = rpc_call_at(calls, i);
		call->id = first_use * (calls->mask + 1) + i;
		call->deadline_ns = RPC_FREE;
		call->next = calls->free;
		calls->free = call;
	}
}

/* Complete an open call without a reply. Its slot is in use until that comes. */
static void
end_early(struct rpc_calls *calls, struct rpc_call *call, int32_t status,
	struct crpc_rpc_counts *counts, struct crpc_done *done)
{
	if (call->deadline_ns == RPC_CANCELED)
		status = -ECANCELED;
	*done = (struct crpc_done){.cookie = call->cookie, .status = status};
	counts->timeouts += status == -ETIMEDOUT;
	counts->cancels += status == -ECANCELED;
	counts->resets += status == -ECONNRESET;
	call->deadline_ns = RPC_ENDED;
	calls->open--;
	calls->ended++;
}

bool
__crpc_calls_late(struct rpc_calls *calls, struct rpc_call *call, struct crpc_rpc_counts *counts,
	struct crpc_done *done)
{
	bool canceled = call->deadline_ns == RPC_CANCELED;

	if (canceled)
		end_early(calls, call, -ECANCELED, counts, done);
	else
		counts->late++;
	calls->ended--;
	return canceled;
}

uint16_t
__crpc_calls_drop(struct rpc_calls *calls, int32_t status, struct crpc_rpc_counts *counts,
	struct crpc_done *done, uint16_t n)
{
	struct rpc_call *call;
	uint16_t k = 0;

	for (; rpc_calls_in_use(calls) != 0; calls->drop_at++) {
		call = rpc_call_at(calls, calls->drop_at);
		if (call->deadline_ns == RPC_FREE)
			continue;
		if (rpc_call_is_open(call)) {
			if (k == n)
				return k;
			end_early(calls, call, status, counts, &done[k++]);
		}
		if (calls->drop != NULL)
			calls->drop(calls, call);
		calls->ended--;
		rpc_calls_free(calls, call);
	}
	calls->drop_at = 1;
	return k;
}

uint32_t
__crpc_calls_cancel(struct rpc_calls *calls, struct rpc_sweep *sweep, uint64_t cookie)
{
	struct rpc_call *call;
	uint32_t found = 0;

	for (uint32_t i = 1; i <= calls->size; i++) {
		call = rpc_call_at(calls, i);
		if (call->deadline_ns >= RPC_CANCELED || call->cookie != cookie)
			continue;
		call->deadline_ns = RPC_CANCELED;
		found++;
	}
	if (found != 0) {
		sweep->canceled = true;
		sweep->next_ns = 0;
	}
	return found;
}

void
__crpc_sweep_init(struct rpc_sweep *sweep, struct rpc_calls **table, uint32_t ntables,
	struct crpc_rpc_counts *counts, uint64_t timeout_ns)
{
	*sweep = (struct rpc_sweep){
		.table = table, .ntables = ntables, .counts = counts, .next_ns = UINT64_MAX};
	__crpc_sweep_expect(sweep, 0, timeout_ns);
}

void
__crpc_sweep_expect(struct rpc_sweep *sweep, uint64_t now_ns, uint64_t timeout_ns)
{
	uint64_t period_ns = crpc_max(timeout_ns / 8, 1);

	if (timeout_ns == 0 || (sweep->period_ns != 0 && period_ns >= sweep->period_ns))
		return;
	sweep->period_ns = period_ns;
	sweep->next_ns = crpc_min(sweep->next_ns, now_ns + period_ns);
}

static void
sweep_begin(struct rpc_sweep *sweep, uint64_t now_ns)
{
	uint64_t tables = 0, open_max = 0;
	uint32_t open;

	for (uint32_t i = 0; i < sweep->ntables; i++) {
		open = sweep->table[i] != NULL ? sweep->table[i]->open : 0;
		tables += open != 0;
		open_max = crpc_max(open_max, open);
	}
	sweep->active = true;
	sweep->at_table = 0;
	sweep->at_slot = 1;
	sweep->next_ns = 0;
	sweep->judge_ns = now_ns;
	sweep->seen = 0;
	/* Replies of tables are taken in turns: the largest may be the last that is empty. */
	sweep->judge_taken = sweep->taken + tables * open_max;
}

static void
sweep_end(struct rpc_sweep *sweep)
{
	if (sweep->canceled)
		sweep->next_ns = 0;
	else if (sweep->period_ns != 0)
		sweep->next_ns = sweep->judge_ns + sweep->period_ns;
	else
		sweep->next_ns = UINT64_MAX;
}

/* Look at the next slots of one table. Returns their number. */
static uint32_t
sweep_table(struct rpc_sweep *sweep, struct rpc_calls *calls, uint32_t budget,
	struct crpc_done *done, uint16_t n, uint16_t *filled)
{
	struct rpc_call *call;
	uint32_t seen = 0;

	for (; sweep->at_slot <= calls->size && seen < budget && *filled < n;
		sweep->at_slot++, seen++) {
		call = rpc_call_at(calls, sweep->at_slot);
		if (call->deadline_ns <= sweep->limit_ns || call->deadline_ns == RPC_CANCELED)
			end_early(calls, call, -ETIMEDOUT, sweep->counts, &done[(*filled)++]);
	}
	return seen;
}

uint16_t
__crpc_sweep_run(
	struct rpc_sweep *sweep, uint64_t now_ns, bool drained, struct crpc_done *done, uint16_t n)
{
	uint32_t budget = RPC_SWEEP_SLOTS;
	struct rpc_calls *calls;
	uint16_t k = 0;
	bool judge;

	if (n == 0)
		return 0;
	if (!sweep->active)
		sweep_begin(sweep, now_ns);
	if (sweep->at_table == 0 && sweep->at_slot == 1) {
		judge = drained || (int64_t)(sweep->taken - sweep->judge_taken) >= 0;
		if (!judge && !sweep->canceled)
			return 0;
		sweep->canceled = false;
		sweep->limit_ns = !judge ? 0 : drained ? now_ns : sweep->judge_ns;
	}
	for (; sweep->at_table < sweep->ntables; sweep->at_table++, sweep->at_slot = 1) {
		if (budget == 0 || k == n)
			return k;
		budget--;
		calls = sweep->table[sweep->at_table];
		if (calls == NULL || calls->open == 0)
			continue;
		budget -= sweep_table(sweep, calls, budget, done, n, &k);
		if (sweep->at_slot <= calls->size)
			return k;
	}
	sweep->at_table = 0;
	/* A walk that saw cancels only is followed by the one that judges. */
	sweep->active = sweep->limit_ns == 0;
	if (!sweep->active)
		sweep_end(sweep);
	return k;
}
