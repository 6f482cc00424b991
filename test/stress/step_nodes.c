/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts on their cards, and the connections between them: made, broken, brought back. */
#include <errno.h>

#include "step_rig.h"

#define ADDR_ROOM 256 /* Of either protocol. */

struct ibv_context;

/*
 * What the driver calls when it has nothing to do, in the place of the library's own: in step mode
 * that moves nothing, and a context of udrpc that ends would wait for its last datagrams in vain.
 */
uint32_t soft_mlx5_progress(struct ibv_context *context);

__attribute__((visibility("default"))) uint32_t
soft_mlx5_progress(struct ibv_context *context)
{
	(void)context;
	if (!scene.waits)
		return 0;
	scene.now += 200000;
	(void)step.pass(SOFT_MLX5_STEP_ALL, scene.now, NULL); /* Or all have vanished. */
	return 1;
}

void
node_open(struct node *n)
{
	struct crpc_rdma_conf rdma = {.dcis = scene.dcis};

	n->dev = crpc_rdma_open(&rdma);
	if (n->dev == NULL)
		fail("open of a device");
	n->number = step.last();
	scene.protocol->ctx_make(n);
	if (n->ctx == NULL)
		fail("create of a context");
	n->gone = n->sick = false;
}

void
node_close(struct node *n)
{
	scene.protocol->ctx_end(n);
	crpc_rdma_close(n->dev);
	n->ctx = NULL;
	n->nheld = 0;
}

void
link_connect(struct link *l)
{
	uint8_t addr[2][ADDR_ROOM];

	for (int side = 0; side < 2; side++)
		scene.protocol->addr(l->ep[side], addr[side]);
	for (int side = 0; side < 2; side++)
		if (scene.protocol->connect(l->ep[side], addr[!side]) != 0)
			fail("connect of link %d", (int)(l - scene.link));
	l->life++;
	l->broken = false;
	l->newest[0] = l->newest[1] = 0;
	for (int side = 0; side < 2; side++) {
		struct onesided *o = &scene.one[l - scene.link][side];

		check(o->posted == o->done);
		o->life = l->life;
		o->newest = 0;
	}
	met.lives++;
	met.dynamic += l->dynamic;
	say("link %d lives, life %u\n", (int)(l - scene.link), l->life);
}

void
link_look(struct link *l)
{
	int side, status;

	for (side = 0; side < 2; side++) {
		if (scene.node[l->node[side]].gone || l->ep[side] == NULL) {
			l->broken = true;
			continue;
		}
		status = scene.protocol->status(l->ep[side]);
		if (status == 0)
			continue;
		/* ENOTCONN: the new end of a new card. */
		if (status != -ECONNRESET && status != -ENOTCONN && status != -ETIMEDOUT)
			fail("link %d: status %d", (int)(l - scene.link), status);
		if (!l->broken)
			say("link %d broke at side %d: %s\n", (int)(l - scene.link), side,
				crpc_log_last());
		l->broken = true;
	}
}

/* Bring a broken connection on: shut down what works, renew when all calls have ended, connect. */
static void
link_mend(struct link *l)
{
	for (int side = 0; side < 2; side++)
		if (scene.node[l->node[side]].gone)
			return; /* First the card comes back. */
	for (int side = 0; side < 2; side++)
		if (l->ep[side] != NULL)
			scene.protocol->shutdown(l->ep[side]);
	for (uint32_t i = 1; i <= scene.nids; i++)
		if (scene.id[i].open && &scene.link[scene.id[i].link] == l)
			return;
	if (scene.protocol->ends_renew(l))
		link_connect(l);
}

void
node_restart(struct node *n)
{
	say("card %d is replaced\n", (int)(n - scene.node));
	node_close(n);
	for (uint32_t i = 1; i <= scene.nids; i++) { /* Its own calls end with it. */
		struct record *r = &scene.id[i];

		if (r->open && scene.link[r->link].node[r->side] == n - scene.node)
			r->open = false;
	}
	for (uint32_t i = 0; i < scene.nlinks; i++)
		for (int side = 0; side < 2; side++)
			if (scene.link[i].node[side] == n - scene.node)
				scene.one[i][side].done = scene.one[i][side].posted;
	node_open(n);
	met.restarts++;
	for (uint32_t i = 0; i < scene.nlinks; i++) {
		struct link *l = &scene.link[i];

		for (int side = 0; side < 2; side++)
			if (l->node[side] == n - scene.node) {
				l->ep[side] = NULL;
				check(scene.protocol->end_make(l, side));
			}
	}
}

void
do_mend(bool all)
{
	uint32_t rarely = scene.kind == KIND_UD ? 10 : 3; /* Some sessions are given up before. */

	for (uint32_t i = 0; i < scene.nnodes; i++)
		if ((scene.node[i].gone || scene.node[i].sick) && (all || one_in(rarely)))
			node_restart(&scene.node[i]);
	for (uint32_t i = 0; i < scene.nlinks; i++) {
		link_look(&scene.link[i]);
		if (scene.link[i].broken && (all || one_in(3)))
			link_mend(&scene.link[i]);
	}
}
