/* SPDX-License-Identifier: BSD-3-Clause */
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdlib.h>

#include "app_fail.h"
#include "hosts.h"

#define LINE_MAX_BYTES 512

/* Take a line apart in place. @return false: it has another form. */
static bool
line_parse(char *line, struct kvd_host *host)
{
	char *name = line, *port = NULL, *end = line + strcspn(line, "]:");
	unsigned long v = KVD_PORT;

	if (*line == '[') {
		name++;
		end = line + strcspn(line, "]");
		if (*end != ']')
			return false;
		*end++ = '\0';
	}
	if (*end == ':') {
		*end = '\0';
		port = end + 1;
		v = strtoul(port, &end, 10);
		if (*port < '0' || *port > '9' || v == 0 || v > UINT16_MAX)
			return false;
	}
	if (*end != '\0' || *name == '\0' || strpbrk(name, " \t\r[]") != NULL ||
		strlen(name) >= sizeof(host->name))
		return false;
	memcpy(host->name, name, strlen(name) + 1);
	snprintf(host->port, sizeof(host->port), "%lu", v & UINT16_MAX);
	return true;
}

/* @return its number; h->n: none is the same. */
static uint32_t
same_as(const struct kvd_hosts *h, const struct kvd_host *host)
{
	uint32_t i;

	for (i = 0; i < h->n; i++)
		if (strcmp(h->host[i].name, host->name) == 0 &&
			strcmp(h->host[i].port, host->port) == 0)
			break;
	return i;
}

static int
line_read(struct kvd_hosts *h, const char *path, uint32_t number, char *line)
{
	struct kvd_host *host = &h->host[h->n];
	char found[81];
	size_t len;
	uint32_t i;

	if (strlen(line) == LINE_MAX_BYTES - 1 && line[LINE_MAX_BYTES - 2] != '\n')
		return app_fail("%s: line %u: expected at most %d bytes, found more", path,
			number, LINE_MAX_BYTES - 2);
	line += strspn(line, " \t");
	len = strcspn(line, "#\r\n");
	while (len > 0 && (line[len - 1] == ' ' || line[len - 1] == '\t'))
		len--;
	line[len] = '\0';
	if (len == 0)
		return 0;
	if (h->n == CRPC_KV_RANKS_MAX)
		return app_fail("%s: line %u: expected at most %d ranks, found more", path,
			number, CRPC_KV_RANKS_MAX);
	snprintf(found, sizeof(found), "%s", line);
	if (!line_parse(line, host))
		return app_fail(
			"%s: line %u: expected HOST, HOST:PORT or [ADDRESS]:PORT, found '%s'", path,
			number, found);
	i = same_as(h, host);
	if (i != h->n)
		return app_fail("%s: line %u: expected another host or port than rank %u has, "
				     "found '%s'",
			path, number, i, found);
	h->n++;
	return 0;
}

int
kvd_hosts_read(struct kvd_hosts *h, const char *path)
{
	FILE *f = fopen(path, "re");
	uint32_t number = 0;
	char line[LINE_MAX_BYTES];
	int rc = 0;

	h->n = 0;
	if (f == NULL)
		return app_fail("--hosts: %s cannot be read: %s", path, strerror(errno));
	while (rc == 0 && fgets(line, sizeof(line), f) != NULL)
		rc = line_read(h, path, ++number, line);
	if (rc == 0 && (ferror(f) || h->n == 0))
		rc = app_fail(
			"%s: expected a line HOST[:PORT] for each rank, found none", path);
	fclose(f);
	return rc;
}

struct addrinfo *
kvd_host_addresses(const struct kvd_host *host, int listen)
{
	const struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM, .ai_flags = listen ? AI_PASSIVE : 0};
	struct addrinfo *list;

	return getaddrinfo(host->name, host->port, &hints, &list) == 0 ? list : NULL;
}

bool
kvd_host_same(const void *a, const void *b)
{
	const sa_family_t family = ((const struct sockaddr *)a)->sa_family;
	const size_t at = family == AF_INET ? offsetof(struct sockaddr_in, sin_addr)
					    : offsetof(struct sockaddr_in6, sin6_addr);

	if (b == NULL || family != ((const struct sockaddr *)b)->sa_family ||
		(family != AF_INET && family != AF_INET6))
		return false;
	return memcmp((const char *)a + at, (const char *)b + at,
		       family == AF_INET ? sizeof(struct in_addr) : sizeof(struct in6_addr)) == 0;
}

bool
kvd_host_loopback(const void *a)
{
	struct sockaddr_in6 in6;

	if (((const struct sockaddr *)a)->sa_family == AF_INET)
		return ((const uint8_t *)a)[offsetof(struct sockaddr_in, sin_addr)] ==
			IN_LOOPBACKNET;
	memcpy(&in6, a, sizeof(in6));
	return IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
}

static bool
is_here(const struct kvd_host *host, const struct ifaddrs *mine)
{
	struct addrinfo *list = kvd_host_addresses(host, false);
	bool here = false;

	for (struct addrinfo *a = list; a != NULL; a = a->ai_next)
		for (const struct ifaddrs *at = mine; at != NULL && !here; at = at->ifa_next)
			here = kvd_host_same(a->ai_addr, at->ifa_addr);
	if (list != NULL)
		freeaddrinfo(list);
	return here;
}

int
kvd_hosts_find(const struct kvd_hosts *h, const char *path, uint64_t *rank)
{
	struct ifaddrs *mine;
	uint32_t found = 0;

	if (getifaddrs(&mine) != 0)
		return app_fail("the addresses of this host are not known: %s; give --rank N",
			strerror(errno));
	for (uint32_t i = 0; i < h->n; i++) {
		if (!is_here(&h->host[i], mine))
			continue;
		*rank = i;
		found++;
	}
	freeifaddrs(mine);
	if (found == 1)
		return 0;
	return app_fail("%s: expected one line with an address of this host, found %u; give "
			     "--rank N",
		path, found);
}
