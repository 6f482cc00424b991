/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory without a name: users on the owner's list get it, sealed, over a socket; others do not;
 * a stale socket is replaced and a living one is not; an owner that lies is refused. And what a
 * tool sees and may remove.
 */
#include "shm_test.h"

#include <grp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "golden.h"

#define GROUP  54321
#define SEALS  (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* As doc/protocol/shm_segment.md has it. */
struct answer {
	uint64_t magic;
	uint32_t version;
	uint32_t status;
	uint64_t size;
	uint64_t incarnation;
};
#define ANSWER_MAGIC UINT64_C(0x31534e4143505243)

static struct crpc_shm *
create_for(const char *name, const struct crpc_shm_allow *allow)
{
	struct crpc_shm_conf conf = conf_of(name, SIZE, true);

	conf.allow = allow;
	return crpc_shm_create(&conf);
}

static struct crpc_shm *
create(const char *name)
{
	return create_for(name, NULL);
}

/* ---- the socket by hand ---- */

static int
sock_listen(const char *name)
{
	struct sockaddr_un addr;
	int fd = sock_open(name, &addr);

	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(fd, 4), 0);
	return fd;
}

/* ---- tests: the way it should be ---- */

TEST(memory_is_shared_and_sealed)
{
	struct crpc_shm *seg = create("a");
	struct iovec io;
	struct answer a;
	char ctl[CMSG_SPACE(sizeof(int))];
	struct msghdr msg = {.msg_iov = &io,
			.msg_iovlen = 1,
			.msg_control = ctl,
			.msg_controllen = sizeof(ctl)};
	int sock, fd;

	assert_non_null(seg);
	assert_int_equal(crpc_shm_serve(seg), 0);
	sock = sock_connect("a");
	assert_true(sock >= 0);
	assert_int_equal(crpc_shm_serve(seg), 0); /* not ready: it waits */
	crpc_shm_ready(seg);
	assert_int_equal(crpc_shm_serve(seg), 1);
	io = (struct iovec){&a, sizeof(a)};
	assert_int_equal(recvmsg(sock, &msg, 0), sizeof(a));
	assert_true(a.magic == ANSWER_MAGIC && a.version == 1 && a.status == 0);
	assert_int_equal(a.size, crpc_shm_size(seg));
	assert_true(a.incarnation == crpc_shm_header(seg)->incarnation);
	assert_true(CMSG_FIRSTHDR(&msg)->cmsg_len == CMSG_LEN(sizeof(int)));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	assert_int_equal(fcntl(fd, F_GET_SEALS), SEALS);
	assert_int_equal(ftruncate(fd, 0), -1); /* what would be a SIGBUS */
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(fd, 1 << 20), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(pwrite(fd, "x", 1, 5000), 1);
	assert_int_equal(*(char *)crpc_shm_ptr(seg, 5000, 1), 'x');
	close(fd);
	close(sock);
	crpc_shm_free(seg);
	assert_true(a_is_gone());
}

/* What a child inherited is not its own: it can let go of it, and the owner keeps it. */
TEST(a_child_frees_only_what_it_inherited)
{
	struct crpc_shm_lock *lock;
	pid_t pid;

	for (int memfd = 0; memfd < 2; memfd++) {
		struct crpc_shm *seg = create_as("a", SIZE, memfd == 1);

		assert_non_null(seg);
		crpc_shm_ready(seg);
		lock = crpc_shm_lock_take(seg, 1);
		assert_non_null(lock);
		pid = fork_mortal();
		if (pid == 0) {
			crpc_shm_lock_drop(lock);
			crpc_shm_free(seg);
			_exit(0);
		}
		assert_int_equal(child_status(pid), 0);
		assert_true(exists("crpc.a"));
		assert_int_equal(exists("crpc.a.sock"), memfd);
		assert_true(crpc_shm_owner_alive(seg));
		assert_int_equal(crpc_shm_lock_held(seg, 1), 1);
		assert_int_equal(crpc_shm_header(seg)->state, CRPC_SHM_READY);
		crpc_shm_lock_drop(lock);
		crpc_shm_free(seg);
		assert_true(a_is_gone());
	}
}

