/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A cache of registrations to which the kernel reports what is unmapped: memory that was mapped
 * again at an old address is never given an old registration, whatever unmapped it; no thread waits
 * for a page or for the cache's owner; and where the kernel refuses, it works by hand. Skipped
 * where userfaultfd is not allowed, but for that last part.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <fcntl.h>

#include "test.h"

#include "crpc_log.h"
#include "crpc_mrcache.h"
#include "crpc_paper_nic.h"
#include "mrcache_watch.h"

#define PAGE UINT64_C(4096)
#define MEM  (64 * PAGE)

static struct crpc_paper world;
static struct crpc_rdma *dev;

static struct crpc_mrcache *
cache_make(void)
{
	struct crpc_mrcache *c = crpc_mrcache_create(
			&(struct crpc_mrcache_conf){.dev = dev, .watch = true});

	assert_non_null(c);
	return c;
}

static void
cache_free(struct crpc_mrcache *c)
{
	crpc_mrcache_free(c);
	assert_int_equal(__crpc_mrwatch_faults(), 0);
}

static uint8_t *
map_at(void *at, uint64_t len)
{
	uint8_t *p = mmap(at, len, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | (at != NULL ? MAP_FIXED : 0), -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

/* Used once: registered if it was not, and given back. True: it was registered again. */
static bool
use(struct crpc_mrcache *c, const uint8_t *p, uint64_t len)
{
	uint64_t misses = crpc_mrcache_stats(c)->misses;
	const struct crpc_rdma_mr *mr;

	assert_int_equal(crpc_mrcache_get(c, p, len, &mr), 0);
	crpc_mrcache_put(c, mr);
	return crpc_mrcache_stats(c)->misses != misses;
}

static void
unmap_and_map(uint8_t *p)
{
	assert_int_equal(munmap(p + 8 * PAGE, 4 * PAGE), 0);
	map_at(p + 8 * PAGE, 4 * PAGE);
}

static void
map_over(uint8_t *p)
{
	map_at(p + 8 * PAGE, 4 * PAGE);
}

static void
dont_need(uint8_t *p)
{
	assert_int_equal(madvise(p + 9 * PAGE, PAGE, MADV_DONTNEED), 0);
}

static void
move_away(uint8_t *p)
{
	uint8_t *q = mremap(p + 8 * PAGE, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
			p + 40 * PAGE);

	assert_ptr_equal(q, p + 40 * PAGE);
	map_at(p + 8 * PAGE, 4 * PAGE);
}

static void
move_over(uint8_t *p)
{
	assert_ptr_not_equal(mremap(p + 40 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
					     p + 8 * PAGE),
			MAP_FAILED);
	map_at(p + 40 * PAGE, PAGE);
}

/* However memory goes, what is mapped there then is registered again, and nothing else is. */
TEST(no_old_registration_is_given)
{
	static void (*const ways[])(uint8_t *) = {
			unmap_and_map, map_over, dont_need, move_away, move_over};
	struct crpc_mrcache *c = cache_make();
	uint8_t *p = map_at(NULL, MEM);

	for (uint64_t i = 0; i < CRPC_DIM(ways); i++) {
		use(c, p, PAGE);
		use(c, p + 8 * PAGE + 100, 3 * PAGE);
		assert_false(use(c, p + 8 * PAGE + 100, 3 * PAGE));
		ways[i](p);
		if (!use(c, p + 8 * PAGE + 100, 3 * PAGE))
			fail_msg("way %llu: the old registration was given",
					(unsigned long long)i);
		assert_false(use(c, p + 8 * PAGE + 100, 3 * PAGE));
		assert_false(use(c, p, PAGE));
		assert_int_equal(crpc_mrcache_stats(c)->unmapped, i + 1);
	}
	assert_int_equal(crpc_mrcache_stats(c)->unwatched, 0);
	cache_free(c);
	munmap(p, MEM);
}

/* What is in use is given out no more, and goes with its user. */
TEST(regions_in_use_go_with_their_user)
{
	struct crpc_mrcache *c = cache_make();
	const struct crpc_rdma_mr *old, *new;
	uint8_t *p = map_at(NULL, MEM);

	assert_int_equal(crpc_mrcache_get(c, p, 4 * PAGE, &old), 0);
	map_at(p, MEM);
	crpc_mrcache_progress(c);
	assert_int_equal(crpc_mrcache_stats(c)->unmapped, 1);
	assert_int_equal(crpc_mrcache_stats(c)->regions, 1);
	assert_int_equal(crpc_mrcache_get(c, p, 4 * PAGE, &new), 0);
	assert_ptr_not_equal(old, new);
	assert_int_equal(crpc_mrcache_stats(c)->regions, 2);
	crpc_mrcache_put(c, old);
	assert_int_equal(crpc_mrcache_stats(c)->regions, 1);
	crpc_mrcache_put(c, new);
	cache_free(c);
	munmap(p, MEM);
}

/* Two caches have the same memory; one of them ends, and the second still gets reports. */
TEST(caches_share_the_watcher)
{
	struct crpc_mrcache *a = cache_make(), *b = cache_make();
	uint8_t *p = map_at(NULL, MEM);

	use(a, p, 16 * PAGE);
	use(b, p + 4 * PAGE, 4 * PAGE);
	use(b, p + 12 * PAGE, 20 * PAGE);
	dont_need(p);
	assert_true(use(a, p, 16 * PAGE));
	assert_false(use(b, p + 4 * PAGE, 4 * PAGE));
	assert_int_equal(crpc_mrcache_stats(b)->unmapped, 0);
	cache_free(a);
	assert_int_equal(madvise(p + 5 * PAGE, PAGE, MADV_DONTNEED), 0);
	assert_true(use(b, p + 4 * PAGE, 4 * PAGE));
	assert_int_equal(madvise(p + 12 * PAGE, PAGE, MADV_DONTNEED), 0);
	assert_true(use(b, p + 12 * PAGE, 20 * PAGE));
	/* what only the first one had is of no interest to the second */
	dont_need(p);
	crpc_mrcache_progress(b);
	assert_int_equal(crpc_mrcache_stats(b)->unmapped, 2);
	cache_free(b);
	munmap(p, MEM);
}

/* Much more happens than the owner has looked at: it forgets all, and loses nothing. */
TEST(lost_reports_count_for_all)
{
	struct crpc_mrcache *c = cache_make();
	uint8_t *p = map_at(NULL, MEM);

	use(c, p, PAGE);
	use(c, p + 9 * PAGE, PAGE);
	use(c, p + 20 * PAGE, PAGE);
	for (uint32_t i = 0; i < 3 * MRWATCH_RANGES; i++)
		dont_need(p);
	map_at(p + 20 * PAGE, PAGE);
	assert_true(use(c, p + 20 * PAGE, PAGE));
	assert_true(use(c, p, PAGE));
	assert_false(use(c, p + 20 * PAGE, PAGE));
	cache_free(c);
	munmap(p, MEM);
}

/* ---- faults ---- */

#define PAGES 1024u

static void *
toucher(void *arg)
{
	uint8_t *p = arg;

	for (uint64_t i = 0; i < PAGES; i++)
		p[i * PAGE] = (uint8_t)i;
	return NULL;
}

/*
 * Pages that were never touched are touched by the program, by another thread and by the kernel,
 * before and after they went: none of it waits, and the watcher gets no fault. Of every type of
 * memory.
 */
TEST(faults_do_not_wait)
{
	uint64_t len = PAGES * PAGE, kind;
	struct crpc_mrcache *c = cache_make();
	char name[] = "/tmp/mrcache_watch_XXXXXX";
	int zero = open("/dev/zero", O_RDONLY), file = mkstemp(name), memfd;
	pthread_t thread;

	unlink(name);
	memfd = memfd_create("watch", 0);
	assert_true(zero >= 0 && file >= 0 && memfd >= 0);
	assert_int_equal(ftruncate(memfd, (off_t)len), 0);
	assert_int_equal(ftruncate(file, (off_t)len), 0);
	alarm(60);
	for (kind = 0; kind < 4; kind++) {
		uint8_t *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
				kind < 2 ? (kind == 0 ? MAP_PRIVATE : MAP_SHARED) | MAP_ANONYMOUS
					 : MAP_SHARED,
				kind < 2 ? -1 : (kind == 2 ? memfd : file), 0);

		assert_ptr_not_equal(p, MAP_FAILED);
		use(c, p, len);
		for (uint32_t round = 0; round < 2; round++) {
			assert_int_equal(read(zero, p + len / 2, len / 4), (ssize_t)(len / 4));
			assert_int_equal(pthread_create(&thread, NULL, toucher, p + 64), 0);
			toucher(p);
			pthread_join(thread, NULL);
			for (uint32_t pages = 0; pages < PAGES; pages++)
				assert_true(p[(uint64_t)pages * PAGE] == (uint8_t)pages &&
						p[(uint64_t)pages * PAGE + 64] == (uint8_t)pages);
			assert_int_equal(madvise(p, len, MADV_DONTNEED), 0);
		}
		assert_true(use(c, p, len));
		munmap(p, len);
	}
	alarm(0);
	close(zero);
	close(file);
	close(memfd);
	cache_free(c);
}

/* ---- threads ---- */

static _Atomic uint32_t turn;
static uint8_t *shared;

#define ROUNDS 400u

/* Unmaps and maps again, then lets the owner look. */
static void *
unmapper(void *arg)
{
	for (uint32_t i = 0; i < ROUNDS; i++) {
		while (crpc_load_acquire(&turn) != 2 * i)
			sched_yield();
		if (i % 2 == 0)
			madvise(shared + PAGE, PAGE, MADV_DONTNEED);
		else
			mmap(shared, 4 * PAGE, PROT_READ | PROT_WRITE,
					MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		crpc_store_release(&turn, 2 * i + 1);
	}
	return NULL;
}

/* Another one disturbs with memory that is watched but of no interest. */
static _Atomic bool stop;

static void *
disturber(void *arg)
{
	uint8_t *p = arg;

	while (!crpc_load_acquire(&stop))
		madvise(p, PAGE, MADV_DONTNEED);
	return NULL;
}

/* The owner never gets an old registration after another thread's call has returned. */
TEST(other_threads_unmap)
{
	struct crpc_mrcache *c = cache_make(), *other = cache_make();
	uint8_t *p = map_at(NULL, MEM);
	pthread_t thread[2];

	shared = map_at(NULL, 4 * PAGE);
	crpc_store_relaxed(&turn, 1);
	use(c, shared, 4 * PAGE);
	use(other, p, PAGE);
	crpc_store_relaxed(&turn, 0);
	assert_int_equal(pthread_create(&thread[0], NULL, unmapper, NULL), 0);
	assert_int_equal(pthread_create(&thread[1], NULL, disturber, p), 0);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		while (crpc_load_acquire(&turn) != 2 * i + 1)
			sched_yield();
		if (!use(c, shared, 4 * PAGE))
			fail_msg("round %u: an old registration", i);
		crpc_store_release(&turn, 2 * i + 2);
	}
	crpc_store_release(&stop, true);
	pthread_join(thread[0], NULL);
	pthread_join(thread[1], NULL);
	cache_free(other);
	cache_free(c);
	munmap(p, MEM);
	munmap(shared, 4 * PAGE);
}

/* Caches come and go while others unmap. */
TEST(caches_come_and_go)
{
	uint8_t *p = map_at(NULL, MEM);
	pthread_t thread;

	crpc_store_relaxed(&stop, false);
	assert_int_equal(pthread_create(&thread, NULL, disturber, p), 0);
	for (uint32_t i = 0; i < 40; i++) {
		struct crpc_mrcache *c = cache_make();

		use(c, p, 2 * PAGE);
		crpc_mrcache_progress(c);
		cache_free(c);
	}
	crpc_store_release(&stop, true);
	pthread_join(thread, NULL);
	munmap(p, MEM);
}

/* ---- refused ---- */

/* userfaultfd, and the ioctl of its device, are not permitted from here on. */
static bool
forbid(void)
{
	struct sock_filter filter[] = {
			BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 3, 0),
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
			BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xAA00, 0, 1),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {.len = CRPC_DIM(filter), .filter = filter};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0;
}

