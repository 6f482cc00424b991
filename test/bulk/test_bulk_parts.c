/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts below bulk: the checksum, unpack engines, the cache of registrations.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "crpc_crc32c.h"
#include "crpc_log.h"
#include "crpc_mrcache.h"
#include "crpc_tensor_convert.h"
#include "crpc_unpack.h"
#include "fake_rdma.h"
#include "rnd.h"
#include "unpack_cpu.h"

static uint64_t seed = 88172645463325252u;

/* ---- checksum ---- */

/* The values of RFC 3720, appendix B.4, and the one that everybody quotes. */
static void
crc_has_the_known_values(void **state)
{
	uint8_t buf[32];
	uint32_t i;

	assert_int_equal(crpc_crc32c(0, "123456789", 9), 0xe3069283);
	assert_int_equal(crpc_crc32c_table(0, "123456789", 9), 0xe3069283);
	memset(buf, 0, 32);
	assert_int_equal(crpc_crc32c(0, buf, 32), 0x8a9136aa);
	memset(buf, 0xff, 32);
	assert_int_equal(crpc_crc32c(0, buf, 32), 0x62a8ab43);
	for (i = 0; i < 32; i++)
		buf[i] = (uint8_t)i;
	assert_int_equal(crpc_crc32c(0, buf, 32), 0x46dd794e);
	assert_int_equal(crpc_crc32c(7, buf, 0), 7);
}

/* The CPU's instruction and the table agree on every length and place, in one piece or in two. */
static void
crc_is_the_same_by_both_codes(void **state)
{
	static uint8_t buf[70000];
	uint32_t i, len, at, cut, crc;

	for (i = 0; i < sizeof(buf); i++)
		buf[i] = (uint8_t)rnd_below(&seed, 256);
	for (i = 0; i < 3000; i++) {
		len = i < 1000 ? i : rnd_below(&seed, 60000);
		at = rnd_below(&seed, 64);
		cut = rnd_below(&seed, len + 1);
		crc = crpc_crc32c_table(0, buf + at, len);
		assert_int_equal(crpc_crc32c(0, buf + at, len), crc);
		assert_int_equal(crpc_crc32c(crpc_crc32c(0, buf + at, cut), buf + at + cut,
						 len - cut), crc);
	}
}

/* ---- engines ---- */

/*
 * Every code that this CPU has moves every length from and to every alignment, and nothing beside.
 */
static void
every_copy_copies(void **state)
{
	static uint8_t src[9000], dst[9000], expected[9000];
	uint32_t v, i, len, from, to;

	for (i = 0; i < sizeof(src); i++)
		src[i] = (uint8_t)rnd_below(&seed, 256);
	for (v = 0; __crpc_unpack_copy[v] != NULL; v++) {
		if (!__crpc_unpack_copy[v]->usable())
			continue;
		for (i = 0; i < 4000; i++) {
			len = i < 300 ? i : rnd_below(&seed, 8000);
			from = rnd_below(&seed, 200);
			to = rnd_below(&seed, 200);
			memset(dst, 0x77, sizeof(dst));
			memset(expected, 0x77, sizeof(expected));
			memcpy(expected + to, src + from, len);
			__crpc_unpack_copy[v]->stream(dst + to, src + from, len);
			if (memcmp(dst, expected, sizeof(dst)) != 0)
				fail_msg("%s: %u bytes from %u to %u", __crpc_unpack_copy[v]->name,
					len, from, to);
		}
	}
}

