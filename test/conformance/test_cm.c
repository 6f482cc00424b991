/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * /dev/infiniband/rdma_cm by its commands, written by hand: what a kernel answers, also to requests
 * that librdmacm never sends, and peers that are killed, silent or hostile. Both ends of a
 * connection are channels of this process unless one of them has to die. Runs under
 * usertools/soft-mlx5, with the Unix sockets of the wire of shared memory and, with
 * SOFT_MLX5_WIRE=udp, with TCP.
 */
#include "test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_user_cm.h>

#include "cm.h"

#define NODE "/dev/infiniband/rdma_cm"
#define QKEY 0x01234567u
#define PORT free_port
#define UID  UINT64_C(0x1000) /* Of the first end of a connection; the second one adds 1. */

/* enum rdma_cm_event_type, reasons and states that no public header of a kernel has. */
enum {
	ADDR_RESOLVED,
	ADDR_ERROR,
	ROUTE_RESOLVED,
	CONNECT_REQUEST = 4,
	CONNECT_RESPONSE,
	UNREACHABLE = 7,
	REJECTED,
	ESTABLISHED,
	DISCONNECTED
};
enum { NO_SERVICE = 8, CONSUMER = 28 };

static uint16_t free_port = 7471;

static bool
is_tcp(void)
{
	return getenv("SOFT_MLX5_WIRE") != NULL;
}

static int
cm(int fd, uint32_t nr, const void *req, size_t in, size_t out)
{
	struct {
		struct rdma_ucm_cmd_hdr hdr;
		uint8_t req[512];
	} cmd = {{nr, (uint16_t)in, (uint16_t)out}, {0}};

	memcpy(cmd.req, req, in);
	errno = 0;
	if (write(fd, &cmd, sizeof(cmd.hdr) + in) < 0)
		return errno;
	return 0;
}

#define CM(fd, NR, out, ...) cm(fd, RDMA_USER_CM_CMD_##NR, &(__VA_ARGS__), sizeof(__VA_ARGS__), out)

static int
channel(void)
{
	int fd = open(NODE, O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static uint32_t
create(int fd, uint64_t uid, uint16_t ps)
{
	struct rdma_ucm_create_id_resp resp = {0};
	struct rdma_ucm_create_id req = {.uid = uid, .response = (uintptr_t)&resp, .ps = ps};

	assert_ok(CM(fd, CREATE_ID, sizeof(resp), req));
	assert_int_not_equal(resp.id, 0);
	return resp.id;
}

/* How many events of it were read. */
static uint32_t
destroy(int fd, uint32_t id)
{
	struct rdma_ucm_destroy_id_resp resp = {0};
	struct rdma_ucm_destroy_id req = {.response = (uintptr_t)&resp, .id = id};

	assert_ok(CM(fd, DESTROY_ID, sizeof(resp), req));
	return resp.events_reported;
}

static struct sockaddr_in
address(const char *text, uint16_t port)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(port)};

	inet_pton(AF_INET, text, &sin.sin_addr);
	return sin;
}

/* Ports of TCP are the host's: one that is free now. */
static uint16_t
port_find(void)
{
	struct sockaddr_in sin = address("127.0.0.1", 0);
	socklen_t len = sizeof(sin);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_ok(bind(fd, (const struct sockaddr *)&sin, sizeof(sin)));
	assert_ok(getsockname(fd, (struct sockaddr *)&sin, &len));
	close(fd);
	return ntohs(sin.sin_port);
}

static int
bind_to(int fd, uint32_t id, const char *text, uint16_t port)
{
	struct sockaddr_in sin = address(text, port);
	struct rdma_ucm_bind req = {.id = id, .addr_size = sizeof(sin)};

	memcpy(&req.addr, &sin, sizeof(sin));
	return CM(fd, BIND, 0, req);
}

static uint32_t
listener_of(int fd, uint64_t uid, uint16_t ps)
{
	uint32_t id = create(fd, uid, ps);
	struct rdma_ucm_listen req = {.id = id, .backlog = 8};

	assert_ok(bind_to(fd, id, "127.0.0.1", PORT));
	assert_ok(CM(fd, LISTEN, 0, req));
	return id;
}

static uint32_t
listener(int fd, uint16_t ps)
{
	return listener_of(fd, UID, ps);
}

static int
get_event(int fd, struct rdma_ucm_event_resp *ev)
{
	struct rdma_ucm_get_event req = {.response = (uintptr_t)ev};

	memset(ev, 0, sizeof(*ev));
	return CM(fd, GET_EVENT, sizeof(*ev), req);
}

/* The next event, which poll() shows first; a channel that does not block may need some calls. */
static struct rdma_ucm_event_resp
expect(int fd, uint32_t type, uint64_t uid, int status)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	struct rdma_ucm_event_resp ev;
	int err = EAGAIN;

	for (int i = 0; i < 100 && err == EAGAIN; i++) {
		assert_int_equal(poll(&pfd, 1, 5000), 1);
		err = get_event(fd, &ev);
	}
	assert_ok(err);
	assert_int_equal(ev.event, type);
	assert_int_equal(ev.uid, uid);
	assert_int_equal((int)ev.status, status);
	return ev;
}

static int
resolve(int fd, uint32_t id, const char *text, uint16_t port)
{
	struct sockaddr_in sin = address(text, port);
	struct rdma_ucm_resolve_addr req = {.id = id, .timeout_ms = 100, .dst_size = sizeof(sin)};

	memcpy(&req.dst_addr, &sin, sizeof(sin));
	return CM(fd, RESOLVE_ADDR, 0, req);
}

static void
route(int fd, uint32_t id, uint64_t uid)
{
	assert_ok(resolve(fd, id, "127.0.0.1", PORT));
	expect(fd, ADDR_RESOLVED, uid, 0);
	assert_ok(CM(fd, RESOLVE_ROUTE, 0, (struct rdma_ucm_resolve_route){id, 100}));
	expect(fd, ROUTE_RESOLVED, uid, 0);
}

static struct rdma_ucm_conn_param
param(uint32_t qpn, const char *text)
{
	struct rdma_ucm_conn_param conn = {.qp_num = qpn,
		.valid = 1,
		.responder_resources = 3,
		.initiator_depth = 5,
		.retry_count = 6,
		.rnr_retry_count = 7};

	conn.private_data_len = (uint8_t)strlen(text);
	memcpy(conn.private_data, text, strlen(text));
	return conn;
}

static int
connect_id(int fd, uint32_t id, uint32_t qpn, const char *text)
{
	return CM(fd, CONNECT, 0,
		(struct rdma_ucm_connect){.id = id, .conn_param = param(qpn, text)});
}

static int
accept_id(int fd, uint32_t id, uint64_t uid, uint32_t qpn, const char *text)
{
	return CM(fd, ACCEPT, 0,
		(struct rdma_ucm_accept){.id = id, .uid = uid, .conn_param = param(qpn, text)});
}

