/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "crpc_clock.h"
#include "crpc_idle.h"
#include "pair.h"

#define END_MS 5000
#define JOIN_SPINS 2000
#define NAP_NS 50000

/* What a message to the second process is. */
#define MSG_RUN 1
#define MSG_FDS 2

struct blob {
	_Atomic uint32_t len; /* Plus one; 0: nothing is shown. */
	uint8_t data[RPB_PAIR_BLOB_MAX];
};

/* Shared by both processes. */
struct rpb_pair {
	struct rpb_flags flags;
	struct app_court court;
	struct app_lines lines;
	_Atomic uint32_t ended; /* Number of the last function that returned. */
	uint32_t begun;
	rpb_pair_fn fn;
	int rc;
	pid_t first, second;
	int sock[2]; /* Of the first and of the second process. */
	bool gone;
	char why[512];
	struct blob blob[2];
	uint8_t arg[RPB_PAIR_ARG_MAX] crpc_aligned(CRPC_CACHE_LINE);
};

static struct rpb_pair *quitting; /* In the second process, for its signal handler. */
static void (*on_quit)(void);
static _Atomic int quit;

void
rpb_pair_on_quit(void (*fn)(void))
{
	on_quit = fn;
}

/* ---- the second process ---- */

/* A SIGTERM to the whole group, as timeout(1) sends it, is for the first process too. */
static void
second_signal(int sig)
{
	if (getppid() == quitting->first)
		return;
	crpc_store_relaxed(&quit, 1);
	rpb_pair_stop(quitting);
}

/* Ctrl-C is for the first process; that one's end, for which SIGTERM comes, ends this one too. */
static void
second_signals(struct rpb_pair *p)
{
	struct sigaction on = {.sa_handler = second_signal};
	struct sigaction off = {.sa_handler = SIG_IGN};

	quitting = p;
	sigaction(SIGTERM, &on, NULL);
	sigaction(SIGINT, &off, NULL);
	sigaction(SIGPIPE, &off, NULL);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != p->first)
		crpc_store_relaxed(&quit, 1);
}

static void
second_main(struct rpb_pair *p)
{
	char go;

	close(p->sock[0]);
	second_signals(p);
	while (crpc_load_relaxed(&quit) == 0 && recv(p->sock[1], &go, 1, 0) == 1) {
		if (go != MSG_RUN) /* Descriptors that a function did not wait for. */
			continue;
		p->rc = p->fn(p, p->arg);
		crpc_store_release(&p->ended, p->begun); /* R52 */
	}
	if (on_quit != NULL)
		on_quit();
	exit(0);
}

int
rpb_pair_fail(struct rpb_pair *p, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(p->why, sizeof(p->why), fmt, ap);
	va_end(ap);
	return rc;
}

/* ---- the first ---- */

