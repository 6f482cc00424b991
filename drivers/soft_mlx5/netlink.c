/* SPDX-License-Identifier: BSD-3-Clause */
#include "netlink.h"

#include <errno.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rdma/rdma_netlink.h>

#include "nic.h"
#include "port.h"
#include "say.h"
#include "sysfs.h"

union request {
	uint8_t at[256];
	struct nlmsghdr hdr;
};

#define DEVICE_MAX 256 /* Bytes of the message about one. */

/* Messages in a row. What is added belongs to the last one. */
struct answer {
	_Alignas(struct nlmsghdr) uint8_t at[(SM_DEVICES_MAX + 1) * DEVICE_MAX];
	struct nlmsghdr *last;
	size_t len;
};

static void
add(struct answer *a, const void *data, size_t len)
{
	memcpy(a->at + a->len, data, len);
	a->len += NLMSG_ALIGN(len);
	a->last->nlmsg_len = (uint32_t)(a->at + a->len - (uint8_t *)a->last);
}

static void
message(struct answer *a, const struct nlmsghdr *to, uint16_t type, uint16_t flags)
{
	struct nlmsghdr hdr = *to;

	hdr.nlmsg_type = type;
	hdr.nlmsg_flags = flags;
	a->last = (struct nlmsghdr *)(void *)(a->at + a->len);
	add(a, &hdr, sizeof(hdr));
}

static void
attribute(struct answer *a, uint16_t type, const void *data, size_t len)
{
	struct nlattr attr = {.nla_len = (uint16_t)(NLA_HDRLEN + len), .nla_type = type};

	add(a, &attr, sizeof(attr));
	add(a, data, len);
}