static int
finish_id(int fd, uint32_t id)
{
	return CM(fd, ACCEPT, 0, (struct rdma_ucm_accept){.id = id});
}

static int
disconnect(int fd, uint32_t id)
{
	return CM(fd, DISCONNECT, 0, (struct rdma_ucm_disconnect){id});
}

/* A listener and an identifier that asks it to connect. */
struct pair {
	int srv, cli;              /* Channels. */
	uint32_t listens, in, out; /* Identifiers: @in is not accepted yet. */
	struct rdma_ucm_event_resp request;
};

static struct pair
pair_ask(uint16_t ps, const char *text)
{
	struct pair p = {.srv = channel(), .cli = channel()};

	p.listens = listener(p.srv, ps);
	p.out = create(p.cli, UID + 1, ps);
	route(p.cli, p.out, UID + 1);
	assert_ok(connect_id(p.cli, p.out, 0x111, text));
	p.request = expect(p.srv, CONNECT_REQUEST, UID, 0);
	p.in = p.request.id;
	return p;
}

static struct pair
pair_connect(void)
{
	struct pair p = pair_ask(RDMA_PS_TCP, "");

	assert_ok(accept_id(p.srv, p.in, UID + 2, 0x222, ""));
	expect(p.cli, CONNECT_RESPONSE, UID + 1, 0);
	assert_ok(finish_id(p.cli, p.out));
	expect(p.srv, ESTABLISHED, UID + 2, 0);
	return p;
}

static void
pair_close(const struct pair *p)
{
	close(p->srv);
	close(p->cli);
}

TEST(the_node_looks_like_that_of_a_kernel)
{
	FILE *f = fopen("/sys/class/misc/rdma_cm/abi_version", "r");
	int fd = channel(), abi = 0;
	struct stat by_path, by_fd;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%d", &abi), 1);
	fclose(f);
	assert_int_equal(abi, RDMA_USER_CM_ABI_VERSION);
	assert_ok(stat(NODE, &by_path));
	assert_ok(fstat(fd, &by_fd));
	assert_true(S_ISCHR(by_path.st_mode) && S_ISCHR(by_fd.st_mode));
	assert_int_equal(by_path.st_rdev, by_fd.st_rdev);
	assert_int_equal(major(by_fd.st_rdev), 10);
	assert_int_equal(read(fd, &abi, sizeof(abi)), -1);
	assert_int_equal(errno, EINVAL);
	close(fd);
}

TEST(malformed_commands_have_the_errno_of_a_kernel)
{
	int fd = channel(), other = channel();
	uint32_t id = create(fd, UID, RDMA_PS_TCP);
	struct rdma_ucm_create_id_resp resp;
	struct rdma_ucm_create_id make = {.response = (uintptr_t)&resp, .ps = RDMA_PS_TCP};
	struct rdma_ucm_query query = {.response = (uintptr_t)&resp, .id = id, .option = 9};
	struct rdma_ucm_cmd_hdr hdr = {RDMA_USER_CM_CMD_LISTEN, 64, 0};
	struct rdma_ucm_set_option option = {.id = id, .level = 0, .optname = 2, .optlen = 4};
	const void *volatile nowhere = NULL;
	uint8_t room[512];

	assert_int_equal(write(fd, &hdr, 4), -1); /* Less than a header. */
	assert_int_equal(errno, EINVAL);
	assert_int_equal(write(fd, &hdr, sizeof(hdr)), -1); /* Less than it names. */
	assert_int_equal(errno, EINVAL);
	assert_int_equal(write(fd, nowhere, sizeof(hdr)), -1);
	assert_int_equal(errno, EFAULT);
	assert_int_equal(cm(fd, RDMA_USER_CM_CMD_LISTEN, &hdr, 4, 0), EINVAL);
	assert_int_equal(cm(fd, RDMA_USER_CM_CMD_JOIN_MCAST + 1, &make, sizeof(make), 4), EINVAL);
	assert_int_equal(cm(fd, UINT32_MAX, &make, sizeof(make), 4), EINVAL);
	assert_int_equal(cm(fd, RDMA_USER_CM_CMD_GET_OPTION, &make, sizeof(make), 4), ENOSYS);
	assert_int_equal(CM(fd, CREATE_ID, sizeof(resp) - 1, make), ENOSPC);
	make.response = 8;
	assert_int_equal(CM(fd, CREATE_ID, sizeof(resp), make), EFAULT);
	make.response = (uintptr_t)&resp;
	make.ps = 1;
	assert_int_equal(CM(fd, CREATE_ID, sizeof(resp), make), EINVAL);

	for (uint32_t i = 0; i < 50; i++)
		assert_int_equal(disconnect(fd, 1000 + i * 61681u), ENOENT);
	assert_int_equal(bind_to(other, id, "127.0.0.1", 0), EINVAL); /* Of another channel. */
	assert_int_equal(disconnect(fd, id), EINVAL);                 /* No device yet. */
	assert_int_equal(connect_id(fd, id, 1, ""), EINVAL);
	query.response = (uintptr_t)room;
	assert_int_equal(CM(fd, QUERY, sizeof(room), query), ENOSYS);
	query.option = RDMA_USER_CM_QUERY_ADDR;
	assert_int_equal(CM(fd, QUERY, 1, query), ENOSPC);
	assert_int_equal(CM(fd, SET_OPTION, 0, option), EFAULT);
	option.optlen = 3;
	assert_int_equal(CM(fd, SET_OPTION, 0, option), EINVAL);
	option.level = 1;
	assert_int_equal(CM(fd, SET_OPTION, 0, option), ENOSYS);
	assert_int_equal(bind_to(fd, id, "203.0.113.9", 0), ENODEV);
	assert_int_equal(CM(fd, LEAVE_MCAST, 4, (struct rdma_ucm_destroy_id){.id = 1}), ENOSYS);
	assert_int_equal(CM(fd, JOIN_MCAST, 4, (struct rdma_ucm_join_mcast){.id = id}), EOPNOTSUPP);
	/* An identifier that is bound is still in its state. */
	assert_ok(bind_to(fd, id, "127.0.0.1", 0));
	assert_int_equal(bind_to(fd, id, "127.0.0.1", 0), EINVAL);
	assert_int_equal(
		CM(fd, RESOLVE_ROUTE, 0, (struct rdma_ucm_resolve_route){id, 100}), EINVAL);
	assert_int_equal(disconnect(fd, id), EINVAL);
	assert_int_equal(finish_id(fd, id), EINVAL);
	assert_int_equal(destroy(fd, id), 0);
	assert_int_equal(disconnect(fd, id), ENOENT);
	close(fd);
	close(other);
}

