/* SPDX-License-Identifier: BSD-3-Clause */
/* mesh: the verbs of either transport, and flux as one of the two. */
#include <errno.h>
#include <stdlib.h>

#include "flux_life.h"
#include "mesh_priv.h"

static struct crpc_flux_node *
flux_join(struct crpc_mesh *mesh, uint32_t id)
{
	return crpc_flux_join(mesh->flux, id);
}

static const struct mesh_ops flux_ops = {
	.join = flux_join,
	.leave = crpc_flux_leave,
	.connect = crpc_flux_connect,
	.notify = crpc_flux_notify,
	.call_burst = crpc_flux_call_burst,
	.call = crpc_flux_call,
	.poll = crpc_flux_poll,
	.recv = crpc_flux_recv,
	.reply = crpc_flux_reply,
	.release = crpc_flux_release,
	.flush = crpc_flux_flush,
	.pending = crpc_flux_pending,
};

struct crpc_mesh *
crpc_mesh_create(const struct crpc_mesh_attr *attr)
{
	struct crpc_mesh *mesh;

	if ((unsigned int)attr->backend >= CRPC_MESH_BACKENDS) {
		crpc_err("mesh backend %u is unknown: 0 to %u exist", (unsigned int)attr->backend,
			CRPC_MESH_BACKENDS - 1);
		errno = EINVAL;
		return NULL;
	}
	mesh = calloc(1, sizeof(*mesh));
	if (mesh == NULL) {
		crpc_err("no memory for a mesh (%zu bytes)", sizeof(*mesh));
		errno = ENOMEM;
		return NULL;
	}
	/* flux also checks the sizes for the other backends; it allocates nothing until connect. */
	mesh->flux = crpc_flux_create(&attr->flux);
	if (mesh->flux == NULL) {
		free(mesh);
		return NULL;
	}
	mesh->backend = attr->backend;
	mesh->attr = mesh->flux->attr;
	mesh->ops = attr->backend == CRPC_MESH_FLUX ? &flux_ops : &__crpc_mesh_rte_ops;
	pthread_mutex_init(&mesh->lock, NULL);
	return mesh;
}

void
crpc_mesh_free(struct crpc_mesh *mesh)
{
	uint32_t i;

	if (mesh == NULL)
		return;
	for (i = 0; i < CRPC_FLUX_NODES_MAX; i++)
		free(crpc_load_relaxed(&mesh->inbox[i]));
	crpc_flux_free(mesh->flux);
	pthread_mutex_destroy(&mesh->lock);
	free(mesh);
}

struct crpc_mesh_node *
crpc_mesh_join(struct crpc_mesh *mesh, uint32_t id)
{
	struct crpc_mesh_node *node = calloc(1, sizeof(*node));

	if (node == NULL) {
		errno = ENOMEM;
		return NULL;
	}
	node->ops = mesh->ops;
	node->node = mesh->ops->join(mesh, id);
	if (node->node == NULL) {
		free(node);
		return NULL;
	}
	return node;
}

void
crpc_mesh_leave(struct crpc_mesh_node *node)
{
	node->ops->leave(node->node);
	free(node);
}

int
crpc_mesh_connect(struct crpc_mesh_node *node, uint32_t peer, struct crpc_mesh_ep **ep)
{
	struct crpc_flux_ep *to;
	int rc = node->ops->connect(node->node, peer, &to);

	if (rc != 0)
		return rc;
	node->ep[peer] = (struct crpc_mesh_ep){.ops = node->ops, .ep = to};
	*ep = &node->ep[peer];
	return 0;
}

int
crpc_mesh_notify(struct crpc_mesh_ep *ep, uint64_t now_ns, const void *buf, uint32_t len)
{
	return ep->ops->notify(ep->ep, now_ns, buf, len);
}

int
crpc_mesh_call(struct crpc_mesh_ep *ep, uint64_t now_ns, const void *buf, uint32_t len,
	uint32_t resp_max, uint64_t cookie)
{
	return ep->ops->call(ep->ep, now_ns, buf, len, resp_max, cookie);
}

uint16_t
crpc_mesh_call_burst(struct crpc_mesh_ep *ep, uint64_t now_ns, const void *msgs, uint32_t len,
	uint32_t resp_max, const uint64_t *cookies, uint16_t n)
{
	return ep->ops->call_burst(ep->ep, now_ns, msgs, len, resp_max, cookies, n);
}

uint16_t
crpc_mesh_poll(struct crpc_mesh_node *node, uint64_t now_ns, struct crpc_done *done, uint16_t n)
{
	return node->ops->poll(node->node, now_ns, done, n);
}

uint16_t
crpc_mesh_recv(struct crpc_mesh_node *node, uint64_t now_ns, struct crpc_req *req, uint16_t n)
{
	return node->ops->recv(node->node, now_ns, req, n);
}

int
crpc_mesh_reply(
	struct crpc_mesh_node *node, uint64_t now_ns, uint64_t token, const void *buf, uint32_t len)
{
	return node->ops->reply(node->node, now_ns, token, buf, len);
}

int
crpc_mesh_release(struct crpc_mesh_node *node, uint64_t now_ns, uint64_t token)
{
	return node->ops->release(node->node, now_ns, token);
}

void
crpc_mesh_flush(struct crpc_mesh_node *node, uint64_t now_ns)
{
	node->ops->flush(node->node, now_ns);
}

uint32_t
crpc_mesh_pending(const struct crpc_mesh_node *node)
{
	return node->ops->pending(node->node, UINT32_MAX);
}
