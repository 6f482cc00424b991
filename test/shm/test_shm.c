/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Segments: who owns one is decided by the kernel and by nothing else; a dead owner's leftover is
 * replaced and a living owner's, or a foreign, file is never touched; every field of a header is
 * checked; space is there before anybody touches it.
 */
#include "shm_test.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

static struct crpc_shm *
create(const char *name, uint64_t size)
{
	return create_as(name, size, false);
}

/* ---- tests ---- */

TEST(owner_and_others_see_the_same_bytes)
{
	struct crpc_shm *own = create("a", SIZE), *seg;
	struct stat st;
	uint8_t *p, *q;
	uint64_t off, i;

	assert_non_null(own);
	assert_true(crpc_shm_size(own) >= SIZE);
	assert_int_equal(stat(crpc_shm_path(own), &st), 0);
	assert_true((uint64_t)st.st_blocks * 512 >=
			crpc_shm_size(own)); /* reserved, not promised */
	assert_int_equal(st.st_mode & 0777, 0600);
	p = crpc_shm_ptr(own, 0, crpc_shm_size(own));
	for (i = sizeof(struct crpc_shm_header); i < crpc_shm_size(own); i++)
		assert_int_equal(p[i], 0);
	p[5000] = 7;
	crpc_shm_ready(own);
	seg = attach("a");
	assert_non_null(seg);
	q = crpc_shm_ptr(seg, 5000, 1);
	assert_ptr_not_equal(p + 5000, q);
	assert_int_equal(*q, 7);
	assert_int_equal(crpc_shm_off(seg, q, 1, &off), 0);
	assert_int_equal(off, 5000);
	assert_true(crpc_shm_owner_alive(seg));
	assert_int_equal(crpc_shm_header(seg)->owner_pid, getpid());
	crpc_shm_free(own);
	assert_false(crpc_shm_owner_alive(seg));
	assert_false(exists("crpc.a"));
	assert_int_equal(*q, 7); /* mapped until detached */
	crpc_shm_detach(seg);
}

TEST(translation_is_bounded)
{
	struct crpc_shm *seg = create("a", SIZE);
	uint64_t size, off = 99;
	uint8_t *base;

	assert_non_null(seg);
	size = crpc_shm_size(seg);
	base = crpc_shm_ptr(seg, 0, size);
	assert_non_null(base);
	assert_ptr_equal(crpc_shm_ptr(seg, size, 0), base + size);
	assert_null(crpc_shm_ptr(seg, 0, size + 1));
	assert_null(crpc_shm_ptr(seg, size, 1));
	assert_null(crpc_shm_ptr(seg, size + 1, 0));
	assert_null(crpc_shm_ptr(seg, 1, UINT64_MAX));
	assert_null(crpc_shm_ptr(seg, UINT64_MAX, 1));
	assert_int_equal(crpc_shm_off(seg, base + size - 1, 1, &off), 0);
	assert_int_equal(off, size - 1);
	assert_int_equal(crpc_shm_off(seg, base + size - 1, 2, &off), -ERANGE);
	assert_int_equal(crpc_shm_off(seg, base - 1, 1, &off), -ERANGE);
	assert_int_equal(crpc_shm_off(seg, base, UINT64_MAX, &off), -ERANGE);
	assert_int_equal(off, size - 1);
	crpc_shm_free(seg);
}

TEST(a_living_owner_is_left_alone)
{
	struct crpc_shm *own = create("a", SIZE);

	assert_non_null(own);
	assert_fails(create("a", SIZE), EADDRINUSE); /* not ready yet, and owned all the same */
	crpc_shm_ready(own);
	assert_fails(create("a", SIZE), EADDRINUSE);
	assert_logged("living");
	assert_true(exists("crpc.a"));
	crpc_shm_free(own);
}

