/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app_process.h"
#include "crpc_clock.h"
#include "crpc_idle.h"

#define END_MS 5000
/* Longer than the peer may be busy with a slice. */
#define WAIT_NS UINT64_C(150000000000)
#define SPINS   2000
#define NAP_NS  50000

/* Messages of one process. It is at most one ahead, so the peer has taken the last but one. */
struct box {
	_Atomic uint32_t sent crpc_aligned(CRPC_CACHE_GUARD);
	struct {
		uint32_t len;
		uint8_t bytes[APP_PROCESS_MAX];
	} msg[2];
};

/* Memory of both. */
struct app_process_memory {
	struct app_shared shared;
	struct box box[2];
	_Atomic uint32_t ended[2];
};

/* ---- the second process ---- */

static struct app_process *second; /* For its signal handler. */

/* A signal to the whole group, as timeout(1) sends it, is for the first process. */
static void
on_signal(int sig)
{
	if (getppid() != second->pid[0])
		crpc_store_release(&second->shared->flag[0].over, 1);
}

/* Ctrl-C is for the first process, whose end, for which SIGTERM comes, ends this one too. */
static void
second_begin(struct app_process *p)
{
	struct sigaction on = {.sa_handler = on_signal};

	second = p;
	p->side = 1;
	p->pid[1] = getpid();
	close(p->sock[0]);
	sigaction(SIGTERM, &on, NULL);
	signal(SIGINT, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (freopen("/dev/null", "w", stdout) == NULL)
		_exit(1);
}

/* ---- both ---- */

struct app_process *
app_process_start(void)
{
	struct app_process *p = calloc(1, sizeof(*p));
	const struct timeval limit = {.tv_sec = END_MS / 1000};
	int err;

	if (p == NULL)
		return NULL;
	p->m = mmap(NULL, sizeof(*p->m), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (p->m == MAP_FAILED)
		goto err_process;
	p->shared = &p->m->shared;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p->sock) != 0)
		goto err_map;
	setsockopt(p->sock[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	fflush(NULL);
	p->pid[0] = getpid();
	p->pid[1] = fork();
	if (p->pid[1] < 0)
		goto err_sock;
	if (p->pid[1] == 0)
		second_begin(p);
	else
		close(p->sock[1]);
	return p;

err_sock:
	err = errno;
	close(p->sock[0]);
	close(p->sock[1]);
	errno = err;
err_map:
	munmap(p->m, sizeof(*p->m));
err_process:
	free(p);
	return NULL;
}

bool
app_process_alive(struct app_process *p)
{
	int status;

	if (p->gone || p->side == 1)
		return !p->gone && getppid() == p->pid[0];
	if (waitpid(p->pid[1], &status, WNOHANG) != p->pid[1])
		return true;
	p->gone = true;
	if (WIFSIGNALED(status))
		snprintf(p->why, sizeof(p->why), "the second process was ended by signal %d (%s)",
			WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		snprintf(p->why, sizeof(p->why), "the second process ended with code %d",
			WEXITSTATUS(status));
	return false;
}

void
app_process_end(struct app_process *p)
{
	uint64_t end = crpc_clock_ns() + END_MS * UINT64_C(1000000);

	if (p == NULL)
		return;
	crpc_store_release(&p->m->ended[p->side], 1); /* R54 */
	crpc_store_release(&p->shared->flag[p->side].over, 1);
	while (p->side == 0 && app_process_alive(p) && crpc_clock_ns() < end)
		crpc_nap(NAP_NS);
	if (p->side == 0 && !p->gone) {
		kill(p->pid[1], SIGKILL);
		waitpid(p->pid[1], NULL, 0);
	}
	close(p->sock[p->side]);
	munmap(p->m, sizeof(*p->m));
	free(p);
}

int
app_process_send(struct app_process *p, const void *msg, size_t len)
{
	struct box *b = &p->m->box[p->side];
	uint32_t sent = crpc_load_relaxed(&b->sent);

	b->msg[sent % 2].len = (uint32_t)len;
	memcpy(b->msg[sent % 2].bytes, msg, len);
	crpc_store_release(&b->sent, sent + 1); /* R53 */
	return 0;
}

/* Nothing has come: whether something still may. */
static int
recv_nothing(struct app_process *p)
{
	if (p->spins < SPINS)
		return -EAGAIN;
	if (p->since_ns == 0)
		p->since_ns = crpc_clock_ns();
	if (!app_process_alive(p))
		return -ECONNRESET;
	/* The first process may wait for whoever reads its output. */
	if (p->side == 1 || crpc_clock_ns() - p->since_ns < WAIT_NS)
		return -EAGAIN;
	return -ETIMEDOUT;
}

int
app_process_recv(struct app_process *p, void *msg, size_t len)
{
	uint32_t ended = crpc_load_acquire(&p->m->ended[!p->side]); /* A54 pairs with R54 */
	struct box *b = &p->m->box[!p->side];
	uint32_t slot = p->taken % 2;

	if (crpc_load_acquire(&b->sent) == p->taken) /* A53 pairs with R53 */
		return ended != 0 ? -ECONNRESET : recv_nothing(p);
	p->taken++;
	p->spins = 0;
	p->since_ns = 0;
	if (b->msg[slot].len != len)
		return -EPROTO;
	memcpy(msg, b->msg[slot].bytes, len);
	return 0;
}

void
app_process_idle(struct app_process *p)
{
	if (p->spins++ < SPINS)
		crpc_pause();
	else
		crpc_nap(NAP_NS);
}

/* ---- descriptors ---- */

int
app_process_give_fds(struct app_process *p, const int *fd, uint32_t n)
{
	char byte = 0, control[CMSG_SPACE(APP_PROCESS_FDS_MAX * sizeof(int))] = {0};
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	struct msghdr msg = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = CMSG_SPACE(n * sizeof(int))};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	if (n > APP_PROCESS_FDS_MAX)
		return -EMSGSIZE;
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	memcpy(CMSG_DATA(c), fd, n * sizeof(int));
	return sendmsg(p->sock[0], &msg, MSG_NOSIGNAL) == 1 ? 0 : -errno;
}

int
app_process_take_fds(struct app_process *p, int *fd, uint32_t n)
{
	char byte, control[CMSG_SPACE(APP_PROCESS_FDS_MAX * sizeof(int))];
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	struct msghdr msg = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
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