/* As a service does that ends: its successor may have the name while it still serves. */
TEST(a_hidden_segment_lives_on_without_names)
{
	for (int memfd = 0; memfd < 2; memfd++) {
		struct crpc_shm *seg = create_as("a", SIZE, memfd == 1), *next;

		assert_non_null(seg);
		crpc_shm_ready(seg);
		crpc_shm_hide(seg);
		assert_true(a_is_gone());
		assert_int_equal(crpc_shm_serve(seg), 0);
		assert_true(crpc_shm_owner_alive(seg));
		assert_int_equal(crpc_shm_header(seg)->state, CRPC_SHM_READY);
		assert_non_null(next = create_as("a", SIZE, memfd == 1));
		crpc_shm_free(seg);
		assert_true(exists("crpc.a"));
		assert_int_equal(exists("crpc.a.sock"), memfd);
		crpc_shm_free(next);
		assert_true(a_is_gone());
	}
}

TEST(somebody_elses_socket_is_left_alone)
{
	int fd = sock_listen("a");

	assert_fails(create("a"), EADDRINUSE);
	assert_logged("listens");
	assert_true(exists("crpc.a.sock"));
	assert_false(exists("crpc.a"));
	close(fd); /* stale now */
	crpc_shm_free(create("a"));
	assert_false(exists("crpc.a.sock"));

	fd = open(path_of("crpc.a.sock"), O_CREAT | O_WRONLY, 0600);
	close(fd);
	assert_fails(create("a"), EEXIST);
	assert_true(exists("crpc.a.sock"));
	unlink(path_of("crpc.a.sock"));
}

/* A segment with a name takes over from one without, and back. */
TEST(a_door_gives_way_to_a_file)
{
	struct crpc_shm_conf conf = conf_of("a", SIZE, false);
	pid_t o = start_owner(true);
	struct crpc_shm *own, *seg;

	child_kill(o);
	own = crpc_shm_create(&conf);
	assert_non_null(own);
	assert_false(exists("crpc.a.sock"));
	crpc_shm_ready(own);
	seg = attach("a");
	assert_non_null(seg);
	crpc_shm_detach(seg);
	crpc_shm_free(own);
	assert_false(exists("crpc.a"));
}

TEST(a_silent_owner_is_no_dead_one)
{
	pid_t o;

	owner_conf = conf_of("a", SIZE, true);
	o = child_start(own, NULL);

	assert_fails(attach("a"), ETIMEDOUT);
	assert_logged("crpc_shm_serve");
	child_kill(o);
	assert_fails(attach("a"), ECONNREFUSED);
	crpc_shm_free(create("a"));
}

/* A process that connects can neither block the owner nor leave anything in it. */
TEST(connecting_costs_the_owner_nothing)
{
	struct crpc_shm *seg = create("a");
	int before, i, fd[40], served = 0;

	assert_non_null(seg);
	crpc_shm_ready(seg);
	before = test_open_files();
	for (i = 0; i < 40; i++) {
		fd[i] = sock_connect("a");
		assert_true(fd[i] >= 0);
		assert_true(write(fd[i], "hello", 5) == 5);
	}
	for (i = 0; i < 40; i += 2)
		close(fd[i]);
	assert_int_equal(crpc_shm_serve(seg), 16);
	for (i = 0; i < 4; i++)
		served += (int)crpc_shm_serve(seg);
	assert_int_equal(served, 24);
	for (i = 1; i < 40; i += 2)
		close(fd[i]);
	assert_int_equal(test_open_files(), before);
	crpc_shm_free(seg);
}

/* Make or attach a segment with at most so many descriptors. NULL: its cause was said. */
static struct crpc_shm *
with_few_files(rlim_t most, bool owns)
{
	struct rlimit all, few;
	struct crpc_shm *seg;
	int rc;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
	few = all;
	few.rlim_cur = most;
	crpc_log_clear();
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	seg = owns ? create("b") : attach("a");
	rc = errno;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
	if (seg != NULL)
		return seg;
	assert_int_equal(rc, EMFILE);
	assert_logged(strerror(EMFILE));
	return NULL;
}

