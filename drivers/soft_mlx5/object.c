/* SPDX-License-Identifier: BSD-3-Clause */
#include "object.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_SIZE 64

static int
grow(struct uv_objs *objs)
{
	uint32_t size = objs->size == 0 ? FIRST_SIZE : objs->size * 2;
	struct uv_obj **slot;

	if (size > UV_HANDLES_MAX)
		return ENOSPC;
	slot = realloc(objs->slot, size * sizeof(*slot));
	if (slot == NULL)
		return ENOMEM;
	memset(slot + objs->size, 0, (size - objs->size) * sizeof(*slot));
	objs->slot = slot;
	objs->next = objs->size == 0 ? 1 : objs->size;
	objs->size = size;
	return 0;
}

int
uv_objs_add(struct uv_objs *objs, struct uv_obj *obj, enum uv_type type)
{
	/* A quarter stays free: the search is short, and handles come back late. */
	bool full = objs->used + 1 > objs->size - objs->size / 4;
	int err = full ? grow(objs) : 0;
	uint32_t h;

	if (err != 0)
		return err;
	for (h = objs->next; h == 0 || objs->slot[h] != NULL;)
		h = (h + 1) & (objs->size - 1);
	objs->next = (h + 1) & (objs->size - 1);
	objs->slot[h] = obj;
	objs->used++;
	obj->type = type;
	obj->handle = h;
	return 0;
}

struct uv_obj *
uv_objs_get(const struct uv_objs *objs, uint32_t handle, enum uv_type type)
{
	struct uv_obj *obj = handle < objs->size ? objs->slot[handle] : NULL;

	return obj != NULL && obj->type == type ? obj : NULL;
}

void
uv_objs_del(struct uv_objs *objs, struct uv_obj *obj)
{
	objs->slot[obj->handle] = NULL;
	objs->used--;
}

struct uv_obj *
uv_objs_at_or_after(const struct uv_objs *objs, uint32_t handle)
{
	for (; handle < objs->size; handle++)
		if (objs->slot[handle] != NULL)
			return objs->slot[handle];
	return NULL;
}
