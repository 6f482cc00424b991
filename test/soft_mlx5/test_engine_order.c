/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The order in which the bytes of a WRITE appear in memory: a program that polls the last word of a
 * message, as ib_write_lat does, reads a whole message.
 *
 * A page that may not be written stops the NIC in the middle of a copy, at each place of a message
 * in turn: what lies before it must be there, and nothing behind it. And a thread polls.
 *
 *     test_engine_order [seed]
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "test.h"
#include "crpc_atomic.h"
#include "crpc_util.h"
#include "engine_rig.h"
#include "rnd.h"

#define SIGNALED MLX5_WQE_CTRL_CQ_UPDATE
#define SRC_BYTES (2u << 20)
#define DST_BYTES (2u << 20)
#define FENCE (DST_BYTES / 2) /* Where the page begins that stops a copy. */
#define STORE_MAX 32u         /* A store that goes across the fence stops as a whole. */

static uint64_t seed;
static struct rig_host a, b;
static struct rig_qp qa, qb;
static uint8_t *dst;
static uint32_t dst_key;
static struct sm_mr *dst_mr;

static struct {
	uint8_t *to;
	const uint8_t *from;
	uint32_t len;
	uint32_t hits, missing, early;
} at_fence;

static void
fence(int prot)
{
	if (mprotect(dst + FENCE, 4096, prot) != 0)
		_exit(3);
}

/* The first store behind the fence: what is there of the message? */
static void
stopped(int sig, siginfo_t *info, void *context)
{
	uint32_t before = (uint32_t)(dst + FENCE - at_fence.to);
	uint32_t behind = at_fence.len - before, sure = before;

	if (behind > 8 || !crpc_is_pow2(behind)) /* Else that is the last store. */
		sure -= (uint32_t)crpc_min(sure, STORE_MAX);

	if ((uint8_t *)info->si_addr < dst + FENCE ||
		(uint8_t *)info->si_addr >= dst + FENCE + 4096)
		_exit(4);
	fence(PROT_READ | PROT_WRITE);
	at_fence.hits++;
	for (uint32_t i = 0; i < sure; i++)
		at_fence.missing += at_fence.to[i] != at_fence.from[i];
	for (uint32_t i = before; i < at_fence.len; i++)
		at_fence.early += at_fence.to[i] != 0;
}

