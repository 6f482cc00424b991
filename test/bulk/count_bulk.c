/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fixed amount of work for callgrind to count: chunks and messages from one end to the other,
 * both in one thread, over a NIC on paper. Only the functions of lib/bulk that a program
 * calls are collected, with all they call (lib/copyrpc, the unpack engine) but the device;
 * test/golden/instructions.py divides. Both ends together.
 *
 *     count_bulk                    names the cases
 *     count_bulk CASE               runs one
 */
#include "bulk_end.h"
#include "count.h"

#define CHUNK 4096u
#define BURST 8u

/* chunk_*: long messages, counted per chunk; message_*: short ones, per message. */
static const struct {
	const char *name;
	uint32_t flags, rails, len, messages;
} cases[] = {
	{"chunk_eager", CRPC_BULK_EAGER, 1, 512 * CHUNK, 16},
	{"chunk_write", CRPC_BULK_WRITE, 1, 512 * CHUNK, 16},
	{"chunk_read", CRPC_BULK_READ, 1, 512 * CHUNK, 16},
	{"chunk_eager_4_rails", CRPC_BULK_EAGER, 4, 512 * CHUNK, 16},
	{"chunk_write_4_rails", CRPC_BULK_WRITE, 4, 512 * CHUNK, 16},
	{"message_eager_64", CRPC_BULK_EAGER, 1, 64, 4000},
	{"message_write_4096", CRPC_BULK_WRITE, 1, CHUNK, 4000},
	{"message_read_4096", CRPC_BULK_READ, 1, CHUNK, 4000},
	{"message_eager_64_4_rails", CRPC_BULK_EAGER, 4, 64, 4000},
};

static struct bulk_end end[2];
static uint64_t now = 1000;

static bool
open_ends(uint32_t rails)
{
	const struct crpc_copyrpc_conf net = {.ring_size = 16384, .max_eps = rails};
	const struct crpc_bulk_conf bulk = {.chunk = CHUNK};

	for (uint32_t i = 0; i < 2; i++) {
		if (!end_device(&end[i], "paper", &net) || !end_bulk(&end[i], &bulk, rails))
			return false;
	}
	return ends_connect(end);
}

static uint32_t
ended(struct bulk_end *e)
{
	struct crpc_bulk_result result[BURST];
	uint16_t n = crpc_bulk_test_burst(e->b, result, BURST), i;

	for (i = 0; i < n; i++) {
		if (result[i].status != 0)
			exit(1);
	}
	return n;
}

/* BURST messages at a time. */
static uint32_t
run(size_t which, uint8_t *src, uint8_t *dst)
{
	uint32_t len = cases[which].len, done = 0, started = 0, bad = 0;
	uint64_t req;

	while (done < 2 * cases[which].messages && bad == 0) {
		for (; started < cases[which].messages && started * 2 < done + 2 * BURST;
			started++) {
			bad += crpc_bulk_irecv(end[1].conn, now, started, dst, len, 0, 0, &req) !=
				0;
			bad += crpc_bulk_isend(end[0].conn, now, started, src, len,
				       cases[which].flags, 0, &req) != 0;
		}
		now += 1000;
		crpc_bulk_progress(end[0].b, now);
		now += 1000;
		crpc_bulk_progress(end[1].b, now);
		done += ended(&end[0]) + ended(&end[1]);
	}
	printf("messages %u\n", cases[which].messages * (len > CHUNK ? len / CHUNK : 1));
	return bad;
}

int
main(int argc, char **argv)
{
	size_t i = count_case(argc, argv, cases, sizeof(cases[0]), CRPC_DIM(cases));
	uint8_t *buf = calloc(2, cases[i].len);

	if (buf == NULL || !open_ends(cases[i].rails)) {
		fprintf(stderr, "cannot set up: %s\n", crpc_log_last());
		return 77;
	}
	return run(i, buf, buf + cases[i].len) != 0;
}
