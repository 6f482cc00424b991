/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_UCX_H
#define APP_UCX_H

#include <stdbool.h>
#include <string.h>

/**
 * Whether endpoints over these transports (UCX_TLS) are to survive their peer and to report its
 * loss: without that, a transport that finds its peer gone ends this process. Shared memory does
 * not find out. Where UCX is to choose (NULL), it would choose others for that.
 */
static inline bool
app_ucx_reports(const char *tls)
{
	static const char *const mute[] = {"posix", "sysv", "self", "mm", "shm", "sm"};
	size_t i, len;

	while (tls != NULL && *tls != '\0') {
		len = strcspn(tls, ",");
		for (i = 0; i < sizeof(mute) / sizeof(mute[0]); i++)
			if (strlen(mute[i]) == len && strncmp(mute[i], tls, len) == 0)
				break;
		if (i == sizeof(mute) / sizeof(mute[0]))
			return true;
		tls += len + (tls[len] == ',');
	}
	return false;
}

#endif