/* What is left is replaced, and is not confused with what replaces it. */
static void
check_death_of_an_owner(bool memfd)
{
	pid_t pid = start_owner(memfd);
	struct crpc_shm *seg = attach("a"), *next;
	struct crpc_shm_lock *lock;

	assert_non_null(seg);
	assert_int_equal(*(uint32_t *)crpc_shm_ptr(seg, 4096, 4), 77);
	assert_int_equal(crpc_shm_header(seg)->owner_pid, pid);
	assert_true(crpc_shm_owner_alive(seg));
	assert_fails(create_as("a", SIZE, memfd), EADDRINUSE);
	crpc_shm_detach(attach("a"));
	assert_non_null(lock = crpc_shm_lock_take(seg, 9));
	assert_int_equal(crpc_shm_lock_count(seg, 0, 9), 2);
	assert_int_equal(crpc_shm_lock_count(seg, 1, CRPC_SHM_USERS_LAST), 1);
	assert_int_equal(crpc_shm_lock_count(seg, 10, UINT32_MAX), 0);
	assert_int_equal(crpc_shm_lock_count(seg, 9, 8), 0);
	assert_fails(crpc_shm_lock_take(seg, 9), EAGAIN);
	assert_fails(crpc_shm_lock_take(seg, 0), EAGAIN);
	crpc_shm_lock_drop(lock);
	assert_int_equal(crpc_shm_lock_held(seg, 9), 0);
	child_kill(pid);
	assert_false(crpc_shm_owner_alive(seg));
	assert_fails(attach("a"), ECONNREFUSED);
	assert_true(exists("crpc.a") && exists("crpc.a.sock") == memfd);
	pid = start_owner(memfd);
	assert_non_null(next = attach("a"));
	assert_int_equal(crpc_shm_header(next)->owner_pid, pid);
	assert_true(crpc_shm_header(next)->incarnation != crpc_shm_header(seg)->incarnation);
	assert_false(crpc_shm_owner_alive(seg));
	assert_int_equal(*(uint32_t *)crpc_shm_ptr(seg, 4096, 4), 77);
	if (!memfd)
		assert_fails(crpc_shm_lock_take(seg, 5), ECONNREFUSED);
	crpc_shm_detach(seg);
	crpc_shm_detach(next);
	child_kill(pid);
	crpc_shm_free(create_as("a", 2 * SIZE, memfd));
	assert_true(a_is_gone());
}

TEST(a_dead_owners_leftover_is_replaced)
{
	check_death_of_an_owner(false);
	check_death_of_an_owner(true);
}

TEST(a_stopped_owner_lives)
{
	struct crpc_shm *seg;

	for (int memfd = 0; memfd < 2; memfd++) {
		pid_t pid = start_owner(memfd != 0);

		assert_non_null(seg = attach("a"));
		assert_int_equal(kill(pid, SIGSTOP), 0);
		assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
		assert_true(crpc_shm_owner_alive(seg));
		assert_fails(create("a", SIZE), EADDRINUSE);
		child_kill(pid);
		crpc_shm_detach(seg);
		crpc_shm_free(create("a", SIZE));
	}
}

/* The pid of a child that outlives the owner stands in the segment. */
static void
own_and_fork(void)
{
	pid_t child;

	own();
	child = fork();
	while (child == 0)
		pause();
	*(pid_t *)crpc_shm_ptr(owned, 5000, sizeof(child)) = child;
}

static void *unforked;

static int
child_lacks_it(void)
{
	unsigned char there;

	return mincore(unforked, 1, &there) == 0 ? 77 : 0;
}