TEST(a_connection_carries_private_data_both_ways)
{
	struct pair p = pair_ask(RDMA_PS_TCP, "question");
	struct rdma_ucm_conn_param *conn = &p.request.param.conn;
	struct rdma_ucm_event_resp ev;

	assert_int_equal(conn->qp_num, 0x111);
	assert_int_equal(conn->private_data_len, 56); /* All that the message has room for. */
	assert_string_equal((const char *)conn->private_data, "question");
	assert_int_equal(conn->responder_resources, 5); /* What the peer may have outstanding. */
	assert_int_equal(conn->initiator_depth, 3);
	assert_int_equal(conn->retry_count, 6);
	assert_ok(accept_id(p.srv, p.in, UID + 2, 0x222, "answer"));
	ev = expect(p.cli, CONNECT_RESPONSE, UID + 1, 0);
	assert_int_equal(ev.param.conn.qp_num, 0x222);
	assert_int_equal(ev.param.conn.private_data_len, 196);
	assert_string_equal((const char *)ev.param.conn.private_data, "answer");
	assert_ok(finish_id(p.cli, p.out));
	expect(p.srv, ESTABLISHED, UID + 2, 0);
	assert_int_equal(finish_id(p.cli, p.out), EINVAL); /* Once. */
	pair_close(&p);
}

TEST(private_data_that_does_not_fit_is_refused)
{
	int fd = channel();
	uint32_t id = create(fd, UID, RDMA_PS_TCP);
	char text[58];

	memset(text, 'x', sizeof(text));
	text[57] = '\0';
	route(fd, id, UID);
	assert_int_equal(connect_id(fd, id, 1, text), EINVAL);
	assert_int_equal(connect_id(fd, id, 1u << 24, ""), EINVAL);
	assert_int_equal(CM(fd, CONNECT, 0, (struct rdma_ucm_connect){.id = id}), EINVAL);
	text[56] = '\0';
	assert_ok(connect_id(fd, id, 1, text));
	expect(fd, REJECTED, UID, NO_SERVICE);
	close(fd);
}

TEST(a_request_is_rejected_with_private_data)
{
	struct pair p = pair_ask(RDMA_PS_TCP, "");
	struct rdma_ucm_reject rej = {.id = p.in, .private_data_len = 2, .reason = 5};
	struct rdma_ucm_event_resp ev;

	memcpy(rej.private_data, "no", 2);
	assert_int_equal(CM(p.srv, REJECT, 0, rej), EINVAL); /* A reason that is not a program's. */
	rej.reason = 0;
	assert_ok(CM(p.srv, REJECT, 0, rej));
	ev = expect(p.cli, REJECTED, UID + 1, CONSUMER);
	assert_int_equal(ev.param.conn.private_data_len, 148);
	assert_string_equal((const char *)ev.param.conn.private_data, "no");
	assert_int_equal(accept_id(p.srv, p.in, UID + 2, 1, ""), EINVAL);
	assert_int_equal(destroy(p.srv, p.listens), 1);
	assert_int_equal(destroy(p.cli, p.out), 3);
	pair_close(&p);
}

TEST(a_port_without_listener_rejects)
{
	int fd = channel();
	uint32_t id = create(fd, UID, RDMA_PS_TCP), ud = create(fd, UID + 1, RDMA_PS_UDP);

	route(fd, id, UID);
	assert_ok(connect_id(fd, id, 1, ""));
	expect(fd, REJECTED, UID, NO_SERVICE);
	assert_int_equal(connect_id(fd, id, 1, ""), EINVAL);
	route(fd, ud, UID + 1);
	assert_ok(connect_id(fd, ud, 1, ""));
	expect(fd, UNREACHABLE, UID + 1, 1);
	close(fd);
}

TEST(a_connection_to_its_own_port_is_rejected)
{
	int fd = channel();
	uint32_t id = create(fd, UID, RDMA_PS_TCP);

	assert_ok(bind_to(fd, id, "127.0.0.1", PORT));
	route(fd, id, UID);
	assert_ok(connect_id(fd, id, 1, ""));
	expect(fd, REJECTED, UID, NO_SERVICE);
	close(fd);
}

/* A request of cli is rejected, and srv has no event of it. Closes both. */
static void
rejected_unseen(int srv, int cli)
{
	struct rdma_ucm_event_resp ev;

	fcntl(srv, F_SETFL, O_NONBLOCK);
	fcntl(cli, F_SETFL, O_NONBLOCK);
	for (int i = 0; i < 500 && get_event(cli, &ev) == EAGAIN; i++) {
		assert_int_equal(get_event(srv, &ev), EAGAIN);
		usleep(10000);
	}
	assert_int_equal(ev.event, REJECTED);
	assert_int_equal(ev.status, NO_SERVICE);
	close(srv);
	close(cli);
}

TEST(a_listener_of_one_address_rejects_requests_to_another)
{
	int srv = channel(), cli = channel();
	uint32_t id = create(cli, UID + 1, RDMA_PS_TCP);

	listener(srv, RDMA_PS_TCP);
	assert_ok(resolve(cli, id, "127.0.0.2", PORT));
	expect(cli, ADDR_RESOLVED, UID + 1, 0);
	assert_ok(CM(cli, RESOLVE_ROUTE, 0, (struct rdma_ucm_resolve_route){id, 100}));
	expect(cli, ROUTE_RESOLVED, UID + 1, 0);
	assert_ok(connect_id(cli, id, 1, ""));
	rejected_unseen(srv, cli);
}

/* All spaces share the ports of TCP. */
TEST(a_listener_of_another_space_rejects)
{
	if (!is_tcp())
		skip();
	int srv = channel(), cli = channel();
	uint32_t id = create(cli, UID + 1, RDMA_PS_TCP);

	listener(srv, RDMA_PS_UDP);
	route(cli, id, UID + 1);
	assert_ok(connect_id(cli, id, 1, ""));
	rejected_unseen(srv, cli);
}

TEST(an_address_of_another_host_is_an_error_event)
{
	int fd = channel();
	uint32_t id = create(fd, UID, RDMA_PS_TCP);

	if (is_tcp()) /* There may be a way to it. */
		skip();
	assert_ok(resolve(fd, id, "203.0.113.9", PORT));
	expect(fd, ADDR_ERROR, UID, -EHOSTUNREACH);
	route(fd, id, UID); /* It may be tried again. */
	close(fd);
}

TEST(both_ends_see_a_disconnect)
{
	struct pair p = pair_connect();

	assert_ok(disconnect(p.cli, p.out));
	expect(p.srv, DISCONNECTED, UID + 2, 0);
	assert_ok(disconnect(p.srv, p.in));
	expect(p.cli, DISCONNECTED, UID + 1, 0);
	assert_ok(disconnect(p.cli, p.out)); /* Again, which is nothing. */
	assert_int_equal(destroy(p.srv, p.in), 2);
	assert_int_equal(destroy(p.cli, p.out), 4);
	pair_close(&p);
}

/* A kernel has read the peer's last message, which ours leaves in the socket. */
TEST(a_disconnect_before_any_event_is_read_reaches_the_peer)
{
	struct pair p = pair_ask(RDMA_PS_TCP, "");

	assert_ok(accept_id(p.srv, p.in, UID + 2, 0x222, ""));
	expect(p.cli, CONNECT_RESPONSE, UID + 1, 0);
	assert_ok(finish_id(p.cli, p.out));
	assert_ok(disconnect(p.srv, p.in));
	expect(p.cli, DISCONNECTED, UID + 1, 0);
	expect(p.srv, ESTABLISHED, UID + 2, 0);
	pair_close(&p);
}

