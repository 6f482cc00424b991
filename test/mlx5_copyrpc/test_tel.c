/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every telemetry command of the driver, over the real socket of an EAL, with good and with bad
 * parameters, while another thread polls the device. Without a device, or an EAL, it is skipped.
 *
 *     DEVICE=mlx5_0               which device; default the first
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test.h"
#include "crpc_atomic.h"
#include "crpc_clock.h"
#include "crpc_log.h"
#include "crpc_rdma.h"
#include "tel_ask.h"

#define SENDS 10

static struct crpc_rdma *dev;
static struct crpc_rdma_qp *qp[4]; /* Two of RC, connected; two of DC. */
static struct crpc_rdma_qp *ud;
static struct crpc_rdma_ah *ah;
static _Atomic bool stop, paused, ready;

/* The owner of the device: posts once, then polls all the time, but when it is paused. */
static void *
owner(void *arg)
{
	struct crpc_rdma_wr wr = {.op = CRPC_RDMA_WRITE_IMM, .flags = CRPC_RDMA_WR_SIGNAL};
	struct crpc_rdma_wr dgram = {
		.op = CRPC_RDMA_SEND_IMM, .ah = ah, .flags = CRPC_RDMA_WR_SIGNAL, .imm = 5};
	uint32_t i, got = 0;
	struct crpc_rdma_cqe cqe;

	for (i = 0; i < SENDS; i++) {
		crpc_rdma_post(qp[0], &wr, 1);
		crpc_rdma_post(qp[2], &wr, 1);
		crpc_rdma_post(ud, &dgram, 1);
	}
	while (!crpc_load_acquire(&stop)) {
		if (crpc_load_relaxed(&paused))
			continue;
		got += crpc_rdma_poll(dev, &cqe, 1);
		/* Each is sent and received. */
		if (got == 6 * SENDS)
			crpc_store_release(&ready, true);
	}
	return NULL;
}

static const char *
text_of(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	if (!json_is_string(value))
		fail_msg("%s is not there", key);
	return json_string_value(value);
}

/* The one queue of that kind that has sent, described. */
static json_t *
queue_of(const char *kind)
{
	json_t *queues = ask("/crpc/mlx5_copyrpc/queues", "0"), *q;
	char params[32];

	for (size_t i = 0; i < json_array_size(queues); i++) {
		snprintf(params, sizeof(params), "0,%lld",
			(long long)json_integer_value(json_array_get(queues, i)));
		q = ask("/crpc/mlx5_copyrpc/queue", params);
		if (strcmp(text_of(q, "kind"), kind) == 0 &&
			(number(q, "posted") != 0 || number(q, "signals") != 0)) {
			json_decref(queues);
			return q;
		}
		json_decref(q);
	}
	fail_msg("no queue of kind %s has sent", kind);
	return NULL;
}

TEST(commands_tell_the_device)
{
	json_t *answer = ask("/crpc/mlx5_copyrpc/list", "");

	assert_int_equal(json_array_size(answer), 1);
	json_decref(answer);
	answer = ask("/crpc/mlx5_copyrpc/info", "0");
	assert_true(strlen(text_of(answer, "name")) > 0);
	assert_true(number(answer, "mtu") >= 256);
	assert_int_equal(number(answer, "queue_pairs"), 4 + 2 + 1);
	assert_int_equal(number(answer, "addresses"), 1);
	assert_true(number(answer, "cq_set_aside") <= number(answer, "cq_depth"));
	json_decref(answer);
	answer = ask("/crpc/mlx5_copyrpc/stats", "0");
	assert_int_equal(number(answer, "wqes"), 3 * SENDS);
	assert_int_equal(number(answer, "recv_cqes"), 3 * SENDS);
	assert_int_equal(number(answer, "send_cqes"), 3 * SENDS);
	assert_int_equal(number(answer, "error_cqes"), 0);
	assert_true(number(answer, "polls") >= number(answer, "empty_polls"));
	json_decref(answer);
}