/* An emulator of another machine ignores MADV_DONTFORK, on which the next test stands. */
static void
dontfork_works(void)
{
	size_t len = (size_t)sysconf(_SC_PAGESIZE);

	unforked = mmap(NULL, len, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(unforked != MAP_FAILED);
	assert_ok(madvise(unforked, len, MADV_DONTFORK));
	child_runs(child_lacks_it);
	munmap(unforked, len);
}

/* A memfd's child has the listening socket, too. */
TEST(a_forked_child_keeps_nothing_alive)
{
	struct crpc_shm *seg, *next;
	pid_t pid, child;

	dontfork_works();
	for (int memfd = 0; memfd < 2; memfd++) {
		owner_conf = conf_of("a", SIZE, memfd != 0);
		pid = child_start(own_and_fork, serve);
		assert_non_null(seg = attach("a"));
		child = *(pid_t *)crpc_shm_ptr(seg, 5000, sizeof(child));
		child_kill(pid);
		assert_int_equal(kill(child, 0), 0);
		assert_false(crpc_shm_owner_alive(seg));
		assert_fails(attach("a"), ECONNREFUSED);
		assert_non_null(next = create_as("a", SIZE, memfd != 0));
		crpc_shm_free(next);
		kill(child, SIGKILL);
		crpc_shm_detach(seg);
	}
}

TEST(each_header_field_is_checked)
{
	static const struct {
		size_t off, len;
		const char *says;
	} fields[] = {
			{offsetof(struct crpc_shm_header, magic), 8, "magic"},
			{offsetof(struct crpc_shm_header, version), 4, "segment version"},
			{offsetof(struct crpc_shm_header, header_size), 4, "header size"},
			{offsetof(struct crpc_shm_header, total_size), 8, "total size"},
			{offsetof(struct crpc_shm_header, kind), 4, "kind"},
			{offsetof(struct crpc_shm_header, kind_version), 4, "layout version"},
			{offsetof(struct crpc_shm_header, state), 4, "state"},
	};
	struct crpc_shm *own = create("a", SIZE);
	uint8_t *hdr, saved[8];

	assert_non_null(own);
	crpc_shm_ready(own);
	hdr = (uint8_t *)crpc_shm_header(own);
	for (size_t i = 0; i < CRPC_DIM(fields); i++) {
		memcpy(saved, hdr + fields[i].off, fields[i].len);
		for (size_t bit = 3; bit < 8 * fields[i].len; bit++) {
			hdr[fields[i].off + bit / 8] ^= (uint8_t)(1 << bit % 8);
			assert_fails(attach("a"), EPROTO);
			assert_logged(fields[i].says);
			memcpy(hdr + fields[i].off, saved, fields[i].len);
		}
	}
	assert_fails(crpc_shm_attach(dir, "a", KIND, 4, 0), EPROTO);
	assert_logged("is 0x3, expected 0x4");
	crpc_shm_detach(attach("a"));
	crpc_shm_free(own);
}

TEST(short_files_and_foreign_files)
{
	static const char text[] =
		"a user's notes, long enough to be taken for a header if it were not checked: "
		"a user's notes, long enough to be taken for a header";
	const char *path = path_of("crpc.x");
	char back[sizeof(text)];
	int fd = open(path, O_RDWR | O_CREAT, 0600);

	assert_true(fd >= 0);
	assert_fails(attach("x"), ECONNREFUSED); /* empty and unowned */
	assert_int_equal(write(fd, text, 20), 20);
	assert_fails(attach("x"), EPROTO);
	assert_fails(create("x", SIZE), EEXIST);
	assert_int_equal(pwrite(fd, text, sizeof(text), 0), sizeof(text));
	assert_fails(attach("x"), EPROTO);
	assert_fails(create("x", SIZE), EEXIST);
	assert_int_equal(pread(fd, back, sizeof(back), 0), sizeof(back));
	assert_memory_equal(back, text, sizeof(text));
	assert_true(exists("crpc.x"));
	close(fd);
	unlink(path);

	assert_int_equal(mkdir(path, 0700), 0);
	assert_fails(create("x", SIZE), EEXIST);
	rmdir(path);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	assert_fails(create("x", SIZE), EEXIST);
	assert_fails(attach("x"), ELOOP);
	unlink(path);
}

TEST(a_creator_that_died_early_is_replaced)
{
	off_t size;

	for (size = 0; size <= 8192; size += 4096) {
		int fd = open(path_of("crpc.x"), O_RDWR | O_CREAT, 0600);

		assert_true(fd >= 0);
		assert_int_equal(ftruncate(fd, size), 0);
		close(fd);
		assert_fails(attach("x"), ECONNREFUSED);
		crpc_shm_free(create("x", SIZE));
		assert_false(exists("crpc.x"));
	}
}

/* In a child with a mount namespace of its own: a memory file system of 256 KiB. */
static int
fill_a_small_file_system(void)
{
	struct crpc_shm *seg, *second;

	if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
		return 77;
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
			mount("none", dir, "tmpfs", 0, "size=256k") != 0)
		return 77;
	if (create("a", 300000) != NULL || errno != ENOSPC || exists("crpc.a"))
		return 1;
	if (strstr(crpc_log_last(), "262144 are free") == NULL)
		return 2;
	seg = create("a", 200000);
	if (seg == NULL)
		return 3;
	second = create("b", 100000);
	if (second != NULL || errno != ENOSPC || exists("crpc.b"))
		return 4;
	/* All of the first one can be written: what was reserved is there. */
	memset(crpc_shm_ptr(seg, 4096, 195904), 1, 195904);
	crpc_shm_free(seg);
	second = create("b", 250000);
	return second != NULL ? 0 : 5;
}

