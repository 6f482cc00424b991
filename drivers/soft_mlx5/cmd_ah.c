/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Address handles. On InfiniBand libmlx5 makes them by itself; on Ethernet the kernel finds the MAC
 * address of the next hop, which the kernel's own UDP does again for every packet here.
 */
#include "uverbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "port.h"
#include "sysfs.h"

int
uv_create_ah(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_create_ah *req = uv_req(call);
	struct mlx5_ib_create_ah_resp drv = {.response_length = sizeof(drv)};
	struct ib_uverbs_create_ah_resp resp = {0};
	struct uv_ah *ah;
	int err;

	if (req->attr.port_num != 1 || req->attr.grh.sgid_index >= SM_GIDS ||
			(sm_port((uint32_t)ctx->device)->ethernet && !req->attr.is_global))
		return EINVAL;
	ah = calloc(1, sizeof(*ah));
	if (ah == NULL)
		return ENOMEM;
	ah->pd = uv_get(ctx, req->pd_handle, UV_PD, uv_pd);
	err = ah->pd == NULL ? EINVAL : uv_objs_add(&ctx->objs, &ah->obj, UV_AH);
	if (err != 0) {
		free(ah);
		return err;
	}
	ah->pd->obj.users++;
	resp.ah_handle = ah->obj.handle;
	/* As captures have it: local, and the address. */
	drv.dmac[0] = 0x02;
	memcpy(drv.dmac + 2, req->attr.grh.dgid + 12, 4);
	uv_reply(call, &resp, sizeof(resp));
	uv_reply_driver(call, &drv, sizeof(drv));
	return 0;
}

int
uv_destroy_ah(struct uv_ctx *ctx, struct uv_call *call)
{
	const struct ib_uverbs_destroy_ah *req = uv_req(call);
	struct uv_ah *ah = uv_get(ctx, req->ah_handle, UV_AH, uv_ah);

	if (ah == NULL)
		return ENOENT;
	ah->pd->obj.users--;
	uv_objs_del(&ctx->objs, &ah->obj);
	free(ah);
	return 0;
}