static uint32_t said;

static void
sink(enum crpc_log_level level, const char *type, const char *line)
{
	said += level == CRPC_LOG_WARNING && strstr(line, "vm.unprivileged_userfaultfd") != NULL;
}

static int
refused(void)
{
	struct crpc_mrcache *c;
	uint8_t *p = map_at(NULL, MEM);

	if (!forbid())
		return 77;
	crpc_log_set_sink(sink, CRPC_LOG_WARNING);
	c = cache_make();
	if (crpc_mrcache_watches(c) || said != 1)
		return 1;
	if (cache_make() == NULL || said != 1)
		return 2; /* it is said once */
	use(c, p, PAGE);
	map_at(p, PAGE);
	if (use(c, p, PAGE)) /* nothing is reported */
		return 3;
	if (crpc_mrcache_invalidate(c, p, PAGE) != 0 || !use(c, p, PAGE))
		return 4;
	return 0;
}

static void
works_by_hand_where_it_is_refused(void **state)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(refused());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
}

int
main(void)
{
	const struct CMUnitTest by_hand[] = {
			cmocka_unit_test(works_by_hand_where_it_is_refused),
	};
	struct crpc_mrcache *c;
	bool watches;
	int rc;

	dev = crpc_paper_open(&world, &(struct crpc_paper_conf){.inline_max = 64});
	rc = cmocka_run_group_tests(by_hand, NULL, NULL);
	c = crpc_mrcache_create(&(struct crpc_mrcache_conf){.dev = dev, .watch = true});
	watches = crpc_mrcache_watches(c);
	crpc_mrcache_free(c);
	if (watches)
		rc += test_run(NULL, NULL);
	else
		print_message("skipped: userfaultfd is not allowed here\n");
	crpc_rdma_close(dev);
	return rc == 0 && !watches ? 77 : rc;
}
