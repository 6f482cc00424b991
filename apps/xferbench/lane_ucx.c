/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * UCX, tagged messages: a context, a worker and an endpoint for each side. Rendezvous or eager is
 * forced by its threshold. Over rc_v (verbs) it uses the device that lib/bulk uses; where there is
 * none, its POSIX shared memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ucp/api/ucp.h>

#include "app_ucx.h"
#include "crpc_rdma.h"
#include "xb.h"

#define CLOSE_TURNS 100000

struct ucx_side {
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_address_t *address;
	ucp_ep_h ep;
	uint64_t to_send, to_recv, sent, received;
	uint32_t sends, recvs; /* Open. */
	ucs_status_t failed;
	bool reports; /* Its transports report the loss of a peer. */
};

/* The device that lib/bulk uses, unless the user chose: UCX would use all, or another one. */
static ucs_status_t
device_set(const struct xb_lane *l, ucp_config_t *config, const char *tls)
{
	const struct crpc_rdma_conf conf = {.device = l->opt->device, .gid_index = -1};
	struct crpc_rdma_info info;
	struct crpc_rdma *dev;
	char name[96];

	if (getenv("UCX_NET_DEVICES") != NULL || strstr(tls, "tcp") != NULL)
		return UCS_OK;
	dev = crpc_rdma_open(&conf);
	if (dev == NULL) /* Shared memory needs none. */
		return UCS_OK;
	crpc_rdma_info_get(dev, &info);
	snprintf(name, sizeof(name), "%s:%u", info.name, info.port);
	crpc_rdma_close(dev);
	return ucp_config_modify(config, "NET_DEVICES", name);
}

static ucs_status_t
context_new(struct xb_lane *l, struct ucx_side *s, const char *tls)
{
	const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
		.features = UCP_FEATURE_TAG};
	const ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SINGLE};
	ucp_config_t *config;
	ucs_status_t rc = ucp_config_read(NULL, NULL, &config);

	if (rc != UCS_OK)
		return rc;
	rc = ucp_config_modify(config, "TLS", tls);
	if (rc == UCS_OK)
		rc = device_set(l, config, tls);
	if (rc == UCS_OK)
		rc = ucp_config_modify(config, "RNDV_THRESH",
			l->point.path == XB_EAGER ? "inf" : "1024");
	if (rc == UCS_OK && l->point.path == XB_READ)
		rc = ucp_config_modify(config, "RNDV_SCHEME", "get_zcopy");
	if (rc == UCS_OK)
		rc = ucp_init(&params, config, &s->context);
	ucp_config_release(config);
	if (rc != UCS_OK)
		return rc;
	rc = ucp_worker_create(s->context, &worker, &s->worker);
	if (rc != UCS_OK) {
		ucp_cleanup(s->context);
		s->context = NULL;
	}
	return rc;
}

static int
ucx_open(struct xb_lane *l, int side)
{
	const char *tls = l->opt->ucx_tls != NULL ? l->opt->ucx_tls : "rc_v";
	struct ucx_side *s = calloc(1, sizeof(*s));
	ucs_status_t rc;
	size_t len;

	l->state[side] = s;
	if (s == NULL)
		return xb_lane_fail(l, -ENOMEM, "no memory");
	rc = context_new(l, s, tls);
	if (rc != UCS_OK && l->opt->ucx_tls == NULL) {
		tls = l->team->link == NULL || l->team->one_host ? "posix" : "tcp";
		rc = context_new(l, s, tls);
	}
	/* "all" is for UCX to choose, too. */
	s->reports = strcmp(tls, "all") != 0 && app_ucx_reports(tls);
	if (rc == UCS_OK)
		rc = ucp_worker_get_address(s->worker, &s->address, &len);
	if (rc != UCS_OK)
		return xb_lane_fail(l, -EIO, "UCX over %s: %s", tls, ucs_status_string(rc));
	if (len > sizeof(l->addr[side].bytes))
		return xb_lane_fail(l, -EMSGSIZE, "UCX: an address of %zu bytes", len);
	memcpy(l->addr[side].bytes, s->address, len);
	l->addr[side].len = (uint32_t)len;
	if (side == 0 || l->team->link != NULL)
		snprintf(l->name, sizeof(l->name), "ucx_%.20s", tls);
	return 0;
}

static void
on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	struct ucx_side *s = arg;

	s->failed = status;
}