/* Whichever descriptor cannot be had, the cause is said, and nothing is left. */
TEST(a_lack_of_descriptors_is_said)
{
	pid_t o = start_owner(true);
	int first = dup(STDIN_FILENO), files;
	uint32_t k, made[2] = {0};

	assert_true(first >= 0);
	close(first);
	files = test_open_files();
	for (k = 0; k < 16; k++) {
		struct crpc_shm *seg = with_few_files((rlim_t)first + k / 2, k % 2 != 0);

		made[k % 2] += seg != NULL;
		if (k % 2 != 0)
			crpc_shm_free(seg);
		else
			crpc_shm_detach(seg);
		assert_int_equal(test_open_files(), files);
		assert_false(exists("crpc.b"));
		assert_false(exists("crpc.b.sock"));
	}
	assert_in_range(made[0], 1, 7);
	assert_in_range(made[1], 1, 7);
	child_kill(o);
	crpc_shm_free(create("a"));
}

static uint32_t lines;

static void
count_line(enum crpc_log_level level, const char *type, const char *line)
{
	lines++;
}

/* An owner that has no descriptor for who waits says so once, not at every look, and serves on. */
TEST(a_lack_of_descriptors_is_said_once)
{
	struct crpc_shm *seg = create("a");
	int sock, first, round, i;
	struct rlimit all, few;

	assert_non_null(seg);
	crpc_shm_ready(seg);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
	few = all;
	crpc_log_set_sink(count_line, CRPC_LOG_ERR);
	for (round = 0; round < 2; round++) {
		lines = 0;
		assert_true((sock = sock_connect("a")) >= 0);
		assert_true((first = dup(sock)) >= 0);
		close(first);
		few.rlim_cur = (rlim_t)first;
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
		for (i = 0; i < 100; i++)
			assert_int_equal(crpc_shm_serve(seg), 0);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
		assert_int_equal(lines, 1);
		assert_int_equal(crpc_shm_serve(seg), 1);
		close(sock);
	}
	crpc_log_set_sink(NULL, CRPC_LOG_ERR);
	crpc_shm_free(seg);
}

TEST(a_long_directory_works)
{
	char saved[sizeof(dir)], longer[sizeof(dir)];
	pid_t o;
	struct crpc_shm *seg;

	strcpy(saved, dir);
	snprintf(longer, sizeof(longer), "%.40s/%0100d", saved, 1);
	assert_int_equal(mkdir(longer, 0700), 0);
	strcpy(dir, longer);
	o = start_owner(true);
	seg = attach("a");
	assert_non_null(seg);
	crpc_shm_detach(seg);
	child_kill(o);
	crpc_shm_free(create("a"));
	strcpy(dir, saved);
	assert_int_equal(rmdir(longer), 0);
}

TEST(no_room_is_said_and_leaves_nothing)
{
	struct crpc_shm_conf conf = conf_of("a", UINT64_C(1) << 45, true);
	struct crpc_shm_allow allow = {.uid_count = CRPC_SHM_ALLOW_MAX + 1};

	assert_fails(crpc_shm_create(&conf), ENOSPC);
	assert_logged("cannot reserve");
	conf.size = SIZE;
	conf.allow = &allow;
	assert_fails(crpc_shm_create(&conf), EINVAL);
	allow.uid_count = 0;
	conf.memfd = false;
	assert_fails(crpc_shm_create(&conf), EINVAL); /* a file has a mode, not a list */
	assert_true(a_is_gone());
}