struct rpb_pair *
rpb_pair_start(void)
{
	struct rpb_pair *p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	const struct timeval limit = {.tv_sec = END_MS / 1000};
	pid_t second;
	int err;

	if (p == MAP_FAILED)
		return NULL;
	p->first = getpid();
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p->sock) != 0)
		goto err_map;
	setsockopt(p->sock[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	fflush(NULL);
	second = fork();
	if (second < 0)
		goto err_sock;
	if (second == 0)
		second_main(p);
	p->second = second;
	close(p->sock[1]);
	return p;

err_sock:
	err = errno;
	close(p->sock[0]);
	close(p->sock[1]);
	errno = err;
err_map:
	err = errno;
	munmap(p, sizeof(*p));
	errno = err;
	return NULL;
}

bool
rpb_pair_alive(struct rpb_pair *p)
{
	int status;

	if (p->gone)
		return false;
	if (waitpid(p->second, &status, WNOHANG) != p->second)
		return true;
	p->gone = true;
	if (WIFSIGNALED(status))
		rpb_pair_fail(p, 0, "the second process was ended by signal %d (%s)",
			WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		rpb_pair_fail(p, 0, "the second process ended with code %d", WEXITSTATUS(status));
	return false;
}

static void
nap(void)
{
	const struct timespec ts = {.tv_nsec = NAP_NS};

	nanosleep(&ts, NULL);
}

/* Wait until the process has ended: false if it does not in that time. */
static bool
wait_gone(struct rpb_pair *p, uint32_t timeout_ms)
{
	uint64_t end = crpc_clock_ns() + timeout_ms * UINT64_C(1000000);

	while (rpb_pair_alive(p)) {
		if (crpc_clock_ns() > end)
			return false;
		nap();
	}
	return true;
}

void
rpb_pair_end(struct rpb_pair *p)
{
	if (p == NULL)
		return;
	rpb_pair_stop(p);
	close(p->sock[0]);
	if (!wait_gone(p, END_MS)) {
		kill(p->second, SIGKILL);
		waitpid(p->second, NULL, 0);
	}
	munmap(p, sizeof(*p));
}

int
rpb_pair_run(struct rpb_pair *p, rpb_pair_fn fn, const void *arg, size_t len)
{
	char go = MSG_RUN;

	if (len > sizeof(p->arg))
		return -EMSGSIZE;
	if (p->gone)
		return -ECHILD;
	crpc_store_relaxed(&p->flags.ready, 0);
	crpc_store_relaxed(&p->flags.stop, 0);
	crpc_store_relaxed(&p->blob[RPB_FIRST].len, 0);
	crpc_store_relaxed(&p->blob[RPB_SECOND].len, 0);
	p->fn = fn;
	if (len != 0)
		memcpy(p->arg, arg, len);
	p->why[0] = '\0';
	p->begun++;
	/* The message orders all that after it. */
	if (send(p->sock[0], &go, 1, MSG_NOSIGNAL) == 1)
		return 0;
	wait_gone(p, END_MS);
	return -ECHILD;
}

int
rpb_pair_join(struct rpb_pair *p, uint32_t timeout_ms)
{
	uint64_t end = crpc_clock_ns() + timeout_ms * UINT64_C(1000000);
	uint32_t spins = 0;

	/* A52 pairs with R52: what the function did. */
	while (crpc_load_acquire(&p->ended) != p->begun) {
		if (spins++ < JOIN_SPINS) {
			crpc_pause();
			continue;
		}
		if (!rpb_pair_alive(p))
			return -ECHILD;
		if (crpc_clock_ns() > end)
			return -ETIMEDOUT;
		nap();
	}
	return p->rc;
}

const char *
rpb_pair_why(const struct rpb_pair *p)
{
	return p->why;
}

static int
pin_self(struct rpb_pair *p, void *arg)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(*(int *)arg, &set);
	if (sched_setaffinity(0, sizeof(set), &set) != 0)
		return rpb_pair_fail(
			p, -errno, "pinning to core %d: %s", *(int *)arg, strerror(errno));
	crpc_clock_init();
	return 0;
}

int
rpb_pair_pin(struct rpb_pair *p, int cpu)
{
	int rc = rpb_pair_run(p, pin_self, &cpu, sizeof(cpu));

	return rc != 0 ? rc : rpb_pair_join(p, END_MS);
}

/* ---- exchange ---- */

int
rpb_pair_show(struct rpb_pair *p, enum rpb_side me, const void *buf, size_t len)
{
	struct blob *b = &p->blob[me];

	if (len > sizeof(b->data))
		return -EMSGSIZE;
	memcpy(b->data, buf, len);
	crpc_store_release(&b->len, (uint32_t)len + 1); /* R53 */
	return 0;
}

/* True while waiting for the other side makes sense. */
static bool
other_alive(struct rpb_pair *p, enum rpb_side me)
{
	if (me == RPB_SECOND)
		return crpc_load_relaxed(&quit) == 0 && !rpb_pair_stopped(p);
	/* A function that has returned shows nothing any more. */
	return rpb_pair_alive(p) && crpc_load_acquire(&p->ended) != p->begun; /* A52 */
}

int
rpb_pair_see(struct rpb_pair *p, enum rpb_side me, void *buf, size_t len, uint32_t timeout_ms)
{
	struct blob *b = &p->blob[me == RPB_FIRST ? RPB_SECOND : RPB_FIRST];
	uint64_t end = crpc_clock_ns() + timeout_ms * UINT64_C(1000000);
	uint32_t shown;
	bool alive;

	do {
		alive = other_alive(p, me);
		shown = crpc_load_acquire(&b->len); /* A53 pairs with R53 */
		if (shown != 0 && shown - 1 > len)
			return -EMSGSIZE;
		if (shown != 0) {
			memcpy(buf, b->data, shown - 1);
			return (int)(shown - 1);
		}
		if (crpc_clock_ns() > end)
			return -ETIMEDOUT;
		nap();
	} while (alive);
	return -ECHILD;
}

int
rpb_pair_give_fds(struct rpb_pair *p, const int *fd, uint32_t n)
{
	char byte = MSG_FDS, control[CMSG_SPACE(RPB_PAIR_FDS_MAX * sizeof(int))] = {0};
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
		.msg_controllen = CMSG_SPACE(n * sizeof(int))};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	if (n > RPB_PAIR_FDS_MAX)
		return -EMSGSIZE;
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	memcpy(CMSG_DATA(c), fd, n * sizeof(int));
	return sendmsg(p->sock[0], &msg, MSG_NOSIGNAL) == 1 ? 0 : -errno;
}

int
rpb_pair_take_fds(struct rpb_pair *p, int *fd, uint32_t n)
{
	char byte, control[CMSG_SPACE(RPB_PAIR_FDS_MAX * sizeof(int))];
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
		.msg_controllen = sizeof(control)};
	struct pollfd in = {.fd = p->sock[1], .events = POLLIN};
	struct cmsghdr *c;

	if (poll(&in, 1, END_MS) != 1)
		return -ETIMEDOUT;
	if (recvmsg(p->sock[1], &msg, MSG_CMSG_CLOEXEC) != 1)
		return errno != 0 ? -errno : -EIO;
	c = CMSG_FIRSTHDR(&msg);
	/* None came: the limit of open files is reached. */
	if (c == NULL || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(n * sizeof(int)))
		return -EMFILE;
	memcpy(fd, CMSG_DATA(c), n * sizeof(int));
	return 0;
}

/* ---- the machine's limits ---- */

/* In flight while their rate is measured. */
#define LINES 1024u

static int
pong(struct rpb_pair *p, void *arg)
{
	app_court_pong(&p->court);
	return 0;
}

double
rpb_pair_line_ns(struct rpb_pair *p)
{
	double ns;

	app_court_reset(&p->court);
	if (rpb_pair_run(p, pong, NULL, 0) != 0)
		return -1;
	ns = app_court_ping(&p->court);
	return rpb_pair_join(p, END_MS) == 0 ? ns : -1;
}

static int
line_reader(struct rpb_pair *p, void *arg)
{
	app_lines_move(NULL, &p->lines, LINES);
	return 0;
}

double
rpb_pair_line_rate(struct rpb_pair *p)
{
	app_lines_begin(&p->lines, APP_LINES_NS);
	if (rpb_pair_run(p, line_reader, NULL, 0) != 0)
		return -1;
	app_lines_move(&p->lines, NULL, LINES);
	if (rpb_pair_join(p, END_MS) != 0)
		return -1;
	return (double)crpc_load_relaxed(&p->lines.freed) * 1e3 / APP_LINES_NS;
}