TEST(a_destroyed_or_closed_end_disconnects_the_peer)
{
	uint32_t fds = test_open_files();
	struct pair p = pair_connect();

	assert_int_equal(destroy(p.srv, p.in), 1);
	expect(p.cli, DISCONNECTED, UID + 1, 0);
	pair_close(&p);
	p = pair_connect();
	close(p.cli);
	expect(p.srv, DISCONNECTED, UID + 2, 0);
	close(p.srv);
	p = pair_ask(RDMA_PS_TCP, ""); /* With a request that is not accepted. */
	destroy(p.srv, p.in);
	expect(p.cli, REJECTED, UID + 1, CONSUMER);
	pair_close(&p);
	assert_int_equal(test_open_files(), fds);
}

TEST(datagrams_get_the_number_and_key_of_the_peer)
{
	struct pair p = pair_ask(RDMA_PS_UDP, "where");
	struct rdma_ucm_event_resp ev;

	assert_string_equal((const char *)p.request.param.ud.private_data, "where");
	assert_int_equal(p.request.param.ud.private_data_len, 180);
	assert_ok(accept_id(p.srv, p.in, UID + 2, 0x222, "here"));
	ev = expect(p.cli, ESTABLISHED, UID + 1, 0);
	assert_int_equal(ev.param.ud.qp_num, 0x222);
	assert_int_equal(ev.param.ud.qkey, QKEY);
	assert_int_equal(ev.param.ud.private_data_len, 136);
	assert_string_equal((const char *)ev.param.ud.private_data, "here");
	assert_int_equal(ev.param.ud.ah_attr.port_num, 1);
	pair_close(&p);
}

TEST(a_datagrams_request_is_rejected_with_private_data)
{
	struct pair p = pair_ask(RDMA_PS_UDP, "");
	struct rdma_ucm_reject rej = {.id = p.in, .private_data_len = 137};
	struct rdma_ucm_event_resp ev;

	memcpy(rej.private_data, "no", 2);
	assert_int_equal(CM(p.srv, REJECT, 0, rej), EINVAL);
	rej.private_data_len = 2;
	assert_ok(CM(p.srv, REJECT, 0, rej));
	ev = expect(p.cli, UNREACHABLE, UID + 1, CM_SIDR_REJECTED);
	assert_int_equal(ev.param.ud.private_data_len, 136);
	assert_string_equal((const char *)ev.param.ud.private_data, "no");
	pair_close(&p);
}

static int
reuse_addr(int fd, uint32_t id)
{
	int yes = 1;

	return CM(fd, SET_OPTION, 0,
		(struct rdma_ucm_set_option){.optval = (uintptr_t)&yes,
			.id = id,
			.optname = RDMA_OPTION_ID_REUSEADDR,
			.optlen = sizeof(yes)});
}

TEST(a_port_is_given_once)
{
	int fd = channel();
	uint32_t a = create(fd, UID, RDMA_PS_TCP), b = create(fd, UID, RDMA_PS_TCP);
	uint32_t ud = create(fd, UID, RDMA_PS_UDP);

	if (is_tcp()) /* It is given to one that listens, of whatever space. */
		skip();
	assert_ok(bind_to(fd, a, "127.0.0.1", PORT));
	assert_int_equal(bind_to(fd, b, "127.0.0.1", PORT), EADDRINUSE);
	assert_ok(bind_to(fd, ud, "127.0.0.1", PORT)); /* Another port space. */
	assert_ok(reuse_addr(fd, b));
	assert_ok(bind_to(fd, b, "127.0.0.1", PORT));
	assert_int_equal(CM(fd, LISTEN, 0, (struct rdma_ucm_listen){b, 1}), EADDRINUSE);
	destroy(fd, a);
	assert_ok(CM(fd, LISTEN, 0, (struct rdma_ucm_listen){b, 1}));
	close(fd);
}

