/* SPDX-License-Identifier: BSD-3-Clause */
/* The telemetry of lib/udrpc (tel_rpc.h), and the audit. */
#include "test.h"
#include "pair.h"

#include "tel_rpc.h"

TEST(endpoints_are_told)
{
	json_t *answer = ask(COMMAND(stats), "0");

	assert_int_equal(number(answer, "packets_sent"), 3);
	json_decref(answer);
	answer = ask(COMMAND(endpoint), "0,1");
	assert_int_equal(number(answer, "status"), 0);
	assert_int_equal(number(answer, "peer"), 1);
	assert_int_equal(number(answer, "open_calls"), 0);
	assert_int_equal(number(answer, "credits_at_home"), 32);
	assert_true(number(answer, "rate_bytes_per_s") > 0);
	json_decref(answer);
}

static int
setup(void **state)
{
	static const struct crpc_udrpc_conf conf = {.max_eps = 2};

	pair_init(&conf, 2, 1, 188, 1024);
	owner_start(state);
	return 0;
}

/* With the owner gone: the audit of both ends, which finds a leak. */
static int
teardown(void **state)
{
	owner_stop(state);
	for (int i = 0; i < 2; i++)
		assert_int_equal(crpc_udrpc_check(p.ctx[i], true), 0);
	p.ep[0][0]->credits--; /* one that leaked */
	assert_int_equal(crpc_udrpc_check(p.ctx[0], false), -EFAULT);
	assert_non_null(strstr(crpc_log_last(), "credits"));
	p.ep[0][0]->credits++;
	pair_fini();
	return 0;
}
