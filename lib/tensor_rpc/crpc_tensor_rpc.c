/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include "crpc_log.h"
#include "crpc_tensor_rpc.h"

/* An answer with a block gives up 8 bytes for its ref. */
#define REF_BYTES 8u

int
crpc_tensor_rpc_call(struct crpc_ipc_client *c, const struct crpc_tensor_batch *b, uint64_t ref,
		uint64_t cookie)
{
	uint32_t answer = crpc_tensor_batch_ops(b) * (uint32_t)sizeof(int32_t);

	if (ref != 0)
		answer += REF_BYTES;
	if (answer > crpc_ipc_client_resp_max(c)) {
		crpc_err("tensor_rpc: statuses of %u bytes: this server answers with at most %u",
				answer, crpc_ipc_client_resp_max(c));
		return -EMSGSIZE;
	}
	if (ref == 0)
		return crpc_ipc_client_call(c, b->bytes, b->len, cookie);
	return crpc_ipc_client_call_ref(c, ref, b->bytes, b->len, cookie);
}

int
crpc_tensor_rpc_status(const struct crpc_done *done, int32_t *status, uint32_t n)
{
	uint32_t i;

	if (done->status != 0)
		return done->status;
	if (done->len != n * sizeof(status[0])) {
		crpc_err("tensor_rpc: an answer of %u bytes: expected %u statuses", done->len, n);
		return -EPROTO;
	}
	if (n != 0)
		memcpy(status, done->data, done->len);
	for (i = 0; i < n; i++) {
		if (status[i] > 0 || status[i] < -4095) {
			crpc_err("tensor_rpc: status %d of operation %u: expected 0 or an errno",
					status[i], i);
			return -EPROTO;
		}
	}
	return 0;
}

/* The statuses, and the block if there is one. What cannot be answered is failed. */
static int
answer(struct crpc_ipc_server *s, uint64_t token, uint64_t ref, const int32_t *status, int n)
{
	uint32_t len = (uint32_t)n * (uint32_t)sizeof(status[0]);
	int rc = ref != 0 ? crpc_ipc_server_reply_ref(s, token, ref, status, len) :
			    crpc_ipc_server_reply(s, token, status, len);

	if (rc != 0 && rc != -ECONNRESET && rc != -ENOENT)
		crpc_ipc_server_fail(s, token, rc);
	return rc;
}

int
crpc_tensor_rpc_serve(struct crpc_ipc_server *s, const struct crpc_req *req,
		struct crpc_tensor_runner *r)
{
	struct crpc_ipc_block block = {0};
	int32_t status[CRPC_TENSOR_BATCH_OPS_MAX];
	int n, rc;

	if (crpc_ipc_token_block(req->token))
		crpc_ipc_server_block(s, req->token, &block);
	n = crpc_tensor_runner_run(r, req->data, req->len, block.data, block.size, req->peer,
			status);
	if (n < 0) {
		rc = crpc_ipc_server_fail(s, req->token, n);
		return rc != 0 ? rc : n;
	}
	if (crpc_ipc_token_oneway(req->token))
		rc = crpc_ipc_server_release(s, req->token);
	else
		rc = answer(s, req->token, block.ref, status, n);
	return rc != 0 ? rc : n;
}
