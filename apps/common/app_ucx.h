/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_UCX_H
#define APP_UCX_H

/**
 * @file
 * A worker of UCX and its endpoints, for one thread.
 */

#include <stdbool.h>

#include <ucp/api/ucp.h>

/** What UCX opens and maps for a worker; it aborts where it cannot. */
#define APP_UCX_FILES 32
#define APP_UCX_MIB   256

/** A context and its worker; zero it. */
struct app_ucx {
	ucp_context_h context;
	ucp_worker_h worker;
};

/** A setting, as in UCX_name=value. */
struct app_ucx_set {
	const char *name, *value;
};

/**
 * Open a worker.
 *
 * @param features
 *   UCP_FEATURE_*.
 * @param eps
 *   Endpoints that it will have.
 * @param set
 *   Settings; the first without a value ends them.
 */
ucs_status_t app_ucx_open(
	struct app_ucx *u, uint64_t features, size_t eps, const struct app_ucx_set *set);

/** End the worker; its endpoints end with it. */
void app_ucx_close(struct app_ucx *u);

/** Copy the worker's address; *len is that of what is there. UCS_ERR_BUFFER_TOO_SMALL. */
ucs_status_t app_ucx_address(const struct app_ucx *u, void *buf, size_t max, size_t *len);

/**
 * Make an endpoint.
 *
 * @param on_error
 *   Called with arg when the peer is lost; NULL: a transport that finds its peer gone ends this
 *   process.
 */
ucs_status_t app_ucx_connect(const struct app_ucx *u, const void *addr,
	ucp_err_handler_cb_t on_error, void *arg, ucp_ep_h *ep);

/** Close an endpoint, whatever it has not sent. NULL is fine. */
void app_ucx_disconnect(const struct app_ucx *u, ucp_ep_h ep);

/** Take active messages of this number. */
ucs_status_t app_ucx_handler(
	const struct app_ucx *u, unsigned int am, ucp_am_recv_callback_t taken, void *arg);

/**
 * Send an active message, eager and without a header.
 *
 * @param gone
 *   Called with @p arg, unless the message has gone when this returns. Then it may be written.
 */
static inline ucs_status_ptr_t
app_ucx_send(ucp_ep_h ep, unsigned int am, const void *msg, size_t len,
	ucp_send_nbx_callback_t gone, void *arg)
{
	const ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK |
			UCP_OP_ATTR_FIELD_USER_DATA,
		.flags = UCP_AM_SEND_FLAG_EAGER,
		.cb.send = gone,
		.user_data = arg};

	return ucp_am_send_nbx(ep, am, NULL, 0, msg, len, &param);
}

/**
 * Whether endpoints over these transports (UCX_TLS) can report the loss of their peer. Shared
 * memory does not find out. Where UCX is to choose (NULL), it would choose others for that.
 */
bool app_ucx_reports(const char *tls);

#endif
