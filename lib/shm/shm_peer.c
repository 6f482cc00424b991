/* SPDX-License-Identifier: BSD-3-Clause */
/* Who may come in, by what the kernel says of a Unix socket's other end. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shm_private.h"

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

int
crpc_shm_peer_get(int sock, struct crpc_shm_peer *peer)
{
	socklen_t len = sizeof(struct ucred);
	struct ucred cred;

	memset(peer, 0, sizeof(*peer));
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0)
		return -errno;
	peer->pid = cred.pid;
	peer->uid = cred.uid;
	peer->gid = cred.gid;
	len = sizeof(peer->groups);
	/* More groups than fit, or a kernel before 4.13: the primary group alone counts. */
	if (getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, peer->groups, &len) == 0)
		peer->group_count = (uint32_t)(len / sizeof(peer->groups[0]));
	return 0;
}

static bool
has_group(const struct crpc_shm_peer *peer, gid_t gid)
{
	uint32_t i;

	if (peer->gid == gid)
		return true;
	for (i = 0; i < peer->group_count; i++)
		if (peer->groups[i] == gid)
			return true;
	return false;
}

bool
crpc_shm_allowed(const struct crpc_shm_allow *allow, const struct crpc_shm_peer *peer)
{
	uint32_t i;

	if (peer->uid == geteuid() || peer->uid == 0)
		return true;
	for (i = 0; allow != NULL && i < allow->uid_count; i++)
		if (peer->uid == allow->uids[i])
			return true;
	for (i = 0; allow != NULL && i < allow->gid_count; i++)
		if (has_group(peer, allow->gids[i]))
			return true;
	return false;
}