/* A socket of TCP, with SO_REUSEADDR, that takes a port of the loopback address: 0, or errno. */
static int
port_steal(uint16_t port)
{
	struct sockaddr_in sin = address("127.0.0.1", port);
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1, err;

	assert_ok(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
	err = bind(fd, (const struct sockaddr *)&sin, sizeof(sin)) == 0 ? 0 : errno;
	close(fd);
	return err;
}

TEST(a_net_has_ports_of_its_own_or_none)
{
	char *net = strdup(getenv("SOFT_MLX5_NET")), name[90];
	int fd = channel();
	uint32_t id = create(fd, UID, RDMA_PS_TCP);

	memset(name, 'n', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	setenv("SOFT_MLX5_NET", name, 1);
	assert_int_equal(bind_to(fd, id, "127.0.0.1", PORT), is_tcp() ? 0 : ENAMETOOLONG);
	setenv("SOFT_MLX5_NET", net, 1);
	free(net);
	close(fd);
}

TEST(a_port_of_tcp_is_shared_if_all_agree_until_one_listens)
{
	if (!is_tcp())
		skip();
	struct rdma_ucm_query_addr_resp resp = {0};
	struct rdma_ucm_query query = {.response = (uintptr_t)&resp};
	uint16_t other = port_find(); /* Without connections of earlier tests, which share it. */
	int srv = channel(), cli = channel();
	uint32_t id[3], out = create(cli, UID + 1, RDMA_PS_TCP);

	for (int i = 0; i < 3; i++)
		id[i] = create(srv, UID, RDMA_PS_TCP);
	assert_ok(bind_to(srv, id[0], "127.0.0.1", other));
	assert_int_equal(port_steal(other), EADDRINUSE);
	assert_ok(reuse_addr(srv, id[1]));
	assert_ok(reuse_addr(srv, id[2]));
	assert_int_equal(bind_to(srv, id[1], "127.0.0.1", other), EADDRINUSE);
	destroy(srv, id[0]);
	assert_ok(bind_to(srv, id[1], "127.0.0.1", other));
	assert_ok(bind_to(srv, id[2], "127.0.0.1", other));
	assert_ok(CM(srv, LISTEN, 0, (struct rdma_ucm_listen){id[1], 1}));
	assert_int_equal(CM(srv, LISTEN, 0, (struct rdma_ucm_listen){id[2], 1}), EADDRINUSE);
	destroy(srv, id[1]);
	destroy(srv, id[2]);

	/* One that connects has it too. */
	listener(srv, RDMA_PS_TCP);
	assert_ok(reuse_addr(cli, out));
	assert_ok(bind_to(cli, out, "127.0.0.1", other));
	route(cli, out, UID + 1);
	assert_ok(connect_id(cli, out, 1, ""));
	query.id = expect(srv, CONNECT_REQUEST, UID, 0).id;
	assert_ok(CM(srv, QUERY, sizeof(resp), query));
	assert_int_equal(ntohs(((struct sockaddr_in *)&resp.dst_addr)->sin_port), other);
	close(srv);
	close(cli);
}

TEST(a_silent_peer_is_unreachable_after_the_timeout)
{
	struct pair p;

	setenv("SOFT_MLX5_CM_TIMEOUT", "100", 1);
	p = pair_ask(RDMA_PS_TCP, "");
	expect(p.cli, UNREACHABLE, UID + 1, -ETIMEDOUT);
	assert_int_equal(accept_id(p.srv, p.in, UID + 2, 1, ""), EINVAL); /* Too late. */
	pair_close(&p);
	p = pair_connect();
	assert_ok(disconnect(p.cli, p.out)); /* Without an answer. */
	expect(p.cli, DISCONNECTED, UID + 1, 0);
	pair_close(&p);
	unsetenv("SOFT_MLX5_CM_TIMEOUT");
}

/* A child that connects to the port and waits, or, as a listener, waits for a request. */
static pid_t
child_run(bool listens, int ready[2])
{
	pid_t pid = fork();
	int fd;
	uint32_t id;

	if (pid != 0)
		return pid;
	fd = channel();
	if (listens) {
		listener(fd, RDMA_PS_TCP);
		(void)!write(ready[1], "", 1);
	} else {
		id = create(fd, UID + 1, RDMA_PS_TCP);
		route(fd, id, UID + 1);
		assert_ok(connect_id(fd, id, 0x111, ""));
		expect(fd, CONNECT_RESPONSE, UID + 1, 0);
		assert_ok(finish_id(fd, id));
	}
	for (;;)
		pause();
}

static void
child_kill(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

TEST(a_killed_peer_is_reported)
{
	int fd = channel(), ready[2];
	uint32_t id = listener(fd, RDMA_PS_TCP);
	pid_t pid = child_run(false, NULL);

	id = expect(fd, CONNECT_REQUEST, UID, 0).id;
	assert_ok(accept_id(fd, id, UID + 2, 0x222, ""));
	expect(fd, ESTABLISHED, UID + 2, 0);
	child_kill(pid);
	expect(fd, DISCONNECTED, UID + 2, 0);
	close(fd);

	/* A listener that dies with a request it never read. */
	assert_ok(pipe(ready));
	pid = child_run(true, ready);
	assert_int_equal(read(ready[0], &(char){0}, 1), 1);
	fd = channel();
	id = create(fd, UID, RDMA_PS_TCP);
	route(fd, id, UID);
	assert_ok(connect_id(fd, id, 1, ""));
	child_kill(pid);
	expect(fd, REJECTED, UID, CONSUMER);
	close(fd);
	close(ready[0]);
	close(ready[1]);
}

TEST(a_forked_child_has_no_channel_and_keeps_no_connection)
{
	struct pair p = pair_connect();
	int status;
	pid_t pid = fork(), sleeper;

	if (pid == 0)
		_exit(disconnect(p.srv, p.in));
	waitpid(pid, &status, 0);
	assert_int_equal(WEXITSTATUS(status), EIO);
	sleeper = fork();
	if (sleeper == 0)
		for (;;)
			pause();
	close(p.cli); /* The child's copy is no end of the connection. */
	expect(p.srv, DISCONNECTED, UID + 2, 0);
	child_kill(sleeper);
	close(p.srv);
}

TEST(a_channel_without_events_is_not_readable)
{
	struct pair p = pair_connect();
	struct pollfd pfd = {.fd = p.srv, .events = POLLIN};
	struct rdma_ucm_event_resp ev;

	assert_int_equal(poll(&pfd, 1, 50), 0);
	fcntl(p.srv, F_SETFL, O_NONBLOCK);
	assert_int_equal(get_event(p.srv, &ev), EAGAIN);
	destroy(p.cli, p.out);
	assert_int_equal(poll(&pfd, 1, 5000), 1);
	assert_ok(get_event(p.srv, &ev));
	assert_int_equal(poll(&pfd, 1, 50), 0);
	pair_close(&p);
}

/* Where a kernel has no event for it either. */
TEST(the_end_of_a_peer_that_is_no_event_is_not_readable)
{
	struct pair p = pair_ask(RDMA_PS_TCP, "");
	struct pollfd pfd = {.fd = p.srv, .events = POLLIN};

	destroy(p.cli, p.out); /* Its request was read. */
	assert_int_equal(poll(&pfd, 1, 50), 0);
	assert_int_equal(accept_id(p.srv, p.in, UID + 2, 1, ""), EINVAL);
	assert_int_equal(accept_id(p.srv, p.in, UID + 2, 1, ""), EINVAL);
	assert_int_equal(poll(&pfd, 1, 50), 0);
	pair_close(&p);

	p = pair_connect();
	pfd.fd = p.srv;
	assert_ok(disconnect(p.cli, p.out));
	expect(p.srv, DISCONNECTED, UID + 2, 0);
	destroy(p.cli, p.out);
	assert_int_equal(poll(&pfd, 1, 50), 0);
	assert_ok(disconnect(p.srv, p.in));
	assert_int_equal(poll(&pfd, 1, 50), 0);
	pair_close(&p);
}

static void *
wait_for_event(void *arg)
{
	struct rdma_ucm_event_resp ev;

	return (void *)(intptr_t)get_event(*(const int *)arg, &ev);
}

TEST(a_thread_waits_for_an_event_until_it_comes_or_is_cancelled)
{
	int fd = channel();
	uint32_t id = create(fd, UID, RDMA_PS_TCP);
	pthread_t thread;
	void *result;

	assert_ok(pthread_create(&thread, NULL, wait_for_event, &fd));
	usleep(20000);
	assert_ok(resolve(fd, id, "127.0.0.1", PORT)); /* The channel is not locked meanwhile. */
	assert_ok(pthread_join(thread, &result));
	assert_null(result);
	assert_ok(pthread_create(&thread, NULL, wait_for_event, &fd));
	usleep(20000);
	assert_ok(pthread_cancel(thread));
	assert_ok(pthread_join(thread, &result));
	assert_ptr_equal(result, PTHREAD_CANCELED);
	assert_int_equal(destroy(fd, id), 1);
	close(fd);
}

TEST(a_thread_that_waits_stays_when_the_channel_is_closed)
{
	struct pair p = pair_connect();
	pthread_t thread;
	void *result;

	assert_ok(pthread_create(&thread, NULL, wait_for_event, &p.srv));
	usleep(20000);
	close(p.srv);
	close(p.cli); /* Which wakes it, for nothing. */
	usleep(20000);
	assert_int_equal(pthread_tryjoin_np(thread, &result), EBUSY);
	assert_ok(pthread_cancel(thread));
	assert_ok(pthread_join(thread, &result));
	assert_ptr_equal(result, PTHREAD_CANCELED);
}

/* A program that has no standard input, output and error may open its own there. */
TEST(channels_take_free_descriptors_and_what_is_behind_them_none_below_three)
{
	int saved[3], third, i;
	struct pair p;

	for (i = 0; i < 3; i++) {
		saved[i] = fcntl(i, F_DUPFD_CLOEXEC, 3);
		close(i);
	}
	p = pair_connect();
	third = fcntl(2, F_GETFD);
	pair_close(&p);
	for (i = 0; i < 3; i++) {
		dup2(saved[i], i);
		close(saved[i]);
	}
	assert_int_equal(p.srv, 0);
	assert_int_equal(p.cli, 1);
	assert_int_equal(third, -1);
}

static void *
open_cancelled(void *fd)
{
	pthread_cancel(pthread_self());
	*(int *)fd = open(NODE, O_RDWR | O_CLOEXEC);
	pthread_testcancel();
	return NULL;
}

/* The new channel takes the number of one that was closed unseen, and releases that. */
TEST(a_cancelled_thread_leaves_no_lock_behind)
{
	int low = dup(STDERR_FILENO), stale = channel(), fd = -1;
	pthread_t thread;
	void *result;

	close(low);
	assert_ok(syscall(SYS_close, stale));
	assert_ok(pthread_create(&thread, NULL, open_cancelled, &fd));
	assert_ok(pthread_join(thread, &result));
	assert_ptr_equal(result, PTHREAD_CANCELED);
	assert_int_equal(fd, stale);
	create(fd, UID, RDMA_PS_TCP);
	close(fd);
}

/* What the kernel refuses in the same way as a write to a channel. */
TEST(a_write_that_is_refused_elsewhere_is_refused_as_before)
{
	int fd = channel(), set = epoll_create1(EPOLL_CLOEXEC), counter = eventfd(0, EFD_CLOEXEC);

	assert_int_equal(write(set, "", 1), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(write(counter, "", 1), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(write(-1, "", 1), -1);
	assert_int_equal(errno, EBADF);
	close(counter);
	close(set);
	close(fd);
}

TEST(a_duplicate_is_the_same_channel)
{
	int fd = channel(), copy = dup(fd), plain = dup(STDERR_FILENO);
	uint32_t id = create(copy, UID, RDMA_PS_TCP);

	close(fd);
	assert_ok(resolve(copy, id, "127.0.0.1", PORT));
	expect(copy, ADDR_RESOLVED, UID, 0);
	assert_int_equal(dup2(plain, copy), copy); /* Closed unseen: the number is a file's now. */
	assert_int_equal(write(copy, "", 0), 0);
	close(copy);
	close(plain);
}

TEST(an_identifier_moves_to_another_channel_with_its_events)
{
	int srv = channel(), cli = channel(), to = channel();
	uint32_t listens = listener(srv, RDMA_PS_TCP), out = create(cli, UID + 1, RDMA_PS_TCP);
	struct rdma_ucm_migrate_resp resp = {9};
	struct rdma_ucm_migrate_id req = {
		.response = (uintptr_t)&resp, .id = listens, .fd = (uint32_t)srv};

	assert_ok(CM(to, MIGRATE_ID, sizeof(resp), req));
	assert_int_equal(resp.events_reported, 0);
	assert_int_equal(CM(to, MIGRATE_ID, sizeof(resp), req), EINVAL); /* No longer there. */
	route(cli, out, UID + 1);
	assert_ok(connect_id(cli, out, 1, ""));
	assert_ok(accept_id(to, expect(to, CONNECT_REQUEST, UID, 0).id, UID + 2, 1, ""));
	expect(cli, CONNECT_RESPONSE, UID + 1, 0);
	req.fd = STDERR_FILENO;
	assert_int_equal(CM(to, MIGRATE_ID, sizeof(resp), req), EINVAL);
	close(srv);
	close(cli);
	close(to);
}

static int
migrate(int from, uint32_t id, int to)
{
	struct rdma_ucm_migrate_resp resp;

	return CM(to, MIGRATE_ID, sizeof(resp),
		(struct rdma_ucm_migrate_id){
			.response = (uintptr_t)&resp, .id = id, .fd = (uint32_t)from});
}

/* Both requests are taken in when the first is read. */
TEST(an_identifier_whose_request_is_unread_does_not_exist)
{
	if (is_tcp()) /* Two listeners of one port. */
		skip();
	int srv = channel(), cli = channel(), to = channel();
	uint32_t known[5] = {listener_of(srv, UID, RDMA_PS_TCP), listener_of(srv, UID, RDMA_PS_UDP),
		create(cli, UID + 1, RDMA_PS_TCP), create(cli, UID + 1, RDMA_PS_UDP)};
	struct rdma_ucm_destroy_id_resp resp;
	struct rdma_ucm_destroy_id unknown = {.response = (uintptr_t)&resp};
	struct rdma_ucm_event_resp ev;

	for (int i = 2; i < 4; i++) {
		route(cli, known[i], UID + 1);
		assert_ok(connect_id(cli, known[i], 1, ""));
	}
	known[4] = expect(srv, CONNECT_REQUEST, UID, 0).id;
	for (uint32_t id = 0; id < 100; id++) {
		bool is_known = false;

		for (int i = 0; i < 5; i++)
			is_known |= id == known[i];
		if (is_known)
			continue;
		assert_int_equal(migrate(srv, id, to), ENOENT);
		assert_int_equal(accept_id(srv, id, UID + 2, 1, ""), ENOENT);
		unknown.id = id;
		assert_int_equal(CM(srv, DESTROY_ID, sizeof(resp), unknown), ENOENT);
	}
	/* It goes where its listener goes. */
	assert_ok(migrate(srv, known[0], to));
	assert_ok(migrate(srv, known[1], to));
	ev = expect(to, CONNECT_REQUEST, UID, 0);
	assert_ok(accept_id(to, ev.id, UID + 2, 1, ""));
	assert_ok(accept_id(srv, known[4], UID + 2, 1, ""));
	close(srv);
	close(cli);
	close(to);
}

TEST(a_listener_may_have_any_number_of_the_program)
{
	int srv = channel(), cli = channel();
	uint32_t out = create(cli, UID + 1, RDMA_PS_TCP);

	listener_of(srv, 0, RDMA_PS_TCP);
	route(cli, out, UID + 1);
	assert_ok(connect_id(cli, out, 1, ""));
	expect(srv, CONNECT_REQUEST, 0, 0);
	close(srv);
	close(cli);
}

/* A socket that is bound, or connected, to the name of the port, as cm_wire.c makes it. */
static int
port_socket(int (*call)(int fd, const struct sockaddr *name, socklen_t len))
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	struct sockaddr_in sin = address("127.0.0.1", PORT);
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
		(size_t)snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1,
			"soft_mlx5.%u.%s.cm.%x.%u", geteuid(), getenv("SOFT_MLX5_NET"), RDMA_PS_TCP,
			PORT));
	int fd = socket(is_tcp() ? AF_INET : AF_UNIX, SOCK_STREAM, 0), on = 1;
	struct timeval limit = {.tv_sec = 5};

	assert_true(fd >= 0);
	assert_ok(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)));
	assert_ok(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
	assert_ok(is_tcp() ? call(fd, (const struct sockaddr *)&sin, sizeof(sin))
			   : call(fd, (const struct sockaddr *)&un, len));
	return fd;
}

/*
 * A peer that has connected, and is silent before its request is whole. Over TCP one that has sent
 * nothing at all is no connection of the listener yet.
 */
static int
silent_peer(void)
{
	int peer = port_socket(connect);

	if (is_tcp())
		assert_int_equal(send(peer, &(uint32_t){CM_MAGIC}, 1, 0), 1);
	return peer;
}

static void
send_rest(int peer, const struct cm_msg *req)
{
	size_t sent = is_tcp();

	assert_int_equal(
		send(peer, (const char *)req + sent, sizeof(*req) - sent, 0), sizeof(*req) - sent);
}

/* The channel, which does not block, has no event until the peer is answered or gone. */
static void
rejects(int srv, int peer, bool message)
{
	struct pollfd pfd = {.fd = peer, .events = POLLIN};
	struct rdma_ucm_event_resp ev;
	struct cm_msg rej;
	ssize_t n;

	for (int i = 0; i < 500 && poll(&pfd, 1, 10) == 0; i++)
		assert_int_equal(get_event(srv, &ev), EAGAIN);
	n = recv(peer, &rej, sizeof(rej), MSG_WAITALL);
	if (message)
		assert_true(n == sizeof(rej) && rej.type == CM_REJ && rej.status == NO_SERVICE);
	else
		assert_true(n >= 0 || errno == ECONNRESET);
	assert_int_equal(get_event(srv, &ev), EAGAIN);
}

/* Also with something of ours unread. */
static bool
is_closed(int peer)
{
	struct pollfd pfd = {.fd = peer, .events = POLLIN};

	return poll(&pfd, 1, 1000) == 1 && recv(peer, &(char){0}, 1, MSG_DONTWAIT) <= 0;
}

TEST(a_peer_that_speaks_nonsense_is_no_peer)
{
	int srv = channel(), cli = channel(), raw, peer;
	uint32_t id = create(cli, UID + 1, RDMA_PS_TCP);
	uint8_t bytes[1024];

	/* To a listener. */
	memset(bytes, 0xa5, sizeof(bytes));
	listener(srv, RDMA_PS_TCP);
	fcntl(srv, F_SETFL, O_NONBLOCK);
	for (size_t n = 1; n <= sizeof(bytes); n *= 2) {
		peer = port_socket(connect);
		assert_int_equal(send(peer, bytes, n, 0), n);
		assert_ok(shutdown(peer, SHUT_WR));
		rejects(srv, peer, false);
		close(peer);
	}
	close(srv);

	/* As a listener. */
	raw = port_socket(bind);
	assert_ok(listen(raw, 1));
	route(cli, id, UID + 1);
	assert_ok(connect_id(cli, id, 1, ""));
	peer = accept(raw, NULL, NULL);
	assert_true(peer >= 0);
	assert_int_equal(send(peer, bytes, sizeof(bytes), 0), sizeof(bytes));
	expect(cli, REJECTED, UID + 1, CONSUMER);
	close(peer);
	close(raw);
	close(cli);
}

static struct cm_msg
request(void)
{
	struct cm_msg req = {.magic = CM_MAGIC,
		.ps = RDMA_PS_TCP,
		.type = CM_REQ,
		.from = {.gid = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1},
			.mtu = IBV_MTU_1024}};

	req.src.in = address("127.0.0.1", 1);
	req.dst.in = address("127.0.0.1", PORT);
	return req;
}