/* Jobs of many descriptors, below and above where stores go around the caches, with conversions. */
static void
cpu_engine_gathers(void **state)
{
	static float src[100000];
	static uint8_t dst[600000], expected[600000];
	struct crpc_unpack_conf conf = {.stream_bytes = 20000};
	struct crpc_unpack *u = crpc_unpack_create(NULL, &conf);
	struct crpc_unpack_desc desc[CRPC_UNPACK_DESCS_MAX];
	uint32_t round, i, n, at, op;
	uint64_t job, out;

	assert_non_null(u);
	for (i = 0; i < 100000; i++)
		src[i] = (float)rnd_below(&seed, 1000) - 500.5f;
	for (round = 0; round < 300; round++) {
		memset(dst, 0, sizeof(dst));
		memset(expected, 0, sizeof(expected));
		n = 1 + rnd_below(&seed, CRPC_UNPACK_DESCS_MAX);
		for (i = 0, at = 0; i < n;
			i++, at += (uint32_t)crpc_align_up(out, 4) + 4 * rnd_below(&seed, 3)) {
			op = rnd_below(&seed, 3) == 0 ? rnd_below(&seed, CRPC_UNPACK_OPS)
						      : CRPC_UNPACK_COPY;
			desc[i] = (struct crpc_unpack_desc){.src = src + rnd_below(&seed, 90000),
					.dst = dst + at,
					.len = rnd_below(&seed, 1000) * 4,
					.op = op};
			out = crpc_unpack_out_len(op, desc[i].len);
			if (op == CRPC_UNPACK_COPY)
				memcpy(expected + at, desc[i].src, out);
			else if (op == CRPC_UNPACK_F32_TO_BF16)
				crpc_tensor_f32_to_bf16((void *)(expected + at), desc[i].src,
						desc[i].len / 4);
			else if (op == CRPC_UNPACK_F32_TO_F16)
				crpc_tensor_f32_to_f16((void *)(expected + at), desc[i].src,
						desc[i].len / 4);
			else if (op == CRPC_UNPACK_BF16_TO_F32)
				crpc_tensor_bf16_to_f32((void *)(expected + at), desc[i].src,
						desc[i].len / 2);
			else
				crpc_tensor_f16_to_f32((void *)(expected + at), desc[i].src,
						desc[i].len / 2);
		}
		assert_int_equal(crpc_unpack_submit(u, desc, n, &job), 0);
		crpc_unpack_kick(u);
		assert_int_equal(crpc_unpack_done(u, job), 0);
		assert_memory_equal(dst, expected, sizeof(dst));
	}
	assert_int_equal(crpc_unpack_stats(u)->jobs, 300);
	assert_int_equal(crpc_unpack_open_jobs(u), 0);
	assert_int_equal(crpc_unpack_stop(u), 0);
	crpc_unpack_free(u);
}

static int
bad_create(const struct crpc_unpack_conf *conf, void **state)
{
	return -ENODEV;
}

static void
bad_free(void *state)
{
}

static int
bad_submit(void *state, const struct crpc_unpack_desc *desc, uint32_t n, uint64_t *job)
{
	return -EIO;
}

static int
bad_done(void *state, uint64_t job)
{
	return -EIO;
}

static int
bad_stop(void *state)
{
	return 0;
}

static int
bad_attach(void *state, void *mem, uint64_t len)
{
	return -EIO;
}

