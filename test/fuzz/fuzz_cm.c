/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a program can write to the connection manager's node of soft_mlx5, and what another process
 * can send to its ports: commands with any request, length and identifier on two channels, and
 * messages to a listener and to an identifier that connects. Whatever comes: answers stay within
 * their length, and when the channels are closed no descriptor is left.
 *
 * Input: steps of 8 bytes, each followed by the bytes of its request or message.
 */
#include "fuzz_kernel.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "cm.h"

#define STEPS     64u
#define IDS       8u
#define CHANNELS  2u
#define BYTES_MAX 512u
#define PORT      7471u /* And the next one, where the target itself listens. */

enum what { COMMAND, TO_LISTENER, TO_CONNECTOR, WHATS };

enum how {
	TRUE_LEN = 1,  /* Lengths of the request and the answer. */
	TRUE_ID = 2,   /* An identifier that is there. */
	TRUE_ADDR = 4, /* Addresses of this host, and one of the two ports. */
	TRUE_MSG = 8,  /* The head of a message. */
};

struct step {
	uint8_t what, how, cmd, n;
	uint16_t in, out;
};

#define NONE             UINT16_MAX
#define OF(word, member) offsetof(struct rdma_ucm_##word, member)
#define SIZE(word)       sizeof(struct rdma_ucm_##word)
/* Where a request has the identifier, the answer's address and addresses of IP. */
static const struct command {
	uint16_t nr, in, out, id, response, addr[2];
} commands[] = {
	{RDMA_USER_CM_CMD_CREATE_ID, SIZE(create_id), 4, NONE, OF(create_id, response),
		{NONE, NONE}},
	{RDMA_USER_CM_CMD_DESTROY_ID, SIZE(destroy_id), 4, OF(destroy_id, id),
		OF(destroy_id, response), {NONE, NONE}},
	{RDMA_USER_CM_CMD_BIND, SIZE(bind), 0, OF(bind, id), NONE, {OF(bind, addr), NONE}},
	{RDMA_USER_CM_CMD_RESOLVE_ADDR, SIZE(resolve_addr), 0, OF(resolve_addr, id), NONE,
		{OF(resolve_addr, src_addr), OF(resolve_addr, dst_addr)}},
	{RDMA_USER_CM_CMD_RESOLVE_ROUTE, SIZE(resolve_route), 0, OF(resolve_route, id), NONE,
		{NONE, NONE}},
	{RDMA_USER_CM_CMD_QUERY, SIZE(query), SIZE(query_addr_resp), OF(query, id),
		OF(query, response), {NONE, NONE}},
	{RDMA_USER_CM_CMD_CONNECT, SIZE(connect), 0, OF(connect, id), NONE, {NONE, NONE}},
	{RDMA_USER_CM_CMD_LISTEN, SIZE(listen), 0, OF(listen, id), NONE, {NONE, NONE}},
	{RDMA_USER_CM_CMD_ACCEPT, SIZE(accept), 0, OF(accept, id), NONE, {NONE, NONE}},
	{RDMA_USER_CM_CMD_REJECT, SIZE(reject), 0, OF(reject, id), NONE, {NONE, NONE}},
	{RDMA_USER_CM_CMD_DISCONNECT, SIZE(disconnect), 0, OF(disconnect, id), NONE, {NONE, NONE}},
	{RDMA_USER_CM_CMD_INIT_QP_ATTR, SIZE(init_qp_attr), sizeof(struct ib_uverbs_qp_attr),
		OF(init_qp_attr, id), OF(init_qp_attr, response), {NONE, NONE}},
	{RDMA_USER_CM_CMD_GET_EVENT, SIZE(get_event), SIZE(event_resp), NONE,
		OF(get_event, response), {NONE, NONE}},
	{RDMA_USER_CM_CMD_SET_OPTION, SIZE(set_option), 0, OF(set_option, id),
		OF(set_option, optval), {NONE, NONE}},
	{RDMA_USER_CM_CMD_NOTIFY, SIZE(notify), 0, OF(notify, id), NONE, {NONE, NONE}},
	{RDMA_USER_CM_CMD_MIGRATE_ID, SIZE(migrate_id), 4, OF(migrate_id, id),
		OF(migrate_id, response), {NONE, NONE}},
	{RDMA_USER_CM_CMD_JOIN_MCAST, SIZE(join_mcast), 4, OF(join_mcast, id),
		OF(join_mcast, response), {NONE, NONE}},
	{99, 8, 8, NONE, 0, {NONE, NONE}},
};

static int channel[CHANNELS], own, peer;
static uint32_t id[IDS], ids;

