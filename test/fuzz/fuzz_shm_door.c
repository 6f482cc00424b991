/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The answer of a memfd's owner, who may be anybody: whatever bytes and descriptors come, a
 * descriptor is taken only if it is sealed memory and the answer is right, and none is left open.
 *
 * Input: a byte of flags, then the message.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "shm_private.h"

enum {
	FDS = 3,       /* How many descriptors come: 0 to 3. */
	UNSEALED = 4,  /* Their size can change. */
	HALF = 8,      /* It cannot shrink, but grow. */
	NO_MEMORY = 16, /* They are no memory at all. */
	NOTHING = 32,  /* No message: the owner hung up. */
};

static int
make_fd(uint8_t flags)
{
	int fd;

	if (flags & NO_MEMORY)
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	fuzz_check(fd >= 0 && ftruncate(fd, 4096) == 0);
	if (!(flags & UNSEALED))
		fuzz_check(fcntl(fd, F_ADD_SEALS,
				   F_SEAL_SHRINK | (flags & HALF ? 0 : F_SEAL_GROW)) == 0);
	return fd;
}

static void
send_answer(int sock, uint8_t flags, const uint8_t *data, size_t size)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(FDS * sizeof(int))];
	} ctl;
	struct iovec io = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
	struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1};
	int fds[FDS], n = flags & FDS, i;

	for (i = 0; i < n; i++)
		fds[i] = make_fd(flags);
	if (n != 0) {
		memset(&ctl, 0, sizeof(ctl));
		msg.msg_control = ctl.buf;
		msg.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
		CMSG_FIRSTHDR(&msg)->cmsg_level = SOL_SOCKET;
		CMSG_FIRSTHDR(&msg)->cmsg_type = SCM_RIGHTS;
		CMSG_FIRSTHDR(&msg)->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&msg)), fds, (size_t)n * sizeof(int));
	}
	fuzz_check(sendmsg(sock, &msg, 0) == (ssize_t)size);
	for (i = 0; i < n; i++)
		close(fds[i]);
}

/* The lowest free descriptor: the same before and after, if none is left open. */
static int
next_fd(void)
{
	int fd = dup(STDERR_FILENO);

	close(fd);
	return fd;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct crpc_shm seg = {.path = "fuzz"};
	struct shm_answer a;
	int s[2], rc, before = next_fd(), seals;
	uint8_t flags;

	if (size < 1 || size > 4096)
		return 0;
	flags = data[0];
	fuzz_check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s) == 0);
	fuzz_check(__crpc_shm_door_receive(&seg, s[0]) == -EINPROGRESS);
	if (!(flags & NOTHING))
		send_answer(s[1], flags, data + 1, size - 1);
	close(s[1]);
	rc = __crpc_shm_door_receive(&seg, s[0]);
	close(s[0]);
	if ((flags & NOTHING) || size == 1)
		fuzz_check(rc == -ECONNREFUSED);
	if (rc >= 0) {
		fuzz_check(size - 1 == sizeof(a) && (flags & FDS) != 0);
		memcpy(&a, data + 1, sizeof(a));
		fuzz_check(a.magic == SHM_ANSWER_MAGIC && a.version == 1 && a.status == 0);
		seals = fcntl(rc, F_GET_SEALS);
		fuzz_check(seals >= 0 && seals & F_SEAL_SHRINK && seals & F_SEAL_GROW);
		close(rc);
	}
	fuzz_check(next_fd() == before);
	return 0;
}
