/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * What happens to ports while programs run: a link goes down and up again, the subnet manager
 * gives other LIDs, a device fails as a whole. The program gets the event that a kernel raises, and
 * queries answer what is new.
 *
 * A port that is down loses what comes. Contexts of others get the timers that notice it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "port.h"
#include "progress.h"
#include "soft_mlx5.h"
#include "uverbs.h"

#define LID_MAX 0xbffful /* Above are those of multicast. */

int
uv_timers(void)
{
	struct uv_ctx *list[SM_SLOTS];
	uint32_t n = uv_contexts(list);
	int err = 0;

	for (uint32_t i = 0; i < n && err == 0; i++)
		err = sm_nic_timers(uv_nic(list[i]));
	return err;
}

static int
link_change(struct uv_ctx *const *list, uint32_t n, bool down)
{
	int err = uv_timers();

	for (uint32_t i = 0; i < n && err == 0; i++) {
		sm_port_down((uint32_t)list[i]->device, down);
		err = sm_nic_faults(uv_nic(list[i]), down ? "drop=1" : "");
		uv_async_event(&list[i]->port, down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
	}
	return err;
}

static int
lid_change(struct uv_ctx *const *list, uint32_t n, const char *text)
{
	char *end;
	unsigned long lid = strtoul(text, &end, 0);

	if (*end != '\0' || lid == 0 || lid > LID_MAX || sm_port(0)->ethernet)
		return EINVAL;
	sm_port_lid((uint16_t)lid);
	for (uint32_t i = 0; i < n; i++) {
		sm_nic_lid(uv_nic(list[i]), (uint16_t)lid);
		uv_async_event(&list[i]->port, IBV_EVENT_LID_CHANGE);
	}
	return 0;
}

static int
device_fatal(struct uv_ctx *const *list, uint32_t n)
{
	int err = 0;

	for (uint32_t i = 0; i < n && err == 0; i++) {
		err = sm_nic_faults(uv_nic(list[i]), "dead=1");
		uv_async_event(&list[i]->port, IBV_EVENT_DEVICE_FATAL);
	}
	return err;
}

int
uv_port_change(struct uv_ctx *const *list, uint32_t n, const char *text)
{
	if (strcmp(text, "down") == 0 || strcmp(text, "up") == 0)
		return link_change(list, n, text[0] == 'd');
	if (strncmp(text, "lid=", 4) == 0)
		return lid_change(list, n, text + 4);
	return strcmp(text, "fatal") == 0 ? device_fatal(list, n) : EINVAL;
}

__attribute__((visibility("default"))) int
soft_mlx5_port(struct ibv_context *context, const char *text)
{
	struct uv_ctx *ctx = uv_ctx_of(sm_file_find(context->cmd_fd));

	int err;

	if (ctx == NULL || uv_nic(ctx) == NULL)
		return EINVAL;
	pthread_mutex_lock(&sm_drive_lock);
	err = uv_port_change(&ctx, 1, text);
	pthread_mutex_unlock(&sm_drive_lock);
	return err;
}
