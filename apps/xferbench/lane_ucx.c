/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * UCX, tagged messages: a context, a worker and an endpoint for each side. Rendezvous or eager is
 * forced by its threshold. Over rc_v (verbs) it uses the device that lib/bulk uses; where there is
 * none, its POSIX shared memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "app_ucx.h"
#include "crpc_rdma.h"
#include "xb.h"

struct ucx_side {
	struct app_ucx ucx;
	ucp_ep_h ep;
	struct xb_flow *flow;
	ucs_status_t failed;
	bool reports; /* Its transports report the loss of a peer. */
};

/* The device that lib/bulk uses, unless the user chose: UCX would use all, or another one. */
static const char *
device_of(const struct app_lane *l, const char *tls, char *name, size_t len)
{
	const struct crpc_rdma_conf conf = {.device = l->c->opt->device};
	struct crpc_rdma_info info;
	struct crpc_rdma *dev;

	if (getenv("UCX_NET_DEVICES") != NULL || strstr(tls, "tcp") != NULL)
		return NULL;
	dev = crpc_rdma_open(&conf);
	if (dev == NULL) /* Shared memory needs none. */
		return NULL;
	crpc_rdma_info_get(dev, &info);
	snprintf(name, len, "%s:%u", info.name, info.port);
	crpc_rdma_close(dev);
	return name;
}

static ucs_status_t
worker_open(const struct app_lane *l, struct ucx_side *s, const char *tls)
{
	char name[96];
	struct app_ucx_set set[5] = {
		{"TLS", tls}, {"RNDV_THRESH", l->c->path == XB_EAGER ? "inf" : "1024"}};
	const char *device = device_of(l, tls, name, sizeof(name));
	uint32_t n = 2;

	if (device != NULL)
		set[n++] = (struct app_ucx_set){"NET_DEVICES", device};
	if (l->c->path == XB_READ)
		set[n] = (struct app_ucx_set){"RNDV_SCHEME", "get_zcopy"};
	return app_ucx_open(&s->ucx, UCP_FEATURE_TAG, 1, set);
}

static int
ucx_open(struct app_lane *l, int side)
{
	const char *tls = l->c->opt->ucx_tls != NULL ? l->c->opt->ucx_tls : "rc_v";
	struct ucx_side *s = app_lane_state(l, side, sizeof(*s));
	ucs_status_t rc;
	size_t len;

	if (s == NULL)
		return -ENOMEM;
	s->flow = &l->c->flow[side];
	rc = worker_open(l, s, tls);
	if (rc != UCS_OK && l->c->opt->ucx_tls == NULL) {
		tls = l->party->place != APP_PLACE_RANK || l->party->one_host ? "posix" : "tcp";
		rc = worker_open(l, s, tls);
	}
	/* "all" is for UCX to choose, too. */
	s->reports = strcmp(tls, "all") != 0 && app_ucx_reports(tls);
	if (rc == UCS_OK)
		rc = app_ucx_address(&s->ucx, l->addr[side].bytes, XB_ADDR_MAX, &len);
	if (rc != UCS_OK)
		return app_lane_fail(l, -EIO, "UCX over %s: %s", tls, ucs_status_string(rc));
	if (side == 0 || l->party->place == APP_PLACE_RANK)
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
ucx_meet(struct app_lane *l, int side)
{
	struct ucx_side *s = l->state[side];
	ucs_status_t rc = app_ucx_connect(
		&s->ucx, l->addr[!side].bytes, s->reports ? on_error : NULL, s, &s->ep);

	if (rc != UCS_OK)
		return app_lane_fail(l, -EIO, "UCX: %s", ucs_status_string(rc));
	return 0;
}

static void
send_done(void *request, ucs_status_t status, void *arg)
{
	struct ucx_side *s = arg;

	s->flow->sends--;
	if (status != UCS_OK)
		s->failed = status;
	ucp_request_free(request);
}

static void
recv_done(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *arg)
{
	struct ucx_side *s = arg;

	s->flow->recvs--;
	if (status != UCS_OK)
		s->failed = status;
	ucp_request_free(request);
}

crpc_inline int
ucx_post(struct app_lane *l, int side, bool recv, uint64_t tag, uint8_t *p)
{
	struct ucx_side *s = l->state[side];
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
		.user_data = s};
	ucs_status_ptr_t rc;

	if (recv) {
		param.cb.recv = recv_done;
		rc = ucp_tag_recv_nbx(s->ucx.worker, p, l->c->size, tag, UINT64_MAX, &param);
	} else {
		param.cb.send = send_done;
		rc = ucp_tag_send_nbx(s->ep, p, l->c->size, tag, &param);
	}
	if (UCS_PTR_IS_PTR(rc))
		return 0;
	--*(recv ? &s->flow->recvs : &s->flow->sends);
	if (UCS_PTR_STATUS(rc) != UCS_OK)
		s->failed = UCS_PTR_STATUS(rc);
	return 0;
}

crpc_inline int
ucx_progress(struct app_lane *l, struct xb_flow *f, int side)
{
	struct ucx_side *s = l->state[side];

	ucp_worker_progress(s->ucx.worker);
	if (s->failed != UCS_OK)
		return app_lane_fail(l, -EIO, "UCX: %s", ucs_status_string(s->failed));
	return 0;
}

static int
ucx_turn(struct app_lane *l, int side)
{
	return xb_turn(l, side, ucx_post, ucx_progress);
}

static void
ucx_close(struct app_lane *l, int side)
{
	struct ucx_side *s = l->state[side];

	app_ucx_disconnect(&s->ucx, s->ep);
	app_ucx_close(&s->ucx);
	free(s);
}

const struct xb_way xb_way_ucx = {
	.base = APP_WAY(
		"ucx", ucx_open, ucx_meet, ucx_close, .files = APP_UCX_FILES, .mib = APP_UCX_MIB),
	.turn = ucx_turn,
};
