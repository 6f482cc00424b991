/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a local user can ask telemetry: each command that a library, the driver or a daemon
 * registers, with any parameters, about objects that are there. It is answered or refused, and
 * within bounds; the owners answer on this thread, whenever a handler waits for one.
 *
 * Input: questions with ends of lines between them; the first byte of each says which command.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include <rte_telemetry.h>

#include "cmocka.h"

#include "crpc_bulk.h"
#include "crpc_paper_nic.h"
#include "kv_walk.h"
#include "mlx5_copyrpc.h"
#include "udrpc_pvt.h"

#define COMMANDS  64u
#define QUESTIONS 32u
#define PARAMS    1024u
/* Above that of telemetry's type, which is its own affair. */
#define DATA_LEN (1u << 18)
#define LISTS    64u
#define QPNS     3u

static struct {
	const char *name;
	telemetry_cb fn;
} commands[COMMANDS];
static uint32_t ncommands;
static void *lists[LISTS];
static uint32_t nlists;

static struct crpc_paper w;
static struct crpc_copyrpc *ctx;
static struct crpc_bulk *b;
static struct crpc_udrpc udrpc;
static struct crpc_udrpc_ep udrpc_eps[2];
static struct crpc_mlx5_dev mlx5;
static struct crpc_mlx5_qp mlx5_qps[QPNS];

/* ---- in the places of others ---- */

/* Handlers are called from here, without telemetry's own thread. */
int
rte_telemetry_register_cmd(const char *cmd, telemetry_cb fn, const char *help)
{
	if (strncmp(cmd, "/crpc/", 6) != 0) /* The EAL's own. */
		return 0;
	fuzz_check(ncommands < COMMANDS && help[0] != '\0');
	commands[ncommands].name = cmd;
	commands[ncommands++].fn = fn;
	return 0;
}

/* What an answer contains; telemetry frees it when it is written. */
struct rte_tel_data *
rte_tel_data_alloc(void)
{
	fuzz_check(nlists < LISTS);
	lists[nlists] = calloc(1, DATA_LEN);
	fuzz_check(lists[nlists] != NULL);
	return lists[nlists++];
}

/* A handler waits: the owners' turn. */
int
nanosleep(const struct timespec *want, struct timespec *left)
{
	struct crpc_done done;

	(void)want, (void)left;
	crpc_copyrpc_poll(ctx, ++w.now_ns, &done, 1);
	crpc_bulk_progress(b, w.now_ns);
	__crpc_udrpc_tel_answer(&udrpc);
	if (crpc_exchange_acq_rel(&mlx5.ib.attention, 0) != 0)
		crpc_mlx5_tel_answer(&mlx5);
	return 0;
}

void
crpc_mlx5_newest_text(const struct crpc_mlx5_qp *qp, char *text, size_t len)
{
	(void)qp;
	memset(text, 'x', len);
	text[len - 1] = '\0';
}

void
crpc_kv_daemon_stats(const struct crpc_kv_daemon *d, struct crpc_kv_stats *stats)
{
	(void)d;
	(void)stats;
}

/* ---- objects ---- */

static void
mlx5_info(const struct crpc_rdma *dev, struct crpc_rdma_info *info)
{
	(void)dev;
	snprintf(info->name, sizeof(info->name), "fuzz");
}

static void
mlx5_make(void)
{
	static const struct crpc_rdma_ops ops = {.name = "fuzz", .info_get = mlx5_info};

	mlx5.ib.base.ops = &ops;
	for (uint32_t i = 0; i < QPNS; i++) {
		mlx5_qps[i].ib.qpn = i * 0x111;
		mlx5_qps[i].ib.next = mlx5.ib.qps;
		mlx5.ib.qps = &mlx5_qps[i].ib;
	}
	fuzz_check(crpc_mlx5_tel_open(&mlx5) == 0);
}

static void
objects_make(void)
{
	struct crpc_copyrpc_conf net = {.ring_size = 8192, .max_eps = 4};
	struct crpc_bulk_conf bulk = {.chunk = 4096, .slots = 2, .shared = true};

	w.rng = 1;
	w.now_ns = 1;
	net.dev = crpc_paper_open(&w, &(struct crpc_paper_conf){.inline_max = 256});
	ctx = crpc_copyrpc_create(&net);
	fuzz_check(ctx != NULL);
	bulk.port[0].ctx = ctx;
	bulk.port[0].dev = net.dev;
	b = crpc_bulk_create(&bulk);
	fuzz_check(b != NULL);
	for (uint32_t i = 0; i < 2; i++)
		fuzz_check(crpc_bulk_conn_create(b, 1, i) != NULL);
	udrpc.conf.max_eps = 2;
	udrpc.eps = udrpc_eps;
	udrpc_eps[1].live = true;
	fuzz_check(__crpc_udrpc_tel_open(&udrpc) == 0);
	mlx5_make();
	fuzz_check(crpc_kv_tel_start("/crpc/benchkv/stats", 3, 2) == 0);
}

/* ---- questions ---- */

static void
question(uint8_t which, const char *text, size_t len)
{
	static void *answer;
	char *params = NULL;
	int rc;

	if (len != 0) { /* Without parameters there is no text. */
		params = malloc(len + 1);
		fuzz_check(params != NULL);
		memcpy(params, text, len);
		params[len] = '\0';
	}
	if (answer == NULL)
		answer = calloc(1, DATA_LEN);
	fuzz_check(answer != NULL);
	rc = commands[which % ncommands].fn(commands[which % ncommands].name, params, answer);
fuzz_check(rc == 0 || rc == -EINVAL);
	free(params);
	while (nlists != 0)
		free(lists[--nlists]);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (ctx == NULL)
		objects_make();
	for (uint32_t i = 0; i < QUESTIONS && size != 0; i++) {
		const uint8_t *end = memchr(data + 1, '\n', size - 1);
		size_t len = end != NULL ? (size_t)(end - data) : size;

		question(data[0], (const char *)data + 1, crpc_min(len - 1, PARAMS));
		len += end != NULL;
		data += len;
		size -= len;
	}
	return 0;
}