TEST(a_full_file_system_is_no_sigbus)
{
	child_runs(fill_a_small_file_system);
}

/* In a child with a mount namespace of its own: a hugetlbfs, which create and attach find alone. */
static int
use_huge_pages(void)
{
	struct crpc_shm_conf conf = conf_of("huge", SIZE, false);
	struct crpc_shm *own, *seg;
	struct crpc_shm_lock *lock;

	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
			mount("none", dir, "hugetlbfs", 0, NULL) != 0)
		return 77;
	conf.huge = conf.prefault = true;
	own = crpc_shm_create(&conf);
	if (own == NULL)
		return errno == ENOSPC || errno == ENOMEM || errno == EINVAL ? 77 : 1;
	if (crpc_shm_size(own) < 1 << 20 || crpc_shm_header(own)->page_size != crpc_shm_size(own))
		return 2;
	crpc_shm_ready(own);
	seg = attach("huge");
	if (seg == NULL || crpc_shm_size(seg) != crpc_shm_size(own))
		return 3;
	lock = crpc_shm_lock_take(seg, 4);
	if (lock == NULL || crpc_shm_lock_held(own, 4) != 1 || create("huge", SIZE) != NULL)
		return 4;
	crpc_shm_lock_drop(lock);
	crpc_shm_detach(seg);
	conf.name = "all";
	conf.size = UINT64_C(1) << 44;
	if (crpc_shm_create(&conf) != NULL || exists("crpc.all"))
		return 5;
	crpc_shm_free(own);
	return exists("crpc.huge") ? 6 : 0;
}

TEST(huge_pages_work_where_there_are_some)
{
	child_runs(use_huge_pages);
}

TEST(no_room_is_said_and_leaves_nothing)
{
	struct statvfs fs;

	assert_int_equal(statvfs(dir, &fs), 0);
	if (fs.f_blocks != 0) { /* else it has no limit of its own */
		assert_fails(create("big", (fs.f_blocks + 1) * fs.f_frsize), ENOSPC);
		assert_logged("crpc.big: cannot reserve");
		assert_false(exists("crpc.big"));
	}
	assert_fails(create("big", UINT64_MAX), EINVAL);
	assert_fails(create("small", sizeof(struct crpc_shm_header) - 1), EINVAL);
}

TEST(bad_names_and_places)
{
	static const char *const bad[] = {"", "a/b", "../x", "a b", "\n",
			"0123456789012345678901234567890123456789012345678"};
	struct crpc_shm_conf conf = {.name = "x", .dir = "/nonexistent", .size = SIZE};

	for (size_t i = 0; i < CRPC_DIM(bad); i++) {
		assert_fails(create(bad[i], SIZE), EINVAL);
		assert_fails(attach(bad[i]), EINVAL);
	}
	assert_fails(create(NULL, SIZE), EINVAL);
	assert_fails(crpc_shm_create(&conf), ENOENT);
	assert_fails(attach("missing"), ENOENT);
	assert_logged("crpc.missing");
	conf.dir = dir;
	conf.huge = true;
	assert_fails(crpc_shm_create(&conf), ENOTSUP);
	assert_false(exists("crpc.x"));
}

TEST(attach_waits_for_ready)
{
	struct crpc_shm *own = create("a", SIZE), *seg;
	pid_t pid;

	assert_non_null(own);
	assert_fails(attach("a"), EAGAIN);
	pid = fork_mortal();
	if (pid == 0) {
		seg = crpc_shm_attach(dir, "a", KIND, KIND_VERSION, 10000);
		_exit(seg == NULL);
	}
	usleep(20000);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	crpc_shm_ready(own);
	assert_int_equal(child_status(pid), 0);
	crpc_shm_free(own);
}

