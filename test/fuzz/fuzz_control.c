/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Questions to the control socket of a process that has soft_mlx5 open, by anybody who may connect:
 * lines with any words, in pieces, without an end, or of any length. Each is answered in the form
 * that control.h says, or not at all if its line did not come; a device goes on.
 *
 * Input: connections with zero bytes between them; a byte of 1 in one ends a piece of its bytes.
 */
#include "fuzz_kernel.h"

#include <sys/socket.h>

#include "control.h"

#define CONNECTIONS 16u

static int device = -1, events;
static char net[64];

static void
device_open(void)
{
	struct ib_uverbs_alloc_pd_resp resp;
	struct ib_uverbs_alloc_pd req = {0};
	struct kernel_parts p = {.in = &req, .in_len = sizeof(req), .out = &resp,
		.out_len = sizeof(resp)};

	snprintf(net, sizeof(net), "fuzz-control-%d", (int)getpid());
	kernel_start("control");
	device = uv_open(0, 0);
	fuzz_check(device >= 0);
	events = kernel_context(device);
	fuzz_check(kernel_command(device, IB_USER_VERBS_CMD_ALLOC_PD, &p) == 0);
}

/* What is sent; the net's name stands for a byte of 2, as it is not known before. */
static size_t
words(const uint8_t *data, size_t size, char *out, size_t room)
{
	size_t i, n = 0;

	for (i = 0; i < size && n + sizeof(net) < room; i++) {
		if (data[i] != 2) {
			out[n++] = (char)data[i];
			continue;
		}
		memcpy(out + n, net, strlen(net));
		n += strlen(net);
	}
	return n;
}

/*
 * A packet each, so that each is one recv() of the peer, which reads only afterwards: what its
 * queue does not hold is not sent.
 */
static void
pieces_send(int fd, const char *text, size_t len)
{
	size_t n;

	for (; len != 0; text += n, len -= n) {
		const char *end = memchr(text, 1, len);

		n = end != NULL ? (size_t)(end - text) + 1 : len;
		if (send(fd, text, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
	}
}

static void
answer_check(const char *answer, ssize_t len)
{
	if (len <= 0)
		return;
	fuzz_check(memcmp(answer, "ok\n", 3) == 0 || memcmp(answer, "error: ", 7) == 0);
	fuzz_check(answer[len - 1] == '\n');
}

static void
connection(const uint8_t *data, size_t size)
{
	char text[1024], got[65536];
	int pair[2];

	fuzz_check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	pieces_send(pair[0], text, words(data, size, text, sizeof(text)));
	shutdown(pair[0], SHUT_WR);
	sm_control_serve(pair[1]);
	answer_check(got, recv(pair[0], got, sizeof(got), MSG_DONTWAIT));
	close(pair[0]);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uv_ctx *list[SM_SLOTS];

	if (device < 0)
		device_open();
	for (uint32_t i = 0; i < CONNECTIONS && size != 0; i++) {
		const uint8_t *end = memchr(data, 0, size);
		size_t n = end != NULL ? (size_t)(end - data) : size;

		connection(data, n);
		n += end != NULL;
		data += n;
		size -= n;
	}
	soft_mlx5_step.pass(SOFT_MLX5_STEP_ALL, 1000, NULL);
	fuzz_check(uv_contexts(list) == 1 && sm_nic_faults(uv_nic(list[0]), "") == 0);
	return 0;
}