/* A peer that has sent a message of some length to the listener. */
static int
sender(const struct cm_msg *msg, size_t len)
{
	int peer = port_socket(connect);

	assert_int_equal(send(peer, msg, len, 0), len);
	return peer;
}

static void
accepted_by(int srv, const struct cm_msg *msg)
{
	int peer = sender(msg, sizeof(*msg));

	expect(srv, CONNECT_REQUEST, UID, 0);
	close(peer);
}

static void
rejected_by(int srv, const struct cm_msg *msg)
{
	int peer = sender(msg, sizeof(*msg));

	rejects(srv, peer, true);
	close(peer);
}

TEST(each_field_of_a_request_is_checked)
{
	struct cm_msg good = request(), bad;
	int srv = channel(), peer;

	listener(srv, RDMA_PS_TCP);
	fcntl(srv, F_SETFL, O_NONBLOCK);
	accepted_by(srv, &good);
#define BAD(member, value)                                                                         \
	bad = good;                                                                                \
	bad.member = (value);                                                                      \
	rejected_by(srv, &bad)
	BAD(magic, CM_MAGIC + 1);
	BAD(ps, RDMA_PS_UDP);
	BAD(type, CM_REP);
	BAD(type, 100);
	BAD(psn, 1u << 24);
	BAD(conn.qp_num, 1u << 24);
	BAD(from.mtu, 0);
	BAD(from.mtu, IBV_MTU_4096 + 1);
	if (is_tcp()) { /* Only IPv4 addresses of hosts are GIDs of this wire. */
		BAD(from.gid[0], 0xfe);
		BAD(from.gid[12], 0);
		BAD(from.gid[12], 224);
	} else {
		BAD(src.sa.sa_family, 0);
		BAD(dst.in, address("127.0.0.2", PORT));
		BAD(dst.sa.sa_family, AF_UNIX);
	}
#undef BAD
	/* One that is wrong does not hide the next one. */
	peer = sender(&bad, sizeof(bad));
	accepted_by(srv, &good);
	close(peer);
	close(srv);
}

