/* SPDX-License-Identifier: BSD-3-Clause */
#include "port.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "fabric.h"
#include "nic.h"
#include "say.h"
#include "sysfs.h"

/* IPv4, UDP, the longest headers of RoCEv2, ICRC. */
#define HEADERS 92u
/* ::ffff:10.77.0.1, where ports are Ethernet without an interface; and the number of the device. */
#define SM_GID_IPV4 (UINT64_C(0xffff00000000) | 10u << 24 | 77u << 16 | 1u)

/* With several: what is there by default, but not as a full member; and another partition. */
#define SM_PKEY_LIMITED 0x7fff
#define SM_PKEY_OTHER   0x8005

static struct sm_port ports[SM_DEVICES_MAX];
static uint32_t nports;

/* Element @n of a list with commas; false: there is none. */
static bool
element(const char *list, uint32_t n, char *out, size_t size)
{
	size_t len;

	for (; list != NULL && n != 0; n--) {
		list = strchr(list, ',');
		list = list != NULL ? list + 1 : NULL;
	}
	if (list == NULL)
		return false;
	len = strcspn(list, ",");
	if (len == 0 || len >= size)
		return false;
	memcpy(out, list, len);
	out[len] = '\0';
	return true;
}

/* The largest MTU of a path whose packets an interface takes whole. */
static uint8_t
path_mtu(const char *netdev)
{
	struct ifreq req = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), mtu = 1500;
	uint8_t code = IBV_MTU_256;

	strncpy(req.ifr_name, netdev, sizeof(req.ifr_name) - 1);
	if (fd >= 0 && ioctl(fd, SIOCGIFMTU, &req) == 0)
		mtu = req.ifr_mtu;
	if (fd >= 0)
		close(fd);
	while (code < IBV_MTU_4096 && (int)((256u << code) + HEADERS) <= mtu)
		code++;
	return code;
}

/*
 * An address of ours that @addr and @netdev, if any, allow; what is up and no loopback by itself.
 */
static bool
find_addr(const char *addr, const char *netdev, struct sm_port *port)
{
	struct ifaddrs *all;
	struct in_addr want = {0};
	bool found = false;

	if (addr != NULL && inet_pton(AF_INET, addr, &want) != 1)
		return false;
	if (getifaddrs(&all) != 0)
		return false;
	for (struct ifaddrs *i = all; i != NULL && !found; i = i->ifa_next) {
		const struct sockaddr_in *sin = (const void *)i->ifa_addr;

		if (sin == NULL || sin->sin_family != AF_INET || (i->ifa_flags & IFF_UP) == 0)
			continue;
		if (addr != NULL ? sin->sin_addr.s_addr != want.s_addr
				 : netdev == NULL && (i->ifa_flags & IFF_LOOPBACK) != 0)
			continue;
		if (netdev != NULL && strcmp(i->ifa_name, netdev) != 0)
			continue;
		found = true;
		port->addr = ntohl(sin->sin_addr.s_addr);
		strncpy(port->netdev, i->ifa_name, sizeof(port->netdev) - 1);
		port->ifindex = if_nametoindex(i->ifa_name);
	}
	freeifaddrs(all);
	return found;
}

static void
gid_add(struct sm_port *port, uint64_t high, uint64_t low, uint8_t type)
{
	struct sm_gid *gid = &port->gid[port->ngids++];

	memcpy(gid->raw, &high, sizeof(high));
	memcpy(gid->raw + sizeof(high), &low, sizeof(low));
	gid->type = type;
}

/* A kernel has each GID of an interface once for each kind of RoCE that the card knows. */
static void
roce_gids(struct sm_port *port, uint64_t high, uint64_t low)
{
	if (sm_fabric()->roce)
		gid_add(port, high, low, IBV_GID_TYPE_ROCE_V1);
	gid_add(port, high, low, IBV_GID_TYPE_ROCE_V2);
}