TEST(huge_pages_work_where_there_are_some)
{
	struct crpc_shm_conf conf = conf_of("a", SIZE, true);
	struct crpc_shm *seg;
	int rc;

	conf.huge = conf.prefault = true;
	seg = crpc_shm_create(&conf);
	rc = errno;
	if (seg == NULL) {
		/* None are reserved, the kernel has none, or an emulator cannot map them. */
		assert_true(rc == ENOMEM || rc == ENOSPC || rc == ENOSYS || rc == ENODEV ||
			rc == EINVAL);
		assert_true(a_is_gone());
		skip();
	}
	assert_int_equal(crpc_shm_header(seg)->page_size, crpc_shm_size(seg));
	assert_true(crpc_shm_size(seg) >= 1 << 21);
	crpc_shm_free(seg);
}

/* The first process of a container: pids of its own, and its own view of them. */
static int
in_container(void)
{
	struct crpc_shm *seg;
	struct crpc_shm_lock *lock;

	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
			mount("proc", "/proc", "proc", 0, NULL) != 0)
		return 77;
	if (getpid() != 1)
		return 1;
	seg = attach("a");
	if (seg == NULL)
		return 2;
	if (*(uint32_t *)crpc_shm_ptr(seg, 4096, 4) != 77 || !crpc_shm_owner_alive(seg))
		return 3;
	lock = crpc_shm_lock_take(seg, 9);
	if (lock == NULL || crpc_shm_lock_held(seg, 9) != 1)
		return 4;
	/* A death is seen from here, too: the owner is killed when this byte is written. */
	crpc_store_relaxed((_Atomic uint8_t *)crpc_shm_ptr(seg, 5000, 1), 1);
	while (crpc_shm_owner_alive(seg))
		usleep(500);
	return 0;
}

/* Two containers that share a directory, and neither pids nor anything else. */
TEST(a_shared_directory_is_enough)
{
	pid_t o = start_owner(true);
	struct crpc_shm *seg = attach("a");
	pid_t pid = fork(), inner;
	bool over = false;
	int status;

	assert_non_null(seg);
	if (pid == 0) {
		if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0)
			_exit(77);
		inner = fork();
		if (inner == 0)
			_exit(in_container());
		waitpid(inner, &status, 0);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
	}
	while (crpc_load_relaxed((_Atomic uint8_t *)crpc_shm_ptr(seg, 5000, 1)) == 0 && !over) {
		over = waitpid(pid, &status, WNOHANG) == pid;
		usleep(500);
	}
	child_kill(o);
	crpc_shm_detach(seg);
	crpc_shm_free(create("a"));
	if (!over)
		assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- tests: the format ---- */

/* What differs by process is zeroed in the copy. */
static void
print_header(FILE *f, const char *what, const void *p, size_t len)
{
	uint8_t copy[256];
	struct crpc_shm_header *h = (struct crpc_shm_header *)(void *)copy;

	assert_true(len <= sizeof(copy));
	memcpy(copy, p, len);
	assert_true(h->owner_pid == (uint32_t)getpid() && h->owner_uid == geteuid());
	assert_true(h->owner_start != 0 && h->incarnation != 0);
	h->owner_pid = 0;
	h->owner_uid = 0;
	h->owner_start = 0;
	h->incarnation = 0;
	golden_bytes(f, what, 0, copy, len);
}

static char *
describe(void)
{
	struct crpc_shm *seg = create("golden");
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	struct answer a;
	uint8_t door[256];
	int fd, sock;

	assert_non_null(f);
	assert_non_null(seg);
	crpc_shm_ready(seg);
	print_header(f, "segment header", crpc_shm_header(seg), sizeof(struct crpc_shm_header));
	fd = open(path_of("crpc.golden"), O_RDONLY);
	assert_int_equal(pread(fd, door, sizeof(door), 0), sizeof(door));
	assert_int_equal(lseek(fd, 0, SEEK_END), sizeof(door));
	close(fd);
	print_header(f, "door", door, sizeof(door));
	sock = sock_connect("golden");
	assert_int_equal(crpc_shm_serve(seg), 1);
	assert_int_equal(recv(sock, &a, sizeof(a), 0), sizeof(a));
	close(sock);
	assert_true(a.incarnation == crpc_shm_header(seg)->incarnation);
	a.incarnation = 0;
	golden_bytes(f, "answer", 0, &a, sizeof(a));
	fclose(f);
	crpc_shm_free(seg);
	return text;
}

