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
	struct crpc_rdma_ud *ud;
	struct crpc_rdma_ah *ah; /* To the other end. */
};

static uint64_t seed;

/* Opens the device, with a region of len bytes, all 0. */
static inline void
end_device(struct end *e, const struct crpc_rdma_conf *conf, uint32_t len)
{
	struct crpc_rdma_conf with = *conf;

	with.device = getenv("DEVICE");
	with.gid_index = -1;
	memset(e, 0, sizeof(*e));
	e->dev = crpc_rdma_open(&with);
	if (e->dev == NULL)
		fail_msg("%s", crpc_log_last());
	e->buf = aligned_alloc(4096, len);
	assert_non_null(e->buf);
	memset(e->buf, 0, len);
	assert_int_equal(crpc_rdma_mr_reg(e->dev, e->buf, len, &e->mr), 0);
}

/* Frees what there is. */
static inline void
end_close(struct end *e)
{
	crpc_rdma_ah_free(e->ah);
	crpc_rdma_qp_free(e->qp);
	crpc_rdma_ud_free(e->ud);
	crpc_rdma_mr_dereg(e->dev, &e->mr);
	crpc_rdma_close(e->dev);
	free(e->buf);
}

static inline void
pair_close(struct end e[2])
{
	end_close(&e[0]);
	end_close(&e[1]);
}

/* Polls until e[who] has a completion of this type; others, at both ends, are dropped. False: in
 * timeout_ns there was none. */
static inline bool
wait_type(struct end e[2], int who, uint8_t type, uint64_t timeout_ns, struct crpc_rdma_cqe *cqe)
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
	uint32_t part;

	for (i = 0; i < n; i++) {
		part = i + 1 == n ? len : rnd_below(&seed, len + 1);
		sge[i] = (struct crpc_rdma_sge){.addr = src, .len = part, .lkey = lkey};
		src += part;
		len -= part;
	}
	return n;
}

static inline void
fill(uint8_t *p, uint32_t len)
{
	uint32_t i;

	for (i = 0; i < len; i++)
		p[i] = (uint8_t)rnd_below(&seed, 256);
}

#endif