#define NUMBER(name, bits, value)                                                                  \
	attribute(a, RDMA_NLDEV_ATTR_##name, &(uint##bits##_t){value}, sizeof(uint##bits##_t))
#define TEXT(name, text) attribute(a, RDMA_NLDEV_ATTR_##name, text, strlen(text) + 1)

static void
device_info(struct answer *a, uint32_t n, bool of_port)
{
	const struct sm_port *port = sm_port(n);
	char text[32];

	snprintf(text, sizeof(text), SM_DEVICE_NAME "%u", n);
	NUMBER(DEV_INDEX, 32, n);
	TEXT(DEV_NAME, text);
	NUMBER(PORT_INDEX, 32, 1); /* Of a device: how many. */
	if (!of_port) {
		snprintf(text, sizeof(text), "%d.%d.%d", SM_FW_MAJOR, SM_FW_MINOR, SM_FW_SUB);
		TEXT(FW_VERSION, text);
		NUMBER(NODE_GUID, 64, SM_NODE_GUID + n);
		NUMBER(SYS_IMAGE_GUID, 64, SM_NODE_GUID + n);
		NUMBER(DEV_NODE_TYPE, 8, RDMA_NODE_IB_CA);
		TEXT(DEV_PROTOCOL, port->ethernet ? "roce" : "ib");
		return;
	}
	if (!port->ethernet) {
		NUMBER(SUBNET_PREFIX, 64, SM_GID_PREFIX);
		NUMBER(LID, 32, port->lid);
		NUMBER(SM_LID, 32, SM_LID);
		NUMBER(LMC, 8, 0);
	}
	NUMBER(PORT_STATE, 8, port->down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE);
	NUMBER(PORT_PHYS_STATE, 8, port->down ? 3 : 5); /* Disabled, LinkUp */
	if (port->ifindex != 0) {
		NUMBER(NDEV_INDEX, 32, port->ifindex);
		TEXT(NDEV_NAME, port->netdev);
	}
}

static bool
is_dump(const union request *r)
{
	return (r->hdr.nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
}

/* A number in a request; UINT32_MAX: it has none. */
static uint32_t
asked(const union request *r, uint16_t type)
{
	uint32_t value = UINT32_MAX;
	struct nlattr attr;

	for (size_t at = NLMSG_HDRLEN; at + NLA_HDRLEN + sizeof(value) <= r->hdr.nlmsg_len;
		at += NLA_ALIGN(crpc_max(attr.nla_len, NLA_HDRLEN))) {
		memcpy(&attr, r->at + at, sizeof(attr));
		if (attr.nla_type == type)
			memcpy(&value, r->at + at + NLA_HDRLEN, sizeof(value));
	}
	return value;
}

/* One device or port, or all of them. 0 or an errno value. */
static int
answer(struct answer *a, const union request *r)
{
	uint32_t op = RDMA_NL_GET_OP(r->hdr.nlmsg_type), n = asked(r, RDMA_NLDEV_ATTR_DEV_INDEX);
	bool dump = is_dump(r), port = op == RDMA_NLDEV_CMD_PORT_GET;
	bool all = dump && !port; /* A dump of ports is of one device's. */

	if (op == RDMA_NLDEV_CMD_SYS_GET) {
		message(a, &r->hdr, r->hdr.nlmsg_type, 0);
		attribute(a, RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, &(uint8_t){1}, 1);
		return 0;
	}
	if (op == RDMA_NLDEV_CMD_GET_CHARDEV) /* libibverbs then looks into sysfs. */
		return EOPNOTSUPP;
	if (op != RDMA_NLDEV_CMD_GET && !port)
		return sm_refuse(EOPNOTSUPP, "command %u of NETLINK_RDMA", op);
	if (!all && n >= sm_ports())
		return EINVAL;
	if (port && !dump && asked(r, RDMA_NLDEV_ATTR_PORT_INDEX) != 1)
		return EINVAL;
	for (uint32_t i = all ? 0 : n; i < (all ? sm_ports() : n + 1); i++) {
		message(a, &r->hdr, r->hdr.nlmsg_type, dump ? NLM_F_MULTI : 0);
		device_info(a, i, port);
	}
	return 0;
}

/* The end of a dump, or whether it failed, if that is asked for or it did. */
static void
finish(struct answer *a, const union request *r, int err)
{
	struct nlmsgerr result = {.error = -err, .msg = r->hdr};

	if (err == 0 && is_dump(r)) {
		message(a, &r->hdr, NLMSG_DONE, NLM_F_MULTI);
		add(a, &result.error, sizeof(result.error));
	} else if (err != 0 || (r->hdr.nlmsg_flags & NLM_F_ACK) != 0) {
		message(a, &r->hdr, NLMSG_ERROR, 0);
		add(a, &result, sizeof(result));
	}
}

ssize_t
sm_netlink_send(int fd, const void *buf, size_t len)
{
	union request r = {.at = {0}};
	struct answer a = {.len = 0};
	struct sockaddr_nl name;
	socklen_t name_len = sizeof(name), int_len = sizeof(int);
	size_t n = crpc_min(len, sizeof(r));
	int protocol, from;
	ssize_t sent = -1;

	errno = ECONNREFUSED;
	memcpy(r.at, buf, n);
	if (n < NLMSG_HDRLEN || r.hdr.nlmsg_len < NLMSG_HDRLEN || r.hdr.nlmsg_len > n ||
		RDMA_NL_GET_CLIENT(r.hdr.nlmsg_type) != RDMA_NL_NLDEV ||
		getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &int_len) != 0 ||
		protocol != NETLINK_USERSOCK || getsockname(fd, (void *)&name, &name_len) != 0 ||
		name.nl_family != AF_NETLINK)
		return -1;
	r.hdr.nlmsg_pid = name.nl_pid;
	finish(&a, &r, answer(&a, &r));
	from = sm_fd_hide(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_USERSOCK));
	if (from >= 0)
		sent = sendto(from, a.at, a.len, MSG_DONTWAIT, (void *)&name, sizeof(name));
	if (from >= 0)
		close(from);
	return sent < 0 ? -1 : (ssize_t)len;
}
