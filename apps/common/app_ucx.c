/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "app_ucx.h"

#define CLOSE_TURNS 100000

ucs_status_t
app_ucx_open(struct app_ucx *u, uint64_t features, size_t eps, const struct app_ucx_set *set)
{
	const ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
		.features = features,
		.estimated_num_eps = eps};
	const ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SINGLE};
	ucp_config_t *config;
	ucs_status_t rc = ucp_config_read(NULL, NULL, &config);

	if (rc != UCS_OK)
		return rc;
	for (; rc == UCS_OK && set->value != NULL; set++)
		rc = ucp_config_modify(config, set->name, set->value);
	if (rc == UCS_OK)
		rc = ucp_init(&params, config, &u->context);
	ucp_config_release(config);
	if (rc == UCS_OK)
		rc = ucp_worker_create(u->context, &worker, &u->worker);
	if (rc != UCS_OK)
		app_ucx_close(u);
	return rc;
}

void
app_ucx_close(struct app_ucx *u)
{
	if (u->worker != NULL)
		ucp_worker_destroy(u->worker);
	if (u->context != NULL)
		ucp_cleanup(u->context);
	*u = (struct app_ucx){0};
}

ucs_status_t
app_ucx_address(const struct app_ucx *u, void *buf, size_t max, size_t *len)
{
	ucp_address_t *address;
	ucs_status_t rc = ucp_worker_get_address(u->worker, &address, len);

	if (rc != UCS_OK)
		return rc;
	if (*len <= max)
		memcpy(buf, address, *len);
	ucp_worker_release_address(u->worker, address);
	return *len <= max ? UCS_OK : UCS_ERR_BUFFER_TOO_SMALL;
}

ucs_status_t
app_ucx_connect(const struct app_ucx *u, const void *addr, ucp_err_handler_cb_t on_error, void *arg,
	ucp_ep_h *ep)
{
	ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = addr};

	if (on_error != NULL) {
		params.field_mask |=
			UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
		params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
		params.err_handler.cb = on_error;
		params.err_handler.arg = arg;
	}
	return ucp_ep_create(u->worker, &params, ep);
}

void
app_ucx_disconnect(const struct app_ucx *u, ucp_ep_h ep)
{
	const ucp_request_param_t force = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
	ucs_status_ptr_t rc = ep == NULL ? NULL : ucp_ep_close_nbx(ep, &force);

	if (!UCS_PTR_IS_PTR(rc))
		return;
	for (uint32_t i = 0; i < CLOSE_TURNS && ucp_request_check_status(rc) == UCS_INPROGRESS; i++)
		ucp_worker_progress(u->worker);
	ucp_request_free(rc);
}

ucs_status_t
app_ucx_handler(const struct app_ucx *u, unsigned int am, ucp_am_recv_callback_t taken, void *arg)
{
	const ucp_am_handler_param_t param = {
		.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
			UCP_AM_HANDLER_PARAM_FIELD_ARG,
		.id = am,
		.cb = taken,
		.arg = arg};

	return ucp_worker_set_am_recv_handler(u->worker, &param);
}

bool
app_ucx_reports(const char *tls)
{
	static const char *const mute[] = {"posix", "sysv", "self", "mm", "shm", "sm"};
	size_t i, len;

	while (tls != NULL && *tls != '\0') {
		len = strcspn(tls, ",");
		for (i = 0; i < sizeof(mute) / sizeof(mute[0]); i++)
			if (strlen(mute[i]) == len && strncmp(mute[i], tls, len) == 0)
				break;
		if (i == sizeof(mute) / sizeof(mute[0]))
			return true;
		tls += len + (tls[len] == ',');
	}
	return false;
}