TEST(version_1_has_these_bytes)
{
	if (sysconf(_SC_PAGESIZE) != 4096)
		skip(); /* sizes are whole pages */
	golden_text(GOLDEN_FILE, describe());
}

/* ---- tests: users ---- */

/* What errno a process of these ids gets from attach: 0 if it may. */
static int
attach_as(uid_t uid, gid_t gid, gid_t extra)
{
	pid_t pid = fork_mortal();

	if (pid == 0) {
		if (setgroups(1, &extra) != 0 || setgid(gid) != 0 || setuid(uid) != 0)
			_exit(99);
		_exit(attach("a") == NULL ? errno : 0);
	}
	return child_status(pid);
}

TEST(the_list_decides_who_attaches)
{
	const uid_t users[] = {1, OTHER_UID}, other[] = {12345};
	const gid_t groups[] = {GROUP};
	const struct {
		struct crpc_shm_allow allow;
		int by_uid, by_gid, by_extra;
	} cases[] = {
			{{NULL, NULL, 0, 0}, EACCES, EACCES, EACCES},
			{{other, NULL, 1, 0}, EACCES, EACCES, EACCES},
			{{users, NULL, 2, 0}, 0, EACCES, EACCES},
			{{other, groups, 1, 1}, EACCES, 0, 0},
			{{NULL, groups, 0, 1}, EACCES, 0, 0},
	};
	pid_t o;

	if (geteuid() != 0)
		skip();
	assert_int_equal(chmod(dir, 0755), 0);
	for (size_t i = 0; i < CRPC_DIM(cases); i++) {
		owner_conf = conf_of("a", SIZE, true);
		owner_conf.allow = i == 0 ? NULL : &cases[i].allow;
		o = child_start(own, serve);
		assert_int_equal(attach_as(OTHER_UID, OTHER_UID, OTHER_UID), cases[i].by_uid);
		assert_int_equal(attach_as(777, GROUP, 777), cases[i].by_gid);
		assert_int_equal(attach_as(777, 777, GROUP), cases[i].by_extra);
		crpc_shm_detach(attach("a"));
		child_kill(o);
	}
	crpc_shm_free(create("a"));
}