/* Names are unique and found; what can not be done is refused. */
static void
engines_have_names(void **state)
{
	static const struct crpc_unpack_ops ops = {"bad", 0, bad_create, bad_free, bad_submit, NULL,
			bad_done, bad_stop};
	static const struct crpc_unpack_ops half = {.name = "half", .create = bad_create};
	static const struct crpc_unpack_ops cpu = {"cpu", 0, bad_create, bad_free, bad_submit, NULL,
			bad_done, bad_stop};
	static const struct crpc_unpack_ops one_way = {"one way", 0, bad_create, bad_free,
		bad_submit, NULL, bad_done, bad_stop, bad_attach};
	struct crpc_unpack_desc desc = {.len = 2, .op = CRPC_UNPACK_F32_TO_F16};
	struct crpc_unpack_conf conf = {.max_jobs = 2};
	struct crpc_unpack *u;
	uint64_t job[3];

	assert_int_equal(crpc_unpack_register(&half), -EINVAL);
	assert_int_equal(crpc_unpack_register(&one_way), -EINVAL);
	assert_int_equal(crpc_unpack_register(&cpu), -EEXIST);
	assert_int_equal(crpc_unpack_register(&ops), 0);
	assert_string_equal(crpc_unpack_name(0), "cpu");
	assert_string_equal(crpc_unpack_name(1), "bad");
	assert_null(crpc_unpack_name(2));
	assert_ptr_equal(crpc_unpack_find("bad"), &ops);
	assert_null(crpc_unpack_create("nothing", NULL));
	assert_int_equal(errno, ENOENT);
	assert_non_null(strstr(crpc_log_last(), "cpu bad"));
	assert_null(crpc_unpack_create("bad", NULL));
	assert_int_equal(errno, ENODEV);
	u = crpc_unpack_create("cpu", &conf);
	/* Any memory will do for the CPU. */
	assert_int_equal(crpc_unpack_attach(u, &desc, sizeof(desc)), 0);
	assert_int_equal(crpc_unpack_attach(u, &desc, 0), -EINVAL);
	crpc_unpack_detach(u, &desc);
	assert_int_equal(crpc_unpack_submit(u, &desc, 1, &job[0]), -EINVAL);
	desc.op = CRPC_UNPACK_OPS;
	assert_int_equal(crpc_unpack_submit(u, &desc, 1, &job[0]), -EINVAL);
	desc = (struct crpc_unpack_desc){.len = 0};
	assert_int_equal(crpc_unpack_submit(u, &desc, 0, &job[0]), -EINVAL);
	assert_int_equal(crpc_unpack_submit(u, &desc, 1, &job[0]), 0);
	assert_int_equal(crpc_unpack_submit(u, &desc, 1, &job[1]), 0);
	assert_int_equal(crpc_unpack_submit(u, &desc, 1, &job[2]), -EAGAIN);
	assert_int_equal(crpc_unpack_done(u, job[0]), 0);
	assert_int_equal(crpc_unpack_submit(u, &desc, 1, &job[2]), 0);
	crpc_unpack_free(u);
}

/* ---- the cache ---- */

struct cache {
	struct fake_world w;
	struct crpc_rdma *dev;
	struct crpc_mrcache *c;
	uint8_t *mem;
};

#define MEM (1u << 20)

static void
cache_make(struct cache *k, uint32_t regions, uint64_t bytes)
{
	struct crpc_mrcache_conf conf = {.max_regions = regions, .max_bytes = bytes};

	memset(k, 0, sizeof(*k));
	k->dev = conf.dev = fake_open(&k->w, 64);
	k->c = crpc_mrcache_create(&conf);
	assert_non_null(k->c);
	k->mem = mmap(NULL, MEM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(k->mem, MAP_FAILED);
}

static void
cache_free(struct cache *k)
{
	if (crpc_mrcache_check(k->c) != 0)
		fail_msg("%s", crpc_log_last());
	crpc_mrcache_free(k->c);
	crpc_rdma_close(k->dev);
	munmap(k->mem, MEM);
}

/* A range is registered once, in whole pages; what lies in it is found. */
static void
cache_finds_what_it_has(void **state)
{
	const struct crpc_rdma_mr *a, *b;
	struct cache k;

	cache_make(&k, 0, 0);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 5000, 10000, &a), 0);
	assert_ptr_equal(a->addr, k.mem + 4096);
	assert_int_equal(a->len, 3 * 4096);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 4096, 3 * 4096, &b), 0);
	assert_ptr_equal(a, b);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 9999, 1, &b), 0);
	assert_ptr_equal(a, b);
	assert_int_equal(crpc_mrcache_stats(k.c)->misses, 1);
	assert_int_equal(crpc_mrcache_stats(k.c)->hits, 2);
	assert_int_equal(crpc_mrcache_stats(k.c)->users, 3);
	/* the neighbour is another region; what overlaps both replaces both */
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 4 * 4096, 100, &b), 0);
	assert_ptr_not_equal(a, b);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 4 * 4096 - 10, 20, &b), 0);
	assert_ptr_equal(b->addr, k.mem + 4096);
	assert_int_equal(b->len, 4 * 4096);
	assert_int_equal(crpc_mrcache_stats(k.c)->merges, 2);
	/* the old ones are in use, and still valid */
	assert_int_equal(crpc_mrcache_stats(k.c)->regions, 3);
	assert_int_equal(crpc_mrcache_check(k.c), 0);
	crpc_mrcache_put(k.c, a);
	crpc_mrcache_put(k.c, a);
	assert_int_equal(crpc_mrcache_stats(k.c)->regions, 3);
	crpc_mrcache_put(k.c, a);
	assert_int_equal(crpc_mrcache_stats(k.c)->regions, 2);
	assert_int_equal(crpc_mrcache_get(k.c, NULL, 5, &a), -EINVAL);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem, 0, &a), -EINVAL);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem, UINT64_MAX - 5, &a), -EINVAL);
	cache_free(&k);
}

