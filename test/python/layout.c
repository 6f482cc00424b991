/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints the structs that python/copyrpc declares again: name, size, the offset of each member. */
#include <stddef.h>
#include <stdio.h>

#include "crpc_kv.h"
#include "crpc_tensor_ipc.h"

#define SIZE(type)       printf("\n%s %zu", #type, sizeof(struct type))
#define AT(type, member) printf(" %s %zu", #member, offsetof(struct type, member))

static void
print_kv(void)
{
	SIZE(crpc_kv_conf);
	AT(crpc_kv_conf, name), AT(crpc_kv_conf, dir), AT(crpc_kv_conf, connect_ms);
	AT(crpc_kv_conf, call_timeout_us), AT(crpc_kv_conf, trust_uid);
	SIZE(crpc_kv_how);
	AT(crpc_kv_how, if_version), AT(crpc_kv_how, version), AT(crpc_kv_how, ttl_ms);
	SIZE(crpc_kv_done);
	AT(crpc_kv_done, cookie), AT(crpc_kv_done, status), AT(crpc_kv_done, len);
	AT(crpc_kv_done, value), AT(crpc_kv_done, version);
	SIZE(kv_info);
	AT(kv_info, ranks), AT(kv_info, rank), AT(kv_info, daemons), AT(kv_info, daemon);
	AT(kv_info, keys), AT(kv_info, key_size), AT(kv_info, value_size);
}

static void
print_tensor(void)
{
	SIZE(crpc_ipc_client_conf);
	AT(crpc_ipc_client_conf, name), AT(crpc_ipc_client_conf, dir);
	AT(crpc_ipc_client_conf, timeout_ms), AT(crpc_ipc_client_conf, probe_ms);
	AT(crpc_ipc_client_conf, call_timeout_us), AT(crpc_ipc_client_conf, arena);
	AT(crpc_ipc_client_conf, server);
	SIZE(crpc_done);
	AT(crpc_done, cookie), AT(crpc_done, data), AT(crpc_done, len), AT(crpc_done, status);
	SIZE(crpc_ipc_block);
	AT(crpc_ipc_block, ref), AT(crpc_ipc_block, data), AT(crpc_ipc_block, size);
	SIZE(crpc_tensor_batch);
	AT(crpc_tensor_batch, len), AT(crpc_tensor_batch, bytes);
	SIZE(crpc_tensor_args);
	AT(crpc_tensor_args, nin), AT(crpc_tensor_args, nout), AT(crpc_tensor_args, arg);
	AT(crpc_tensor_args, value);
}

int
main(void)
{
	print_kv();
	print_tensor();
	printf("\n%d %zu %d %d\n", CRPC_TENSOR_BATCH_OPS_MAX, sizeof(struct crpc_tensor),
		CRPC_TENSOR_OP_ARGS_MAX, CRPC_TENSOR_F64);
	return 0;
}