static void
ethernet_port(uint32_t n, struct sm_port *port)
{
	char addr[INET_ADDRSTRLEN], netdev[IF_NAMESIZE];
	bool by_addr = element(getenv("SOFT_MLX5_ADDR"), n, addr, sizeof(addr));
	bool by_name = element(getenv("SOFT_MLX5_NETDEV"), n, netdev, sizeof(netdev));

	port->ethernet = port->udp = true;
	port->mtu = IBV_MTU_1024;
	if ((n != 0 && !by_addr && !by_name) ||
		!find_addr(by_addr ? addr : NULL, by_name ? netdev : NULL, port)) {
		sm_complain("device %u has no address: SOFT_MLX5_WIRE=udp needs SOFT_MLX5_ADDR, "
			    "IPv4 addresses of interfaces here that are up, or SOFT_MLX5_NETDEV, "
			    "their names, one for each device", n);
		return;
	}
	port->mtu = path_mtu(port->netdev);
	roce_gids(port, 0, htobe64(UINT64_C(0xffff00000000) | port->addr));
}

/* A port on the wire of shared memory: InfiniBand, or what SOFT_MLX5_FABRIC makes of it. */
static void
local_port(uint32_t n, struct sm_port *port)
{
	uint64_t prefix = htobe64(SM_GID_PREFIX);

	port->mtu = IBV_MTU_4096;
	port->ethernet = sm_fabric()->roce;
	if (port->ethernet) {
		roce_gids(port, prefix, htobe64(SM_NODE_GUID + n));
		roce_gids(port, 0, htobe64(SM_GID_IPV4 + n));
	} else {
		port->lid = (uint16_t)(SM_LID + n);
		gid_add(port, prefix, htobe64(SM_NODE_GUID + n), IBV_GID_TYPE_IB);
	}
}

static bool
is_udp(void)
{
	const char *wire = getenv("SOFT_MLX5_WIRE");

	if (wire == NULL || wire[0] == '\0' || strcmp(wire, "shm") == 0)
		return false;
	if (strcmp(wire, "udp") == 0)
		return true;
	sm_complain("SOFT_MLX5_WIRE is '%s', not shm or udp; taking shm", wire);
	return false;
}

static void
read_once(void)
{
	const char *env = getenv("SOFT_MLX5_DEVICES");
	int saved = errno;
	bool udp = is_udp();
	char *end = NULL;
	unsigned long n = env != NULL && env[0] != '\0' ? strtoul(env, &end, 10) : 1;

	if ((end != NULL && *end != '\0') || n == 0 || n > SM_DEVICES_MAX) {
		sm_complain(
			"SOFT_MLX5_DEVICES is '%s', not 1 to %d; taking 1", env, SM_DEVICES_MAX);
		n = 1;
	}
	nports = (uint32_t)n;
	for (uint32_t i = 0; i < nports; i++) {
		if (udp)
			ethernet_port(i, &ports[i]);
		else
			local_port(i, &ports[i]);
		ports[i].npkeys = sm_fabric()->pkeys ? 2 : 1;
		ports[i].pkey[0] = sm_fabric()->pkeys ? SM_PKEY_LIMITED : 0xffff;
		ports[i].pkey[1] = SM_PKEY_OTHER;
		/* A path over UDP cannot take more than the interface. */
		if (sm_fabric()->mtu[i] != 0)
			ports[i].mtu = (uint8_t)crpc_min(sm_fabric()->mtu[i], ports[i].mtu);
	}
	errno = saved;
}

uint32_t
sm_ports(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_once);
	return nports;
}

const struct sm_port *
sm_port(uint32_t n)
{
	return n < sm_ports() ? &ports[n] : &ports[0];
}

void
sm_port_down(uint32_t n, bool down)
{
	crpc_store_relaxed(&ports[n].down, down);
}

void
sm_port_lid(uint16_t first)
{
	for (uint32_t i = 0; i < nports; i++)
		crpc_store_relaxed(&ports[i].lid, (uint16_t)(first + i));
}
