/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include "crpc_log.h"
#include "crpc_tensor_ipc.h"

/* An answer with a block gives up 8 bytes for its ref. */
#define REF_BYTES 8u

int
crpc_tensor_ipc_call(struct crpc_ipc_client *c, uint64_t now_ns, const struct crpc_tensor_batch *b,
	uint64_t ref, uint64_t cookie)
{
	uint32_t answer = crpc_tensor_batch_ops(b) * (uint32_t)sizeof(int32_t);
	uint32_t with_ref = answer + (ref != 0 ? REF_BYTES : 0);

	if (with_ref > crpc_ipc_client_resp_max(c))
		return crpc_fail(-EMSGSIZE,
			"tensor_ipc: statuses of %u bytes: this server answers with at most %u",
			with_ref, crpc_ipc_client_resp_max(c));
	if (ref == 0)
		return crpc_ipc_client_call(c, now_ns, b->bytes, b->len, answer, cookie);
	return crpc_ipc_client_call_ref(c, now_ns, ref, b->bytes, b->len, answer, cookie);
}

int
crpc_tensor_ipc_status(const struct crpc_done *done, int32_t *status, uint32_t n)
{
	if (done->status != 0)
		return done->status;
	return crpc_tensor_batch_statuses(done->data, done->len, status, n);
}

/* The statuses, and the block if there is one. What cannot be answered is failed. */
static int
answer(struct crpc_ipc_server *s, uint64_t now_ns, uint64_t token, uint64_t ref,
	const int32_t *status, int n)
{
	uint32_t len = (uint32_t)n * (uint32_t)sizeof(status[0]);
	int rc = ref != 0 ? crpc_ipc_server_reply_ref(s, now_ns, token, ref, status, len)
			  : crpc_ipc_server_reply(s, now_ns, token, status, len);

	if (rc != 0 && rc != -ECONNRESET && rc != -ENOENT)
		crpc_ipc_server_fail(s, now_ns, token, rc);
	return rc;
}

int
crpc_tensor_ipc_serve(struct crpc_ipc_server *s, uint64_t now_ns, const struct crpc_req *req,
	struct crpc_tensor_runner *r)
{
	struct crpc_ipc_block block = {0};
	int32_t status[CRPC_TENSOR_BATCH_OPS_MAX];
	int n, rc;

	if (crpc_ipc_token_block(req->token))
		crpc_ipc_server_block(s, req->token, &block);
	n = crpc_tensor_runner_run(
		r, req->data, req->len, block.data, block.size, req->peer, status);
	if (crpc_ipc_token_oneway(req->token))
		rc = crpc_ipc_server_release(s, now_ns, req->token);
	else if (n < 0)
		rc = crpc_ipc_server_fail(s, now_ns, req->token, n);
	else
		rc = answer(s, now_ns, req->token, block.ref, status, n);
	return rc != 0 ? rc : n;
}
