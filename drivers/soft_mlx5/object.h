/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_OBJECT_H
#define SOFT_MLX5_OBJECT_H

/**
 * @file
 * The objects of a context and the handles by which a program names them.
 *
 * Handles are indexes into a table that grows; they are given out in turn, so that a handle used
 * after its object was destroyed meets nothing for as long as possible. Handle 0 is never given.
 * The caller holds the context's lock.
 */

#include <stdint.h>

#include "nic.h"

#define UV_HANDLES_MAX (1u << 20)

enum uv_type {
	UV_PD = 1,
	UV_MR,
	UV_CQ,
	UV_SRQ,
	UV_QP,
	UV_UAR,
	UV_MW,
	UV_AH,
	UV_CM_ID, /**< In a table of its own (cm.h). */
};

struct uv_obj {
	enum uv_type type;
	uint32_t handle;
	union { /**< What the NIC has for it. */
		void *any;
		struct sm_uar *uar;
		struct sm_pd *pd;
		struct sm_mr *mr;
		struct sm_mw *mw;
		struct sm_cq *cq;
		struct sm_srq *srq;
		struct sm_qp *qp;
	};
};

struct uv_objs {
	struct uv_obj **slot; /**< Freed by who has the table. */
	uint32_t size; /**< Slots; slot 0 stays empty. */
	uint32_t used;
	uint32_t next; /**< Where the search for a free slot goes on. */
};

/**
 * Give @p obj a handle.
 *
 * @return
 *   0, ENOMEM, ENOSPC (UV_HANDLES_MAX objects).
 */
int uv_objs_add(struct uv_objs *objs, struct uv_obj *obj, enum uv_type type);

/** The object with that handle and type, or NULL. Any value of @p handle is safe. */
struct uv_obj *uv_objs_get(const struct uv_objs *objs, uint32_t handle, enum uv_type type);

/** Take the handle back. The object is the caller's. */
void uv_objs_del(struct uv_objs *objs, struct uv_obj *obj);

/** The first object at or behind @p handle, or NULL: for walks. */
struct uv_obj *uv_objs_at_or_after(const struct uv_objs *objs, uint32_t handle);

#endif