/* Full: the least recently used goes; those in use and those that were added stay. */
static void
cache_is_bounded(void **state)
{
	const struct crpc_rdma_mr *mr[5];
	struct cache k;
	uint32_t i;

	cache_make(&k, 4, 0);
	assert_int_equal(crpc_mrcache_add(k.c, k.mem + 0x80000, 100), 0);
	for (i = 0; i < 3; i++)
		assert_int_equal(crpc_mrcache_get(k.c, k.mem + i * 8192, 100, &mr[i]), 0);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 0x40000, 100, &mr[3]), -ENOSPC);
	crpc_mrcache_put(k.c, mr[1]);
	crpc_mrcache_put(k.c, mr[0]);
	/* 0 was given before 1 */
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 0x40000, 100, &mr[3]), 0);
	assert_int_equal(crpc_mrcache_stats(k.c)->evictions, 1);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 8192, 100, &mr[1]), 0);
	assert_int_equal(crpc_mrcache_stats(k.c)->hits, 1);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem, 100, &mr[0]), -ENOSPC);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 0x80000, 50, &mr[4]), 0);
	cache_free(&k);

	cache_make(&k, 0, 64 << 10);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem, 65537, &mr[0]), -ENOSPC);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem, 40000, &mr[0]), 0);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 0x80000, 40000, &mr[1]), -ENOSPC);
	crpc_mrcache_put(k.c, mr[0]);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 0x80000, 40000, &mr[1]), 0);
	cache_free(&k);
}

/* Invalidated: nobody gets it any more, and who has it keeps it until put. */
static void
cache_forgets_what_is_unmapped(void **state)
{
	const struct crpc_rdma_mr *a, *b;
	struct cache k;

	cache_make(&k, 0, 0);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem, 5000, &a), 0);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem + 0x40000, 5000, &b), 0);
	crpc_mrcache_put(k.c, b);
	assert_int_equal(crpc_mrcache_invalidate(k.c, k.mem + 0x80000, 4096), 0);
	assert_int_equal(crpc_mrcache_stats(k.c)->regions, 2);
	assert_int_equal(crpc_mrcache_invalidate(k.c, k.mem, MEM), -EBUSY);
	assert_int_equal(crpc_mrcache_stats(k.c)->regions, 1);
	assert_int_equal(crpc_mrcache_get(k.c, k.mem, 100, &b), 0);
	assert_ptr_not_equal(a, b);
	crpc_mrcache_put(k.c, b);
	assert_int_equal(crpc_mrcache_invalidate(k.c, k.mem, MEM), -EBUSY);
	crpc_mrcache_put(k.c, a);
	assert_int_equal(crpc_mrcache_stats(k.c)->regions, 0);
	assert_int_equal(crpc_mrcache_invalidate(k.c, k.mem, MEM), 0);
	cache_free(&k);
}

/* In a mapping that may be of huge pages all of a huge page is one region; in others it is not. */
static void
cache_widens_to_huge_pages(void **state)
{
	const uint64_t huge = 2u << 20;
	const struct crpc_rdma_mr *mr;
	uint8_t *place, *at;
	struct cache k;
	int fd, i;

	fd = memfd_create("bulk_huge", 0);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)(2 * huge)), 0);
	for (i = 0; i < 2; i++) {
		cache_make(&k, 0, 0);
		place = mmap(NULL, 4 * huge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		assert_ptr_not_equal(place, MAP_FAILED);
		at = (uint8_t *)(uintptr_t)crpc_align_up((uintptr_t)place, huge);
		at = mmap(at, 2 * huge - (i ? 4096 : 0), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_FIXED, fd, 0);
		assert_ptr_not_equal(at, MAP_FAILED);
		assert_int_equal(crpc_mrcache_get(k.c, at + huge + 5000, 10, &mr), 0);
		assert_ptr_equal(mr->addr, at + huge + (i ? 4096 : 0));
		assert_int_equal(mr->len, i ? 4096 : huge);
		cache_free(&k);
		munmap(place, 4 * huge);
	}
	close(fd);
}