TEST(locks_exclude_and_drop)
{
	struct crpc_shm *own = create("a", SIZE), *seg;
	struct crpc_shm_lock *l1, *l2;

	assert_non_null(own);
	crpc_shm_ready(own);
	seg = attach("a");
	assert_non_null(seg);
	assert_int_equal(crpc_shm_lock_held(own, 9), 0);
	l1 = crpc_shm_lock_take(seg, 9);
	assert_non_null(l1);
	assert_int_equal(crpc_shm_lock_held(own, 9), 1);
	assert_int_equal(crpc_shm_lock_held(seg, 9), 1);
	assert_int_equal(crpc_shm_lock_held(seg, 8), 0);
	assert_fails(crpc_shm_lock_take(seg, 9), EAGAIN);
	assert_fails(crpc_shm_lock_take(seg, 0), EAGAIN);
	l2 = crpc_shm_lock_take(own, 10);
	assert_non_null(l2);
	crpc_shm_lock_drop(l1);
	assert_int_equal(crpc_shm_lock_held(seg, 9), 0);
	assert_int_equal(crpc_shm_lock_held(seg, 10), 1);
	crpc_shm_lock_drop(l2);
	crpc_shm_detach(seg);
	assert_true(crpc_shm_owner_alive(own));
	crpc_shm_free(own);
}

/* Create at the gate; a winner holds on until all the others have tried. */
static void
race(int gate, int hold)
{
	char c;

	if (read(gate, &c, 1) != 0)
		_exit(2);
	if (create("a", SIZE) == NULL)
		_exit(errno == EADDRINUSE ? 1 : 2);
	if (read(hold, &c, 1) != 0)
		_exit(2);
	_exit(0);
}

/* Eight creators over one leftover: exactly one owns it afterwards, in each of many rounds. */
TEST(one_of_many_creators_wins)
{
	int round, i, ms, status, won, ended, gate[2], hold[2];

	for (round = 0; round < 20; round++) {
		child_kill(start_owner(false));
		assert_int_equal(pipe(gate), 0);
		assert_int_equal(pipe(hold), 0);
		for (i = 0; i < 8; i++) {
			if (fork() != 0)
				continue;
			close(gate[1]);
			close(hold[1]);
			race(gate[0], hold[0]);
		}
		close(gate[0]);
		close(hold[0]);
		close(gate[1]);
		for (ended = won = ms = 0; ended < 8; ms++) {
			if (ended == 7 || ms == 10000)
				close(hold[1]);
			if (waitpid(-1, &status, ended == 7 || ms >= 10000 ? 0 : WNOHANG) <= 0) {
				usleep(1000);
				continue;
			}
			ended++;
			assert_true(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
			won += WEXITSTATUS(status) == 0;
		}
		assert_int_equal(won, 1);
	}
	crpc_shm_free(create("a", SIZE));
}

TEST(others_are_denied_unless_the_mode_lets_them)
{
	struct crpc_shm_conf conf = conf_of("a", SIZE, false);
	mode_t modes[] = {0600, 0666}, old = umask(077);
	struct crpc_shm *own;
	pid_t pid;

	if (geteuid() != 0) {
		umask(old);
		skip();
	}
	assert_int_equal(chmod(dir, 0755), 0);
	for (size_t i = 0; i < CRPC_DIM(modes); i++) {
		conf.mode = modes[i];
		own = crpc_shm_create(&conf);
		assert_non_null(own);
		crpc_shm_ready(own);
		pid = fork_mortal();
		if (pid == 0) {
			if (setgid(OTHER_UID) != 0 || setuid(OTHER_UID) != 0)
				_exit(99);
			_exit(attach("a") == NULL ? errno : 0);
		}
		assert_int_equal(child_status(pid), modes[i] == 0600 ? EACCES : 0);
		crpc_shm_free(own);
	}
	umask(old);
}

TEST_MAIN(make_dir, remove_dir)
