/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DEVICE_END_H
#define DEVICE_END_H

/**
 * @file
 * What tests of a device's behaviour have at each end: the device that DEVICE names, or the first,
 * with a region; and what the test makes of it. Include it after cmocka.h.
 */

#include <string.h>

#include "crpc_clock.h"
#include "device.h"
#include "rnd.h"

struct end {
	struct crpc_rdma *dev;
	struct crpc_rdma_mr mr;
	uint8_t *buf; /* All of the region. */
	struct crpc_rdma_qp *qp;
	struct crpc_rdma_qp *ud;
	struct crpc_rdma_ah *ah; /* To the other end. */
};

static struct end e[2]; /* Of the test that runs. */
static uint64_t seed;

/* Whether it is the driver that DRIVER names, and sees WQEs. */
static inline bool
device_shows_wqes(const struct crpc_rdma *dev)
{
	bool verbs = getenv("DRIVER") != NULL && strcmp(getenv("DRIVER"), "verbs") == 0;
	struct crpc_rdma_info info;

	crpc_rdma_info_get(dev, &info);
	assert_string_equal(info.driver,
		device_on_paper() ? "paper_nic"
			: verbs   ? "verbs_copyrpc"
				  : "mlx5_copyrpc");
	return !verbs;
}

/* Frees what there is. */
static inline void
end_close(struct end *of)
{
	if (of->dev == NULL)
		return;
	crpc_rdma_ah_free(of->ah);
	crpc_rdma_qp_free(of->qp);
	crpc_rdma_qp_free(of->ud);
	crpc_rdma_mr_dereg(of->dev, &of->mr);
	crpc_rdma_close(of->dev);
	free(of->buf);
	memset(of, 0, sizeof(*of));
}

/* Opens the device, with a region of len bytes, all 0. What was open there ends. */
static inline void
end_device(struct end *to, const struct crpc_rdma_conf *conf, uint32_t len)
{
	struct crpc_rdma_conf with = *conf;

	with.device = getenv("DEVICE");
	end_close(to);
	to->dev = crpc_rdma_open(&with);
	assert_or_log(to->dev != NULL);
	to->buf = aligned_alloc(4096, len);
	assert_non_null(to->buf);
	memset(to->buf, 0, len);
	assert_int_equal(crpc_rdma_mr_reg(to->dev, to->buf, len, &to->mr), 0);
}

static inline void
pair_close(void)
{
	end_close(&e[0]);
	end_close(&e[1]);
}

static inline int
pair_end(void **state)
{
	pair_close();
	return 0;
}

/* Polls until e[who] has a completion of this type; others, at both ends, are dropped. False: in
 * timeout_ns there was none. */
static inline bool
wait_type(int who, uint8_t type, uint64_t timeout_ns, struct crpc_rdma_cqe *cqe)
{
	uint64_t end = crpc_clock_ns() + timeout_ns;
	struct crpc_rdma_cqe other;

	do {
		if (crpc_rdma_poll(e[who].dev, cqe, 1) != 0 && cqe->type == type)
			return true;
		crpc_rdma_poll(e[!who].dev, &other, 1);
	} while (crpc_clock_ns() <= end);
	return false;
}

/* Cuts [src, src + len) into up to four elements, some of them empty. */
static inline uint16_t
cut(struct crpc_rdma_sge *sge, const uint8_t *src, uint32_t len, uint32_t lkey)
{
	uint16_t i, n = (uint16_t)(1 + rnd_below(&seed, CRPC_RDMA_SGE_MAX));

	for (i = 0; i < n; i++) {
		uint32_t part = i + 1 == n ? len : rnd_below(&seed, len + 1);

		sge[i] = (struct crpc_rdma_sge){.addr = src, .len = part, .lkey = lkey};
		src += part;
		len -= part;
	}
	return n;
}

static inline void
fill(uint8_t *p, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		p[i] = (uint8_t)rnd_below(&seed, 256);
}

#endif