TEST(the_kernel_reports_peers)
{
	const uid_t list[] = {4242};
	const struct crpc_shm_allow allow = {.uids = list, .uid_count = 1};
	struct crpc_shm_peer peer;
	int s[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
	assert_int_equal(crpc_shm_peer_get(s[0], &peer), 0);
	assert_int_equal(peer.pid, getpid());
	assert_int_equal(peer.uid, geteuid());
	assert_true(crpc_shm_allowed(NULL, &peer));
	peer.uid = 4242;
	assert_false(crpc_shm_allowed(NULL, &peer));
	assert_true(crpc_shm_allowed(&allow, &peer));
	peer.uid = 4243;
	peer.gid = 4242; /* a group is no user */
	assert_false(crpc_shm_allowed(&allow, &peer));
	assert_int_equal(crpc_shm_peer_get(-1, &peer), -EBADF);
	close(s[0]);
	close(s[1]);
}

/* Another user's segments, whose headers say that root owns them. */
static void
own_as_somebody(void)
{
	static const uid_t users[] = {0};
	static const struct crpc_shm_allow allow = {.uids = users, .uid_count = 1};
	struct crpc_shm *file;

	need(setuid(OTHER_UID) == 0);
	need((file = create_as("f", SIZE, false)) != NULL);
	need((owned = create_for("a", &allow)) != NULL);
	crpc_shm_header(file)->owner_uid = 0;
	crpc_shm_header(owned)->owner_uid = 0;
	crpc_shm_ready(file);
	crpc_shm_ready(owned);
}

/* Any user can take a name that is free: the kernel reports who has it, not a header. */
TEST(the_kernel_reports_who_serves)
{
	const char *const names[] = {"f", "a"};
	struct crpc_shm *seg;
	pid_t pid;

	if (geteuid() != 0)
		skip();
	assert_int_equal(chmod(dir, 0777), 0);
	pid = child_start(own_as_somebody, serve);
	for (int i = 0; i < 2; i++) {
		assert_non_null(seg = attach(names[i]));
		assert_int_equal(crpc_shm_owner_uid(seg), OTHER_UID);
		crpc_shm_detach(seg);
	}
	child_kill(pid);
	for (int i = 0; i < 2; i++)
		assert_int_equal(crpc_shm_remove(dir, names[i]), 0);
}

/* ---- tests: an owner that lies ---- */

enum lie {
	HONEST,
	SHORT,
	EMPTY,
	MAGIC,
	VERSION,
	STATUS,
	NO_FD,
	TWO_FDS,
	UNSEALED,
	SMALL,
	HEADER,
	NOT_OWNED,
	NO_FILE,
	SILENT,
	LIES
};

static const struct {
	const char *says;
	int rc;
} lies[LIES] = {
	[HONEST] = {"", 0},
	[SHORT] = {"length of the owner's answer is 0x5", EPROTO},
	[EMPTY] = {"dead", ECONNREFUSED}, /* with a descriptor, which is closed */
	[MAGIC] = {"magic of the owner's answer", EPROTO},
	[VERSION] = {"version of the owner's answer", EPROTO},
	[STATUS] = {"could not pass", EIO},
	[NO_FD] = {"number of descriptors is 0x0, expected 0x1", EPROTO},
	[TWO_FDS] = {"", 0}, /* the second is closed */
	[UNSEALED] = {"seals of its memory is 0x0", EPROTO},
	[SMALL] = {"file size", EPROTO},
	[HEADER] = {"layout version", EPROTO},
	[NOT_OWNED] = {"dead", ECONNREFUSED},
	[NO_FILE] = {"seals", EPROTO},
	[SILENT] = {"dead", ECONNREFUSED},
};

/* Memory as an honest owner would make it, but for one lie; its lock is held by *lock_fd. */
static int
make_memory(enum lie lie, int *lock_fd)
{
	struct crpc_shm_header h = {.magic = CRPC_SHM_MAGIC,
			.version = CRPC_SHM_VERSION,
			.header_size = sizeof(h),
			.total_size = 4096,
			.kind = KIND,
			.kind_version = lie == HEADER ? 4 : 3,
			.state = CRPC_SHM_READY};
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	char path[32];
	int fd = memfd_create("lie", MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, &h, sizeof(h), 0), sizeof(h));
	assert_int_equal(ftruncate(fd, lie == SMALL ? 100 : 4096), 0);
	if (lie != UNSEALED)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, SEALS), 0);
	if (lie != NOT_OWNED)
		assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	*lock_fd = fd;
	fd = open(path, O_RDWR);
	if (lie == NO_FILE) {
		close(fd);
		fd = open("/dev/null", O_RDWR);
	}
	return fd;
}

/* A door to the lies, owned by us: its descriptor. */
static int
make_door(void)
{
	struct crpc_shm_header h = {.magic = CRPC_SHM_MAGIC,
			.version = CRPC_SHM_VERSION,
			.header_size = sizeof(h),
			.kind = CRPC_SHM_KIND('D', 'O', 'O', 'R'),
			.state = CRPC_SHM_READY};
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	int fd = open(path_of("crpc.a"), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, &h, sizeof(h)), sizeof(h));
	assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
	return fd;
}