static uint64_t
now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

TEST(a_peer_that_connects_and_is_silent_delays_no_other)
{
	struct cm_msg req = request();
	uint32_t fds = test_open_files(), listens, out;
	int srv = channel(), cli = channel(), peer[4];
	struct pollfd pfd = {.fd = srv, .events = POLLIN};
	uint64_t start;

	listens = listener(srv, RDMA_PS_TCP);
	out = create(cli, UID + 1, RDMA_PS_TCP);
	if (is_tcp()) { /* Else a program that polls, and then waits, waits for another. */
		peer[0] = port_socket(connect);
		assert_int_equal(poll(&pfd, 1, 100), 0);
		close(peer[0]);
	}
	for (size_t i = 0; i < 4; i++)
		peer[i] = silent_peer();
	route(cli, out, UID + 1);
	assert_ok(connect_id(cli, out, 1, ""));
	start = now_ms();
	expect(srv, CONNECT_REQUEST, UID, 0);
	assert_in_range(now_ms() - start, 0, 2000);

	/* What it sends later is read, also if it is nonsense. */
	send_rest(peer[0], &req);
	expect(srv, CONNECT_REQUEST, UID, 0);
	fcntl(srv, F_SETFL, O_NONBLOCK);
	req.type = 100;
	send_rest(peer[1], &req);
	close(peer[2]);
	rejects(srv, peer[1], true);
	assert_true(is_closed(peer[1]));
	assert_int_equal(recv(peer[3], &req, sizeof(req), MSG_DONTWAIT), -1);
	destroy(srv, listens);
	assert_true(is_closed(peer[3]));
	close(srv);
	close(cli);
	close(peer[0]);
	close(peer[1]);
	close(peer[3]);
	assert_int_equal(test_open_files(), fds);
}

