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
#define NAP_NS 50000

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
	close(p->link[0]);
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

	if (p == NULL)
		return NULL;
	p->shared = mmap(NULL, sizeof(*p->shared), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (p->shared == MAP_FAILED)
		goto err_process;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p->sock) != 0)
		goto err_map;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p->link) != 0)
		goto err_sock;
	setsockopt(p->sock[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	fflush(NULL);
	p->pid[0] = getpid();
	p->pid[1] = fork();
	if (p->pid[1] < 0)
		goto err_link;
	if (p->pid[1] == 0) {
		second_begin(p);
		return p;
	}
	close(p->sock[1]);
	close(p->link[1]);
	return p;

err_link:
	close(p->link[0]);
	close(p->link[1]);
err_sock:
	close(p->sock[0]);
	close(p->sock[1]);
err_map:
	munmap(p->shared, sizeof(*p->shared));
err_process:
	free(p);
	return NULL;
}

bool
app_process_ended(struct app_process *p, uint32_t wait_ms)
{
	uint64_t end = crpc_clock_ns() + wait_ms * UINT64_C(1000000);
	int status;

	if (p->gone)
		return true;
	while (waitpid(p->pid[1], &status, WNOHANG) != p->pid[1]) {
		if (crpc_clock_ns() >= end)
			return false;
		crpc_nap(NAP_NS);
	}
	p->gone = true;
	if (WIFSIGNALED(status))
		snprintf(p->why, sizeof(p->why), "the second process was ended by signal %d (%s)",
			WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		snprintf(p->why, sizeof(p->why), "the second process ended with code %d",
			WEXITSTATUS(status));
	return true;
}

void
app_process_end(struct app_process *p)
{
	if (p == NULL)
		return;
	crpc_store_release(&p->shared->flag[p->side].over, 1);
	close(p->link[p->side]);
	close(p->sock[p->side]);
	if (p->side == 0 && !app_process_ended(p, END_MS)) {
		kill(p->pid[1], SIGKILL);
		waitpid(p->pid[1], NULL, 0);
	}
	munmap(p->shared, sizeof(*p->shared));
	free(p);
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