/* A segment is one region, and every buffer in it a hit. */
static void
cache_takes_segments(void **state)
{
	struct crpc_shm_conf conf = {0};
	const struct crpc_rdma_mr *mr;
	struct crpc_shm *seg;
	char name[64];
	struct cache k;
	uint32_t i;

	snprintf(name, sizeof(name), "bulk_cache_%d", (int)getpid());
	conf.name = name;
	conf.kind = CRPC_SHM_KIND('t', 'e', 's', 't');
	conf.size = 1 << 20;
	seg = crpc_shm_create(&conf);
	if (seg == NULL)
		fail_msg("%s", crpc_log_last());
	cache_make(&k, 0, 0);
	assert_int_equal(crpc_mrcache_add_shm(k.c, seg), 0);
	for (i = 0; i < 100; i++) {
		assert_int_equal(
			crpc_mrcache_get(k.c, crpc_shm_ptr(seg, 4096 + i * 9000, 9000), 9000, &mr),
			0);
		crpc_mrcache_put(k.c, mr);
	}
	assert_int_equal(crpc_mrcache_stats(k.c)->misses, 1);
	assert_int_equal(crpc_mrcache_stats(k.c)->hits, 100);
	assert_int_equal(crpc_mrcache_invalidate(k.c, crpc_shm_header(seg), crpc_shm_size(seg)), 0);
	cache_free(&k);
	crpc_shm_free(seg);
}

/* Random use against a model of users: what is given covers what was asked, and all ends even. */
static void
cache_survives_random_use(void **state)
{
	const struct crpc_rdma_mr *mr[64];
	uint32_t i, at, len, n = 0, victim;
	struct cache k;

	cache_make(&k, 12, 700 << 10);
	for (i = 0; i < 4000; i++) {
		at = rnd_below(&seed, MEM - 1);
		len = 1 +
			rnd_below(&seed,
				(uint32_t)crpc_min(MEM - at, rnd_below(&seed, 4) ? 20000 : 200000));
		if (n < 64 && rnd_below(&seed, 2) &&
			crpc_mrcache_get(k.c, k.mem + at, len, &mr[n]) == 0) {
			assert_true((uint8_t *)mr[n]->addr <= k.mem + at);
			assert_true((uint8_t *)mr[n]->addr + mr[n]->len >= k.mem + at + len);
			n++;
		} else if (n != 0) {
			victim = rnd_below(&seed, n);
			crpc_mrcache_put(k.c, mr[victim]);
			mr[victim] = mr[--n];
		}
		if (rnd_below(&seed, 50) == 0)
			crpc_mrcache_invalidate(k.c, k.mem + at, len);
		if (crpc_mrcache_check(k.c) != 0)
			fail_msg("step %u: %s", i, crpc_log_last());
		assert_int_equal(crpc_mrcache_stats(k.c)->users, n);
	}
	while (n-- != 0)
		crpc_mrcache_put(k.c, mr[n]);
	assert_int_equal(crpc_mrcache_invalidate(k.c, k.mem, MEM), 0);
	assert_int_equal(crpc_mrcache_stats(k.c)->bytes, 0);
	cache_free(&k);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
			cmocka_unit_test(crc_has_the_known_values),
			cmocka_unit_test(crc_is_the_same_by_both_codes),
			cmocka_unit_test(every_copy_copies),
			cmocka_unit_test(cpu_engine_gathers),
			cmocka_unit_test(engines_have_names),
			cmocka_unit_test(cache_finds_what_it_has),
			cmocka_unit_test(cache_is_bounded),
			cmocka_unit_test(cache_forgets_what_is_unmapped),
			cmocka_unit_test(cache_widens_to_huge_pages),
			cmocka_unit_test(cache_takes_segments),
			cmocka_unit_test(cache_survives_random_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