/* In a child: accept one, and lie to it. */
static void
lie_to_one(int listener, enum lie lie)
{
	struct answer a = {ANSWER_MAGIC, 1, 0, 4096, 5};
	struct iovec io = {&a, lie == SHORT ? 5 : lie == EMPTY ? 0 : sizeof(a)};
	char ctl[CMSG_SPACE(2 * sizeof(int))] = {0};
	struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1};
	int sock = accept(listener, NULL, NULL), lock_fd, fds[2];
	size_t len = (lie == TWO_FDS ? 2 : 1) * sizeof(int);

	fds[0] = fds[1] = make_memory(lie, &lock_fd);
	if (lie == MAGIC)
		a.magic++;
	if (lie == VERSION)
		a.version++;
	if (lie == STATUS)
		a.status = 123456789;
	if (lie != NO_FD && lie != STATUS) {
		msg.msg_control = ctl;
		msg.msg_controllen = CMSG_SPACE(len);
		CMSG_FIRSTHDR(&msg)->cmsg_level = SOL_SOCKET;
		CMSG_FIRSTHDR(&msg)->cmsg_type = SCM_RIGHTS;
		CMSG_FIRSTHDR(&msg)->cmsg_len = CMSG_LEN(len);
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&msg)), fds, len);
	}
	if (lie != SILENT)
		sendmsg(sock, &msg, 0);
	close(sock);
	for (;;)
		pause(); /* its lock must live meanwhile */
}

TEST(an_owner_that_lies_is_refused)
{
	struct crpc_shm *seg;
	int listener, before, door = make_door();
	pid_t pid;

	for (enum lie lie = HONEST; lie < LIES; lie++) {
		before = test_open_files();
		listener = sock_listen("a");
		pid = fork_mortal();
		if (pid == 0)
			lie_to_one(listener, lie);
		close(listener);
		crpc_log_clear();
		errno = 0;
		seg = attach("a");
		if (errno != lies[lie].rc || (seg != NULL) != (lies[lie].rc == 0) ||
			strstr(crpc_log_last(), lies[lie].says) == NULL)
			fail_msg("lie %d: errno %d, %s", lie, errno, crpc_log_last());
		crpc_shm_detach(seg);
		assert_int_equal(test_open_files(), before);
		child_kill(pid);
		unlink(path_of("crpc.a.sock"));
	}
	/* No socket: a door that opens or closes. */
	assert_fails(attach("a"), EAGAIN);
	close(door);
	assert_fails(attach("a"), ECONNREFUSED);
	assert_int_equal(crpc_shm_remove(dir, "a"), 0);
}

/* A socket that somebody put beside a segment does not catch those who want the segment. */
TEST(a_planted_socket_catches_nobody)
{
	struct crpc_shm_conf conf = conf_of("a", SIZE, false);
	struct crpc_shm *own = crpc_shm_create(&conf), *seg;
	int listener = sock_listen("a"), door;

	assert_non_null(own);
	crpc_shm_ready(own);
	seg = attach("a");
	assert_non_null(seg); /* the socket, which does not answer, was not used */
	crpc_shm_detach(seg);
	crpc_shm_free(own);
	assert_fails(attach("a"), ENOENT); /* a socket alone is nothing */
	if (geteuid() == 0) { /* beside a door, and another user's */
		door = make_door();
		assert_int_equal(chown(path_of("crpc.a.sock"), OTHER_UID, OTHER_UID), 0);
		assert_fails(attach("a"), EAGAIN);
		assert_int_equal(chown(path_of("crpc.a"), OTHER_UID, OTHER_UID), 0);
		assert_fails(attach("a"), EPROTO); /* both are, and somebody else listens */
		assert_logged("user who listens is 0x0, expected 0xfffe");
		close(door);
	}
	close(listener);
	assert_int_equal(crpc_shm_remove(dir, "a"), 0);
	assert_true(a_is_gone());
}

/* ---- tests: what tools see ---- */

