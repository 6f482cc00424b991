/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <rte_telemetry.h>

#include "control.h"
#include "crpc_kv_server.h"

/* Static: telemetry's thread lives as long as the process, and may look at any time. */
struct kvd_health kvd_health;
_Atomic int kvd_hangup;

static void
on_hangup(int sig)
{
	crpc_store_relaxed(&kvd_hangup, 1);
}

void
kvd_hangup_catch(void)
{
	signal(SIGHUP, on_hangup);
}

static int
handle_health(const char *cmd, const char *params, struct rte_tel_data *d)
{
	static const char *const states[] = {"starting", "serving", "draining"};
	struct kvd_health *h = &kvd_health;

	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "state", states[crpc_load_relaxed(&h->state)]);
	rte_tel_data_add_dict_u64(d, "rank", crpc_load_relaxed(&h->rank));
	rte_tel_data_add_dict_u64(d, "ranks", crpc_load_relaxed(&h->ranks));
	rte_tel_data_add_dict_u64(d, "ranks_up", crpc_load_relaxed(&h->ranks_up));
	rte_tel_data_add_dict_u64(d, "epoch", crpc_load_relaxed(&h->epoch));
	rte_tel_data_add_dict_u64(d, "keys", crpc_kv_tel_sum(CRPC_KV_STAT_KEYS));
	rte_tel_data_add_dict_u64(d, "requests",
		crpc_kv_tel_sum(CRPC_KV_STAT_LOCAL) + crpc_kv_tel_sum(CRPC_KV_STAT_FORWARDED) +
			crpc_kv_tel_sum(CRPC_KV_STAT_REMOTE));
	rte_tel_data_add_dict_u64(d, "failed", crpc_kv_tel_sum(CRPC_KV_STAT_FAILED));
	rte_tel_data_add_dict_u64(d, "snapshots", crpc_load_relaxed(&h->snapshots));
	rte_tel_data_add_dict_u64(d, "snapshot_keys", crpc_load_relaxed(&h->snapshot_keys));
	rte_tel_data_add_dict_u64(d, "snapshot_time", crpc_load_relaxed(&h->snapshot_time));
	rte_tel_data_add_dict_u64(d, "snapshots_failed", crpc_load_relaxed(&h->snapshots_failed));
	return 0;
}

int
kvd_health_start(uint32_t rank, uint32_t daemons)
{
	int rc = rte_telemetry_register_cmd("/crpc/kvd/health", handle_health,
		"State, ranks that are up, keys and the last snapshot of kvd. No parameters.");

	return rc != 0 ? rc : crpc_kv_tel_start("/crpc/kvd/stats", rank, daemons);
}

int
kvd_ready(const char *file)
{
	int fd;

	kvd_notify("READY=1");
	if (file == NULL)
		return 0;
	fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return -errno;
	dprintf(fd, "%ld\n", (long)getpid());
	close(fd);
	return 0;
}

void
kvd_notify(const char *fmt, ...)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	const char *path = getenv("NOTIFY_SOCKET");
	size_t len = path == NULL ? 0 : strlen(path);
	char text[256];
	va_list ap;
	int fd;

	if (len < 2 || len >= sizeof(to.sun_path))
		return;
	memcpy(to.sun_path, path, len);
	if (*path == '@') /* An abstract name. */
		to.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	sendto(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&to,
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
	close(fd);
}
