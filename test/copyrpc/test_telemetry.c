/* SPDX-License-Identifier: BSD-3-Clause */
/* The telemetry of lib/copyrpc (tel_rpc.h), the audit and the dump. */
#include "test.h"
#include "pair.h"

#include "tel_rpc.h"

TEST(endpoints_are_told)
{
	json_t *answer = ask(COMMAND(stats), "0");

	assert_int_equal(number(answer, "messages_sent"), 3);
	json_decref(answer);
	answer = ask(COMMAND(endpoint), "0,1");
	assert_int_equal(number(answer, "status"), 0);
	assert_int_equal(number(answer, "peer"), 101);
	assert_int_equal(number(answer, "open_calls"), 0);
	assert_int_equal(number(answer, "requests_sent"), 0);
	json_decref(answer);
	answer = ask(COMMAND(endpoint), "0,0");
	assert_int_equal(number(answer, "requests_sent"), number(answer, "requests_queued_to"));
	assert_true(number(answer, "requests_sent") > 0);
	json_decref(answer);
}

static int
setup(void **state)
{
	static const struct crpc_copyrpc_conf conf = {
		.max_eps = PAIR_EPS, .ring_size = 4096, .max_msg = 512, .max_inflight = 8};

	pair_init2(&conf, &conf, 2, 1);
	owner_start(state);
	return 0;
}

/* With the owner gone: the audit of both ends, from their positions alone, and the dump. */
static int
teardown(void **state)
{
	struct crpc_copyrpc_positions pos[2];

	owner_stop(state);
	pair_at_rest();
	for (int i = 0; i < 2; i++)
		crpc_copyrpc_ep_positions(p.ep[i][0], &pos[i]);
	assert_int_equal(
		crpc_copyrpc_positions_match(&pos[0], &pos[1], CRPC_COPYRPC_FLOW_WINDOW), 0);
	pos[0].requests_released_by_peer -= 16; /* a credit that leaked */
	assert_int_equal(
		crpc_copyrpc_positions_match(&pos[0], &pos[1], CRPC_COPYRPC_FLOW_WINDOW), -EFAULT);
	assert_non_null(strstr(crpc_log_last(), "released"));
	dump_says("endpoint 1: status 0\n  peer 101\n");
	pair_fini();
	return 0;
}