TEST(inspection_shows_what_is_there)
{
	struct crpc_shm_conf conf = conf_of("f", SIZE, false);
	struct crpc_shm *seg = crpc_shm_create(&conf);
	struct crpc_shm_lock *lock[3];
	struct crpc_shm_info info;
	pid_t o;

	assert_non_null(seg);
	assert_int_equal(crpc_shm_inspect(dir, "crpc.f", &info), 0);
	assert_string_equal(info.name, "f");
	assert_true(info.living == 1 && info.state == CRPC_SHM_INIT && info.users == 0);
	crpc_shm_ready(seg);
	for (int i = 0; i < 3; i++)
		lock[i] = crpc_shm_lock_take(seg, (uint32_t)(1 + i * 300));
	assert_int_equal(crpc_shm_inspect(dir, "crpc.f", &info), 0);
	assert_true(info.state == CRPC_SHM_READY && info.users == 3 && info.kind == KIND);
	assert_true(info.medium == CRPC_SHM_FILE && info.size == crpc_shm_size(seg));
	assert_true(info.owner_pid == (uint32_t)getpid() && info.uid == geteuid());
	for (int i = 0; i < 3; i++)
		crpc_shm_lock_drop(lock[i]);
	assert_int_equal(crpc_shm_remove(dir, "f"), -EADDRINUSE);
	crpc_shm_free(seg);
	assert_int_equal(crpc_shm_inspect(dir, "crpc.f", &info), -ENOENT);
	assert_int_equal(crpc_shm_remove(dir, "f"), 0);

	o = start_owner(true);
	assert_int_equal(crpc_shm_inspect(dir, "crpc.a", &info), 0);
	assert_true(info.living == 1 && info.state == CRPC_SHM_READY && info.kind == KIND);
	assert_true(info.medium == CRPC_SHM_MEMFD && info.users == -1 && info.size >= SIZE);
	assert_int_equal(crpc_shm_inspect(dir, "crpc.a.sock", &info), -EINVAL);
	assert_int_equal(crpc_shm_remove(dir, "a"), -EADDRINUSE);
	child_kill(o);
	assert_int_equal(crpc_shm_inspect(dir, "crpc.a", &info), 0);
	assert_int_equal(info.living, 0);
	assert_int_equal(crpc_shm_remove(dir, "a"), 0);
	assert_true(a_is_gone());
}

TEST(what_is_not_ours_is_neither_listed_nor_removed)
{
	static const char *const names[] = {"x", "crpc", "crpc.", "crpc.a b", "crpc.x/y"};
	struct crpc_shm_info info;
	int fd;

	for (size_t i = 0; i < CRPC_DIM(names); i++)
		assert_int_not_equal(crpc_shm_inspect(dir, names[i], &info), 0);
	assert_int_equal(crpc_shm_remove(dir, "../x"), -EINVAL);
	fd = open(path_of("crpc.notes"), O_CREAT | O_WRONLY, 0600);
	assert_int_equal(write(fd, "notes", 5), 5);
	close(fd);
	assert_int_equal(crpc_shm_inspect(dir, "crpc.notes", &info), 0);
	assert_true(info.state == CRPC_SHM_BROKEN && info.living == 0);
	assert_int_equal(crpc_shm_remove(dir, "notes"), -EEXIST);
	unlink(path_of("crpc.notes"));
	/* A socket whose door was removed: it is in use if a process listens. */
	fd = sock_listen("s");
	assert_int_equal(crpc_shm_inspect(dir, "crpc.s.sock", &info), 0);
	assert_true(info.living == -1);
	assert_int_equal(crpc_shm_remove(dir, "s"), -EADDRINUSE);
	assert_true(exists("crpc.s.sock"));
	close(fd);
	assert_int_equal(crpc_shm_remove(dir, "s"), 0);
	assert_false(exists("crpc.s.sock") || exists("crpc.s"));
}

/* One process removes all the time while others start and die: no living one loses its file. */
TEST(removal_never_hits_a_living_one)
{
	pid_t remover = fork_mortal(), pid;

	if (remover == 0)
		for (;;)
			crpc_shm_remove(dir, "a");
	for (int round = 0; round < 150; round++) {
		pid = fork_mortal();
		if (pid == 0) {
			struct crpc_shm *seg = create("a");

			if (seg == NULL)
				_exit(errno == EADDRINUSE ? 0 : 2);
			crpc_shm_ready(seg);
			usleep(300);
			_exit(exists("crpc.a") && exists("crpc.a.sock") ? 0 : 1);
		}
		assert_int_equal(child_status(pid), 0);
	}
	child_kill(remover);
	crpc_shm_remove(dir, "a");
	assert_true(a_is_gone());
}

TEST_MAIN(make_dir, remove_dir)