TEST(a_peer_that_stays_silent_is_dropped)
{
	int srv = channel(), peer;
	struct pollfd pfd = {.fd = srv, .events = POLLIN};

	setenv("SOFT_MLX5_CM_TIMEOUT", "50", 1);
	listener(srv, RDMA_PS_TCP);
	fcntl(srv, F_SETFL, O_NONBLOCK);
	peer = silent_peer();
	for (int i = 0; i < 2; i++) { /* It connects; its time is over. */
		assert_int_equal(poll(&pfd, 1, 5000), 1);
		assert_int_equal(get_event(srv, &(struct rdma_ucm_event_resp){0}), EAGAIN);
	}
	assert_true(is_closed(peer));
	assert_int_equal(poll(&pfd, 1, 100), 0);
	unsetenv("SOFT_MLX5_CM_TIMEOUT");
	close(srv);
	close(peer);
}

TEST(a_request_in_pieces_is_read_when_it_is_whole)
{
	struct cm_msg req = request();
	int srv = channel(), peer;
	struct pollfd pfd = {.fd = srv, .events = POLLIN};

	if (!is_tcp()) /* A Unix socket takes and gives it as a whole. */
		skip();
	listener(srv, RDMA_PS_TCP);
	peer = sender(&req, 100);
	fcntl(srv, F_SETFL, O_NONBLOCK);
	assert_int_equal(poll(&pfd, 1, 5000), 1); /* It connects, */
	assert_int_equal(get_event(srv, &(struct rdma_ucm_event_resp){0}), EAGAIN);
	assert_int_equal(poll(&pfd, 1, 50), 0); /* and a piece is nothing yet. */
	assert_int_equal(send(peer, (char *)&req + 100, sizeof(req) - 100, 0), sizeof(req) - 100);
	expect(srv, CONNECT_REQUEST, UID, 0);
	close(peer);
	peer = sender(&req, 100);
	close(peer); /* The rest does not come. */
	for (int i = 0; i < 100 && poll(&pfd, 1, 50) != 0; i++)
		assert_int_equal(get_event(srv, &(struct rdma_ucm_event_resp){0}), EAGAIN);
	assert_int_equal(poll(&pfd, 1, 50), 0);
	close(srv);
}

/* Also where the program's command, and no event, has them read. */
TEST(later_messages_in_pieces_are_read_when_they_are_whole)
{
	struct cm_msg msg = request();
	int srv = channel(), peer;
	uint32_t id;

	if (!is_tcp())
		skip();
	listener(srv, RDMA_PS_TCP);
	peer = sender(&msg, sizeof(msg));
	id = expect(srv, CONNECT_REQUEST, UID, 0).id;
	assert_ok(accept_id(srv, id, UID + 2, 1, ""));
	msg.type = CM_RTU;
	assert_int_equal(send(peer, &msg, 100, 0), 100);
	usleep(20000);
	assert_ok(disconnect(srv, id)); /* Which reads, and without RTU does nothing. */
	assert_int_equal(send(peer, (char *)&msg + 100, sizeof(msg) - 100, 0), sizeof(msg) - 100);
	expect(srv, ESTABLISHED, UID + 2, 0);
	assert_int_equal(send(peer, &msg, 100, 0), 100);
	close(peer); /* The rest does not come. */
	expect(srv, DISCONNECTED, UID + 2, 0);
	close(srv);
}

/* Who is silent longest goes first, and one that speaks is heard among them. */
TEST(few_connections_of_a_source_may_be_silent)
{
	struct cm_msg req = request();
	int srv = channel(), peer[40];
	uint32_t fds;

	if (!is_tcp())
		skip();
	listener(srv, RDMA_PS_TCP);
	fds = test_open_files();
	fcntl(srv, F_SETFL, O_NONBLOCK);
	for (int i = 0; i < 40; i++)
		peer[i] = silent_peer();
	rejects(srv, peer[23], false);
	assert_int_equal(test_open_files(), fds + 40 + 16);
	assert_true(is_closed(peer[0]));
	assert_true(is_closed(peer[23]));
	send_rest(peer[24], &req);
	expect(srv, CONNECT_REQUEST, UID, 0);
	for (int i = 0; i < 40; i++)
		close(peer[i]);
	close(srv);
}

/* A thread that waits for it does not fail. */
TEST(a_request_is_heard_when_there_are_descriptors_again)
{
	struct cm_msg req = request();
	int srv = channel(), taken[256], peer, n = 0;
	struct rlimit old, few = {.rlim_cur = 256};
	pthread_t thread;
	void *result;

	listener(srv, RDMA_PS_TCP);
	assert_ok(pthread_create(&thread, NULL, wait_for_event, &srv));
	usleep(20000);
	assert_ok(getrlimit(RLIMIT_NOFILE, &old));
	few.rlim_max = old.rlim_max;
	assert_ok(setrlimit(RLIMIT_NOFILE, &few));
	while (n < 256 && (taken[n] = dup(STDERR_FILENO)) >= 0)
		n++;
	close(taken[--n]);
	peer = sender(&req, sizeof(req)); /* The last one. */
	usleep(50000);
	assert_int_equal(pthread_tryjoin_np(thread, &result), EBUSY);
	while (n-- > 0)
		close(taken[n]);
	assert_ok(setrlimit(RLIMIT_NOFILE, &old));
	assert_ok(pthread_join(thread, &result));
	assert_null(result);
	close(peer);
	close(srv);
}

TEST(a_peer_that_sends_without_end_is_disconnected)
{
	struct cm_msg msg = request();
	int srv = channel(), peer;
	uint32_t id;

	listener(srv, RDMA_PS_TCP);
	peer = sender(&msg, sizeof(msg));
	id = expect(srv, CONNECT_REQUEST, UID, 0).id;
	assert_ok(accept_id(srv, id, UID + 2, 1, ""));
	msg.type = CM_RTU;
	for (int i = 0; i < 40; i++)
		assert_int_equal(send(peer, &msg, sizeof(msg), 0), sizeof(msg));
	expect(srv, ESTABLISHED, UID + 2, 0);
	expect(srv, DISCONNECTED, UID + 2, 0);
	close(peer);
	close(srv);
}

/* A net of this process alone: its ports are free. */
static int
net_choose(void **state)
{
	char name[32];

	snprintf(name, sizeof(name), "test.cm.%d", (int)getpid());
	if (is_tcp())
		free_port = port_find();
	return setenv("SOFT_MLX5_NET", name, 1);
}

TEST_MAIN(net_choose, NULL)
