/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices that take queue pairs with any inline size, and say in the answer what they have. */
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "test.h"
#include "device_end.h"

static uint32_t most;

struct ibv_qp *__real_ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp *__wrap_ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);

struct ibv_qp *
__wrap_ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *qp = __real_ibv_create_qp(pd, attr);

	attr->cap.max_inline_data = crpc_min(attr->cap.max_inline_data, most);
	return qp;
}

TEST(the_answer_counts)
{
	struct crpc_rdma_info info;

	for (most = 0; most <= 100; most += 100) {
		end_device(&e[0], &(struct crpc_rdma_conf){0}, 4096);
		crpc_rdma_info_get(e[0].dev, &info);
		assert_in_range(info.inline_max, most / 2, most);
		assert_in_range(info.inline_max_ud, most / 2, most);
	}
}

int
main(void)
{
	if (device_missing())
		return 77;
	return test_run(NULL, pair_end);
}