/* An address that leads somewhere, of 127.0.0.1; whatever comes before it says how long it is. */
static void
addr_mend(uint8_t *at, uint32_t n)
{
	struct sockaddr_in sin = {.sin_family = AF_INET,
		.sin_port = htons(PORT + n % 2),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	memcpy(at, &sin, sizeof(sin));
}

static void
request_mend(const struct command *c, const struct step *s, uint8_t *req, uint32_t len)
{
	uint32_t n = ids != 0 ? id[s->n % ids] : 0, fd = (uint32_t)channel[s->n % CHANNELS];
	uint16_t size = sizeof(struct sockaddr_in);

	if ((s->how & TRUE_ID) != 0 && c->id != NONE && len >= c->id + 4u)
		memcpy(req + c->id, &n, 4);
	if (c->nr == RDMA_USER_CM_CMD_MIGRATE_ID && len >= c->in)
		memcpy(req + OF(migrate_id, fd), &fd, 4);
	if ((s->how & TRUE_ADDR) == 0 || len < c->in)
		return;
	for (uint32_t i = 0; i < 2; i++)
		if (c->addr[i] != NONE)
			addr_mend(req + c->addr[i], s->n + i);
	if (c->nr == RDMA_USER_CM_CMD_BIND)
		memcpy(req + OF(bind, addr_size), &size, 2);
	if (c->nr == RDMA_USER_CM_CMD_RESOLVE_ADDR) {
		memset(req + OF(resolve_addr, src_size), 0, 8);
		memcpy(req + OF(resolve_addr, dst_size), &size, 2);
	}
}

/* Identifiers that a command gave. */
static void
ids_note(const struct command *c, const uint8_t *out)
{
	uint32_t at = c->nr == RDMA_USER_CM_CMD_GET_EVENT ? OF(event_resp, id) : 0;

	if (c->nr == RDMA_USER_CM_CMD_CREATE_ID || c->nr == RDMA_USER_CM_CMD_GET_EVENT)
		memcpy(&id[ids < IDS ? ids++ : IDS - 1], out + at, 4);
}

static void
command(const struct step *s, struct fuzz_input *in)
{
	const struct command *c = &commands[s->cmd % CRPC_DIM(commands)];
	uint16_t in_len = s->how & TRUE_LEN ? c->in : s->in % BYTES_MAX;
	uint16_t out_len = s->how & TRUE_LEN ? c->out : s->out % BYTES_MAX;
	struct rdma_ucm_cmd_hdr hdr = {c->nr, in_len, out_len};
	uint8_t *buf = malloc(sizeof(hdr) + in_len), *out = calloc(1, out_len + 1u);
	uint64_t addr = (uintptr_t)out;

	fuzz_check(buf != NULL && out != NULL);
	memcpy(buf, &hdr, sizeof(hdr));
	(void)fuzz_take_some(in, buf + sizeof(hdr), in_len);
	request_mend(c, s, buf + sizeof(hdr), in_len);
	if (c->response != NONE && in_len >= c->response + 8u)
		memcpy(buf + sizeof(hdr) + c->response, &addr, 8);
	if (cm_write(channel[s->n / 16 % CHANNELS], buf, sizeof(hdr) + in_len) >= 0 &&
		out_len >= c->out)
		ids_note(c, out);
	free(buf);
	free(out);
}

/* ---- the other process ---- */

static socklen_t
port_name(struct sockaddr_un *un, uint32_t port)
{
	*un = (struct sockaddr_un){.sun_family = AF_UNIX};
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
		(size_t)snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1,
			"soft_mlx5.%u.%s.cm.%x.%u", geteuid(), getenv("SOFT_MLX5_NET"), RDMA_PS_TCP,
			port));
}

/* A message goes to a listener by a connection of its own, else to who has connected to us. */
static void
message(const struct step *s, struct fuzz_input *in)
{
	struct cm_msg msg;
	size_t len = s->how & TRUE_LEN ? sizeof(msg) : s->in % (sizeof(msg) + 1);
	struct sockaddr_un un;
	socklen_t un_len = port_name(&un, PORT);

	(void)fuzz_take_some(in, &msg, sizeof(msg));
	if ((s->how & TRUE_MSG) != 0) {
		msg.magic = CM_MAGIC;
		msg.ps = RDMA_PS_TCP;
		msg.type %= CM_DREP + 1;
		msg.psn &= 0xffffff;
		msg.conn.qp_num &= 0xffffff;
		msg.from.mtu = 1 + msg.from.mtu % IBV_MTU_4096;
	}
	if ((s->how & TRUE_ADDR) != 0) {
		addr_mend((uint8_t *)&msg.src, 1);
		addr_mend((uint8_t *)&msg.dst, 0);
	}
	if (s->what % WHATS == TO_LISTENER) {
		close(peer);
		peer = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
		if (connect(peer, (const struct sockaddr *)&un, un_len) != 0)
			return;
	} else {
		int fd = accept4(own, NULL, NULL, SOCK_NONBLOCK);

		close(fd >= 0 ? peer : -1);
		peer = fd >= 0 ? fd : peer;
	}
	(void)send(peer, &msg, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	struct sockaddr_un un;
	socklen_t len;
	struct step s;
	int first, last;

	kernel_start("cm");
	first = dup(0);
	close(first);
	ids = 0;
	peer = -1;
	own = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	len = port_name(&un, PORT + 1);
	fuzz_check(own >= 0 && bind(own, (const struct sockaddr *)&un, len) == 0);
	fuzz_check(listen(own, 8) == 0);
	for (uint32_t i = 0; i < CHANNELS; i++)
		fuzz_check((channel[i] = cm_open(O_NONBLOCK)) >= 0);
	for (uint32_t i = 0; i < STEPS && fuzz_take(&in, &s, sizeof(s)); i++) {
		if (s.what % WHATS == COMMAND)
			command(&s, &in);
		else
			message(&s, &in);
	}
	for (uint32_t i = 0; i < CHANNELS; i++)
		kernel_close(channel[i]);
	close(own);
	close(peer);
	last = dup(0);
	close(last);
	fuzz_check(last == first && LIST_EMPTY(&sm_files));
	return 0;
}
