/* SPDX-License-Identifier: BSD-3-Clause */
/* The telemetry of lib/copyrpc (tel_rpc.h). */
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

static int
teardown(void **state)
{
	owner_stop(state);
	pair_at_rest();
	pair_fini();
	return 0;
}
