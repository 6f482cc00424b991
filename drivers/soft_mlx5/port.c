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

#include "nic.h"
#include "say.h"
#include "sysfs.h"

/* IPv4, UDP, the longest headers of RoCEv2, ICRC. */
#define HEADERS 92u

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
ethernet_port(uint32_t n, struct sm_port *port)
{
	char addr[INET_ADDRSTRLEN], netdev[IF_NAMESIZE];
	bool by_addr = element(getenv("SOFT_MLX5_ADDR"), n, addr, sizeof(addr));
	bool by_name = element(getenv("SOFT_MLX5_NETDEV"), n, netdev, sizeof(netdev));
	uint32_t be;

	port->ethernet = true;
	port->mtu = IBV_MTU_1024;
	if ((n != 0 && !by_addr && !by_name) ||
		!find_addr(by_addr ? addr : NULL, by_name ? netdev : NULL, port)) {
		sm_complain("device %u has no address: SOFT_MLX5_WIRE=udp needs SOFT_MLX5_ADDR, "
			    "IPv4 addresses of interfaces here that are up, or SOFT_MLX5_NETDEV, "
			    "their names, one for each device", n);
		return;
	}
	port->mtu = path_mtu(port->netdev);
	be = htonl(port->addr);
	port->gid[10] = port->gid[11] = 0xff;
	memcpy(port->gid + 12, &be, sizeof(be));
}

static void
infiniband_port(uint32_t n, struct sm_port *port)
{
	uint64_t gid[2] = {htobe64(SM_GID_PREFIX), htobe64(SM_NODE_GUID + n)};

	port->mtu = IBV_MTU_4096;
	port->lid = (uint16_t)(SM_LID + n);
	memcpy(port->gid, gid, sizeof(port->gid));
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
	for (uint32_t i = 0; i < nports; i++)
		if (udp)
			ethernet_port(i, &ports[i]);
		else
			infiniband_port(i, &ports[i]);
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
