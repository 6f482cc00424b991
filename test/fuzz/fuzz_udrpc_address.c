/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addresses that a peer gives for an endpoint of lib/udrpc: taken, within the sizes that they and
 * we allow, or refused. Then calls go to whatever is there, and end once.
 *
 * Input: a byte of flags, then the address; magic and version, and the device's own part, are set
 * right as the flags say.
 */
#include <string.h>

#include "cmocka.h"

#include "pair.h"

#define MTU     256u
#define MAX_MSG 1000u
#define CALLS   4u
/* Longer than all retries. */
#define TURNS   400u
#define TURN_NS 1000000u

enum { TRUE_HEAD = 1, TRUE_DEVICE = 2, TRUE_SESSION = 4 };

static void
calls_end(struct crpc_udrpc_ep *ep)
{
	static const uint8_t bytes[MAX_MSG];
	struct crpc_done done[CALLS];
	uint32_t open = 0, i;
	uint16_t n;

	for (i = 0; i < CALLS; i++)
		open += crpc_udrpc_call(ep, p.w.now_ns, bytes, i * (MAX_MSG / CALLS) + 1, 64, i) ==
			0;
	for (i = 0; i < TURNS && open != 0; i++) {
		pair_flush(0);
		p.w.now_ns += TURN_NS;
		pair_echo(1);
		n = pair_poll(0, done, CALLS);
		fuzz_check(n <= open);
		open -= n;
		while (n-- != 0)
			fuzz_check(done[n].status <= 0 && done[n].status >= -4095);
		fuzz_check(crpc_udrpc_check(p.ctx[0], false) == 0);
	}
	fuzz_check(open == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct crpc_udrpc_conf conf = {.max_eps = 2,
		.slots = 2,
		.credits = 3,
		.max_msg = MAX_MSG,
		.sq_depth = 16,
		.rq_depth = 16,
		.retries = 3};
	struct wire_addr a = {0}, ours;
	struct crpc_udrpc_ep *ep, *theirs;
	int rc;

	if (size == 0)
		return 0;
	pair_init(&conf, 1, 1, 64, MTU);
	ep = crpc_udrpc_ep_create(p.ctx[0], 7);
	theirs = crpc_udrpc_ep_create(p.ctx[1], 8);
	fuzz_check(ep != NULL && theirs != NULL);
	memcpy(&a, data + 1, crpc_min(size - 1, sizeof(a)));
	crpc_udrpc_ep_addr(ep, (uint8_t *)&ours);
	fuzz_check(crpc_udrpc_ep_connect(theirs, (const uint8_t *)&ours) == 0);
	crpc_udrpc_ep_addr(theirs, (uint8_t *)&ours);
	if (data[0] & TRUE_HEAD) {
		a.magic = ours.magic;
		a.version = ours.version;
		a.flags = 0;
	}
	if (data[0] & TRUE_DEVICE)
		memcpy(a.ud, ours.ud, sizeof(a.ud));
	if (data[0] & TRUE_SESSION) {
		a.session = ours.session;
		a.token = ours.token;
	}
	rc = crpc_udrpc_ep_connect(ep, (const uint8_t *)&a);
	fuzz_check(rc == 0 || rc == -EPROTO);
	if (rc == 0)
		calls_end(ep);
	pair_fini();
	return 0;
}
