/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The device's clock, as a program maps it from the device node: nanoseconds of CLOCK_MONOTONIC,
 * which also stamp the CQEs. It moves when the NIC is driven and looks at its own clock; a program
 * that neither polls nor waits sees it stand for up to some milliseconds, but never go back.
 *
 *     page 5 << 8   the core clock: 64 bits, big endian
 *     page 7 << 8   how to make wall-clock time of it (struct mlx5_ib_clock_info)
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "uverbs.h"

void *
uv_page_map(const struct uv_ctx *ctx, uint64_t page)
{
	void *p = mmap(NULL, UV_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, ctx->fd,
			(off_t)(page * UV_PAGE));

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, UV_PAGE, MADV_DONTFORK);
	return p;
}

uint64_t
uv_clock_read(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int
uv_clock_open(struct uv_ctx *ctx)
{
	struct mlx5_ib_clock_info info = {.mult = 1, .mask = UINT64_MAX};
	void *page = uv_page_map(ctx, UV_PAGE_CLOCK_INFO);

	if (page == NULL)
		return ENOMEM;
	info.cycles = uv_clock_read(CLOCK_MONOTONIC);
	info.nsec = uv_clock_read(CLOCK_REALTIME);
	info.overflow_period = UINT64_MAX >> 1;
	memcpy(page, &info, sizeof(info));
	munmap(page, UV_PAGE);
	ctx->clock = uv_page_map(ctx, UV_PAGE_CLOCK);
	if (ctx->clock == NULL)
		return ENOMEM;
	uv_clock_tick(ctx, info.cycles);
	crpc_store_relaxed(&ctx->now_ns, info.cycles);
	return 0;
}