static int
ucx_meet(struct xb_lane *l, int side)
{
	struct ucx_side *s = l->state[side];
	ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
		.address = (const ucp_address_t *)(const void *)l->addr[!side].bytes};
	ucs_status_t rc;

	if (s->reports) {
		params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			UCP_EP_PARAM_FIELD_ERR_HANDLER;
		params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
		params.err_handler.cb = on_error;
		params.err_handler.arg = s;
	}
	rc = ucp_ep_create(s->worker, &params, &s->ep);
	if (rc != UCS_OK)
		return xb_lane_fail(l, -EIO, "UCX: %s", ucs_status_string(rc));
	return 0;
}

static int
ucx_start(struct xb_lane *l, int side)
{
	struct ucx_side *s = l->state[side];

	s->to_send = xb_sends(l, side);
	s->to_recv = xb_recvs(l, side);
	return 0;
}

static void
send_done(void *request, ucs_status_t status, void *arg)
{
	struct ucx_side *s = arg;

	s->sends--;
	if (status != UCS_OK)
		s->failed = status;
	ucp_request_free(request);
}

static void
recv_done(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *arg)
{
	struct ucx_side *s = arg;

	s->recvs--;
	if (status != UCS_OK)
		s->failed = status;
	ucp_request_free(request);
}

static void
recv_one(struct xb_lane *l, int side)
{
	struct ucx_side *s = l->state[side];
	const ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
		.cb.recv = recv_done,
		.user_data = s};
	ucs_status_ptr_t rc;

	s->recvs++;
	rc = ucp_tag_recv_nbx(s->worker, xb_place(l, l->mem[side].recv, s->received), l->point.size,
		s->received, UINT64_MAX, &param);
	s->received++;
	s->to_recv--;
	if (UCS_PTR_IS_PTR(rc))
		return;
	s->recvs--;
	if (UCS_PTR_STATUS(rc) != UCS_OK)
		s->failed = UCS_PTR_STATUS(rc);
}

static void
send_one(struct xb_lane *l, int side)
{
	struct ucx_side *s = l->state[side];
	const ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
		.cb.send = send_done,
		.user_data = s};
	ucs_status_ptr_t rc;

	s->sends++;
	rc = ucp_tag_send_nbx(
		s->ep, xb_place(l, l->mem[side].send, s->sent), l->point.size, s->sent, &param);
	s->sent++;
	s->to_send--;
	if (UCS_PTR_IS_PTR(rc))
		return;
	s->sends--;
	if (UCS_PTR_STATUS(rc) != UCS_OK)
		s->failed = UCS_PTR_STATUS(rc);
}

static int
ucx_turn(struct xb_lane *l, int side)
{
	struct ucx_side *s = l->state[side];

	while (s->to_recv != 0 && s->recvs < l->point.depth)
		recv_one(l, side);
	while (s->to_send != 0 && s->sends < l->point.depth)
		send_one(l, side);
	ucp_worker_progress(s->worker);
	if (s->failed != UCS_OK)
		return xb_lane_fail(l, -EIO, "UCX: %s", ucs_status_string(s->failed));
	return s->to_send + s->to_recv + s->sends + s->recvs == 0;
}

static void
endpoint_close(struct ucx_side *s)
{
	const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
		.flags = UCP_EP_CLOSE_FLAG_FORCE};
	ucs_status_ptr_t rc = ucp_ep_close_nbx(s->ep, &force);
	uint32_t i;

	if (!UCS_PTR_IS_PTR(rc))
		return;
	for (i = 0; i < CLOSE_TURNS && ucp_request_check_status(rc) == UCS_INPROGRESS; i++)
		ucp_worker_progress(s->worker);
	ucp_request_free(rc);
}

static void
ucx_close(struct xb_lane *l, int side)
{
	struct ucx_side *s = l->state[side];

	if (s == NULL)
		return;
	if (s->ep != NULL)
		endpoint_close(s);
	if (s->address != NULL)
		ucp_worker_release_address(s->worker, s->address);
	if (s->worker != NULL)
		ucp_worker_destroy(s->worker);
	if (s->context != NULL)
		ucp_cleanup(s->context);
	free(s);
}

const struct xb_lane_ops xb_lane_ucx = {
	.package = "libucx-dev",
	.built = true,
	.files = 32,
	.mib = 256,
	.open = ucx_open,
	.meet = ucx_meet,
	.start = ucx_start,
	.turn = ucx_turn,
	.close = ucx_close,
};