TEST(commands_tell_every_kind_of_queue)
{
	json_t *q = queue_of("RC");

	assert_int_equal(number(q, "posted"), SENDS);
	assert_int_equal(number(q, "retired"), SENDS);
	assert_int_equal(number(q, "reported"), SENDS);
	assert_int_equal(number(q, "id"), 0);
	assert_string_equal(text_of(q, "state"), "ready");
	assert_non_null(strstr(text_of(q, "newest"), "RDMA_WRITE_IMM"));
	json_decref(q);
	q = queue_of("UD");
	assert_int_equal(number(q, "posted"), SENDS);
	assert_non_null(strstr(text_of(q, "newest"), "SEND_IMM"));
	assert_non_null(strstr(text_of(q, "newest"), "imm 0x5"));
	assert_int_equal(number(q, "buffers_held"), 0);
	json_decref(q);
	q = queue_of("DC");
	assert_int_equal(number(q, "posted"), SENDS);
	assert_int_equal(number(q, "retired"), SENDS);
	assert_int_not_equal(number(q, "initiator"), 0);
	json_decref(q);
	q = queue_of("DC initiator");
	assert_int_equal(number(q, "signals"), SENDS);
	assert_int_equal(number(q, "resets"), 0);
	assert_int_equal(number(q, "blocks_outstanding"), 0);
	assert_non_null(strstr(text_of(q, "newest"), "| to 0x"));
	json_decref(q);
}

TEST(bad_parameters_get_no_answer)
{
	static const char *const commands[] = {"/crpc/mlx5_copyrpc/info",
		"/crpc/mlx5_copyrpc/stats", "/crpc/mlx5_copyrpc/queues",
		"/crpc/mlx5_copyrpc/queue"};

	tel_refuses(commands, 4);
}

TEST(device_that_is_not_polled_gives_no_answer)
{
	tel_waits_for_poll(&paused, "/crpc/mlx5_copyrpc/stats", "wqes", 3 * SENDS);
}

static void
objects_make(void)
{
	uint8_t addr[4][CRPC_RDMA_ADDR_LEN];
	struct crpc_rdma_qp_conf ud_conf = {.transport = CRPC_RDMA_UD, .id = 9};
	struct crpc_rdma_qp_conf conf = {0};

	for (uint32_t i = 0; i < 4; i++) {
		conf.id = i;
		conf.transport = i < 2 ? CRPC_RDMA_RC : CRPC_RDMA_DC;
		qp[i] = crpc_rdma_qp_create(dev, &conf);
		assert_non_null(qp[i]);
		crpc_rdma_qp_addr(qp[i], addr[i]);
	}
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(crpc_rdma_qp_connect(qp[i], addr[i ^ 1]), 0);
	ud = crpc_rdma_qp_create(dev, &ud_conf);
	assert_non_null(ud);
	crpc_rdma_qp_addr(ud, addr[0]);
	ah = crpc_rdma_ah_create(ud, addr[0]);
	assert_non_null(ah);
}

static int
setup(void **state)
{
	uint64_t until = crpc_clock_ns() + 10000000000ull;
	static pthread_t thread;

	objects_make();
	assert_int_equal(pthread_create(&thread, NULL, owner, NULL), 0);
	*state = &thread;
	while (!crpc_load_acquire(&ready)) {
		assert_true(crpc_clock_ns() < until);
		usleep(1000);
	}
	tel_connect();
	return 0;
}

static int
teardown(void **state)
{
	close(tel_fd);
	crpc_store_release(&stop, true);
	pthread_join(**(pthread_t **)state, NULL);
	crpc_rdma_ah_free(ah);
	crpc_rdma_qp_free(ud);
	for (uint32_t i = 0; i < 4; i++)
		crpc_rdma_qp_free(qp[i]);
	crpc_rdma_close(dev);
	return 0;
}

int
main(int argc, char **argv)
{
	const struct crpc_rdma_conf conf = {.device = getenv("DEVICE"), .dcis = 2};
	crpc_clock_init();
	dev = crpc_rdma_open(&conf);
	if (dev == NULL) {
		fprintf(stderr, "skipped: %s\n", crpc_log_last());
		return 77;
	}
	return tel_run(argv[0], setup, teardown);
}