static int
hosts_open(void **state)
{
	const char *net = rig_net();

	rig_direct = SM_DIRECT_DEFAULT;
	rig_host_open(&a, net, SRC_BYTES);
	rig_host_open(&b, net, 65536);
	dst = mmap(NULL, DST_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(dst != MAP_FAILED);
	dst_mr = rig_mr_open(&b, b.pd, dst, DST_BYTES, 15, &dst_key);
	rig_link_open(&a, &qa, &b, &qb, NULL);
	rig_run(&a, &b);
	for (uint32_t i = 0; i < SRC_BYTES; i++)
		a.mem[i] = (uint8_t)(rnd(&seed) % 255 + 1);
	return 0;
}

static int
hosts_close(void **state)
{
	rig_link_close(&qa, &qb);
	assert_int_equal(sm_destroy(b.nic, dst_mr), 0);
	munmap(dst, DST_BYTES);
	rig_host_close(&a);
	rig_host_close(&b);
	rig_direct = 0;
	return 0;
}

static void
write_post(uint8_t *to, const uint8_t *from, uint32_t len)
{

	rig_rdma(&qa, MLX5_OPCODE_RDMA_WRITE, 0, to, dst_key, from, len);
}

/* A message of @len bytes of which @before lie before the fence. */
static void
write_over_fence(uint32_t len, uint32_t before)
{
	memset(dst + FENCE - before, 0, len);
	at_fence.to = dst + FENCE - before;
	at_fence.from = a.mem + rnd(&seed) % 64;
	at_fence.len = len;
	at_fence.hits = at_fence.missing = at_fence.early = 0;
	fence(PROT_READ);
	write_post(at_fence.to, at_fence.from, len);
	assert_int_equal(rig_expect(&a, &b, &qa.scq)->op_own >> 4, MLX5_CQE_REQ);
	if (at_fence.hits != 1 || at_fence.missing != 0 || at_fence.early != 0)
		fail_msg("%u bytes, stopped %u times behind %u: %u before are missing, %u behind "
			 "are there", len, at_fence.hits, before, at_fence.missing, at_fence.early);
	assert_memory_equal(at_fence.to, at_fence.from, len);
}

TEST_FIXTURE(bytes_of_a_write_appear_in_increasing_order_of_addresses, hosts_open, hosts_close)
{
	static const uint32_t lens[] = {24, 32, 40, 64, 80, 96, 128, 136, 200, 256,
		512, 1000, 1024, 4096, 8192, 12000, 20000, 100000, 300000};
	struct sigaction act = {.sa_sigaction = stopped, .sa_flags = SA_SIGINFO}, old;

	print_message("seed %llu\n", (unsigned long long)seed);
	assert_int_equal(sigaction(SIGSEGV, &act, &old), 0);
	for (uint32_t i = 0; i < CRPC_DIM(lens); i++) {
		uint32_t len = lens[i], step = len > 64 ? len / 64 : 1;

		for (uint32_t before = 1; before < len; before += step)
			write_over_fence(len, before);
		if (len > 8)
			write_over_fence(len, len - 8);
		write_over_fence(len, len - 1);
	}
	fence(PROT_READ | PROT_WRITE);
	assert_int_equal(sigaction(SIGSEGV, &old, NULL), 0);
}

/* ---- a thread that polls ---- */

#define STOP UINT64_MAX

static struct {
	_Atomic uint64_t len;  /* Of the messages that come; STOP: none. */
	_Atomic uint64_t read; /* The newest that was read. */
	_Atomic uint32_t idle; /* None come, and memory is not looked at. */
	uint64_t torn;
} reader;

static void *
read_messages(void *arg)
{
	for (uint64_t number = 1;; number++) {
		uint64_t len, words;
		_Atomic uint64_t *word = (_Atomic uint64_t *)(void *)dst;

		/* M1 pairs with M0 in send_and_read(). */
		while ((len = crpc_load_acquire(&reader.len)) == 0 ||
			(len != STOP && crpc_load_acquire(&word[len / 8 - 1]) != number))
			if (len == 0) {
				crpc_store_release(&reader.idle, 1); /* M4 */
				sched_yield();
			}
		if (len == STOP)
			return NULL;
		words = len / 8;
		for (uint64_t i = words; i-- != 0;)
			if (crpc_load_relaxed(&word[i]) != number) {
				reader.torn++;
				break;
			}
		crpc_store_release(&reader.read, number); /* M2 */
	}
}

/* Messages for @ms milliseconds, each read before the next; how many. */
static uint64_t
send_and_read(uint32_t len, uint64_t from, uint32_t ms)
{
	struct timespec start, now;
	uint64_t number = from;

	/* M5 pairs with M4: it does not look for the end of a shorter message in this one. */
	crpc_store_release(&reader.idle, 0);
	while (crpc_load_acquire(&reader.idle) == 0)
		sched_yield();
	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		number++;
		for (uint32_t i = 0; i < len / 8; i++)
			((uint64_t *)(void *)a.mem)[i] = number;
		write_post(dst, a.mem, len);
		crpc_store_release(&reader.len, (uint64_t)len); /* M0 */
		assert_int_equal(rig_expect(&a, &b, &qa.scq)->op_own >> 4, MLX5_CQE_REQ);
		clock_gettime(CLOCK_MONOTONIC, &now);
		/* M3 pairs with M2. */
		while (crpc_load_acquire(&reader.read) != number) {
			clock_gettime(CLOCK_MONOTONIC, &now);
			if (now.tv_sec - start.tv_sec > 30)
				fail_msg("message %llu was not seen", (unsigned long long)number);
			sm_nic_progress(a.nic, rig_now); /* As a sender that polls. */
			sched_yield();
		}
	} while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 <
		(long)ms);
	crpc_store_release(&reader.len, (uint64_t)0);
	return number;
}

TEST_FIXTURE(who_polls_the_last_word_reads_a_whole_message, hosts_open, hosts_close)
{
	static const uint32_t lens[] = {32, 64, 128, 512, 1024, 8192, 20000, 300000};
	uint64_t number = 0, before;
	pthread_t thread;

	memset((void *)&reader, 0, sizeof(reader));
	memset(dst, 0, DST_BYTES);
	assert_int_equal(pthread_create(&thread, NULL, read_messages, NULL), 0);
	for (uint32_t i = 0; i < CRPC_DIM(lens); i++) {
		before = number;
		number = send_and_read(lens[i], number, 200);
		print_message("%u bytes: %llu messages\n", lens[i],
			(unsigned long long)(number - before));
	}
	crpc_store_release(&reader.len, STOP);
	pthread_join(thread, NULL);
	assert_int_equal(reader.torn, 0);
}

int
main(int argc, char **argv)
{
	seed = argc > 1 ? strtoull(argv[1], NULL, 0) | 1 : 0x9e3779b97f4a7c15;
	rig_nets_sweep();
	return test_run(NULL, NULL);
}
