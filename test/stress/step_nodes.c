/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts on their cards, and the connections between them: made, broken, brought back. */
#include "step_rig.h"

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
	struct crpc_rdma_conf rdma = {.gid_index = 0, .dcis = scene.dcis};
	uint32_t i = (uint32_t)(n - scene.node);

	n->dev = crpc_rdma_open(&rdma);
	if (n->dev == NULL)
		fail("open of a device");
	n->number = step.last();
	scene.conf[i].dev = n->dev;
	n->ctx = crpc_copyrpc_create(&scene.conf[i]);
	if (n->ctx == NULL)
		fail("create of a context");
	if (crpc_rdma_mr_reg(n->dev, scene.one, sizeof(scene.one), &n->mr) != 0)
		fail("region of a context");
	n->gone = n->sick = false;
}

void
node_close(struct node *n)
{
	const struct crpc_copyrpc_stats *stats;
	uint32_t i;

	stats = crpc_copyrpc_stats(n->ctx);
	met.sq_full += stats->sq_full;
	met.wraps += stats->wraps;
	met.lost += stats->peers_lost;
	crpc_copyrpc_free(n->ctx);
	crpc_rdma_mr_dereg(n->dev, &n->mr);
	crpc_rdma_close(n->dev);
	n->ctx = NULL;
	for (i = 0; i < n->nheld; i++)
		n->held[i].dead = true;
	n->nheld = 0;
}

void
link_make_end(struct link *l, int side)
{
	uint32_t i = (uint32_t)(l - scene.link);

	l->ep[side] = crpc_copyrpc_ep_create_as(
		scene.node[l->node[side]].ctx, i * 2 + (uint32_t)side, &scene.mode[i]);
	if (l->ep[side] == NULL)
		fail("create of an endpoint");
}

void
link_connect(struct link *l)
{
	uint8_t addr[2][CRPC_COPYRPC_ADDR_LEN];
	int side;

	for (side = 0; side < 2; side++)
		crpc_copyrpc_ep_addr(l->ep[side], addr[side]);
	for (side = 0; side < 2; side++)
		if (crpc_copyrpc_ep_connect(l->ep[side], addr[!side]) != 0)
			fail("connect of link %d", (int)(l - scene.link));
	l->life++;
	l->broken = false;
	l->newest[0] = l->newest[1] = 0;
	for (side = 0; side < 2; side++) {
		struct onesided *o = &scene.one[l - scene.link][side];

		check(o->posted == o->done);
		o->life = l->life;
		o->newest = 0;
	}
	met.lives++;
	met.dynamic += scene.mode[l - scene.link].transport == CRPC_RDMA_DC;
	say("link %d lives, life %u\n", (int)(l - scene.link), l->life);
}

void
link_look(struct link *l)
{
	int side, status;

	for (side = 0; side < 2; side++) {
		if (scene.node[l->node[side]].gone) {
			l->broken = true;
			continue;
		}
		status = crpc_copyrpc_ep_status(l->ep[side]);
		if (status == 0)
			continue;
		if (status != -ECONNRESET && status != -ENOTCONN) /* The new end of a new card. */
			fail("link %d: status %d", (int)(l - scene.link), status);
		if (!l->broken)
			say("link %d broke at side %d: %s\n", (int)(l - scene.link), side,
				crpc_log_last());
		l->broken = true;
	}
}

/* Requests held of a life that has ended: their tokens name nothing any more. */
static void
held_end(struct link *l, int side)
{
	struct node *n = &scene.node[l->node[side]];
	uint32_t i;

	for (i = 0; i < n->nheld; i++)
		if (scene.id[n->held[i].id].link == l - scene.link &&
				scene.id[n->held[i].id].side != side)
			n->held[i].dead = true;
}

/* Bring a broken connection on: shut down what works, reset when all calls have ended, connect. */
static void
link_mend(struct link *l)
{
	int side, rc;

	for (side = 0; side < 2; side++)
		if (scene.node[l->node[side]].gone)
			return; /* First the card comes back. */
	for (side = 0; side < 2; side++)
		crpc_copyrpc_ep_shutdown(l->ep[side]);
	for (side = 0; side < 2; side++)
		if (crpc_copyrpc_ep_open_calls(l->ep[side]) != 0)
			return;
	for (side = 0; side < 2; side++) {
		rc = crpc_copyrpc_ep_reset(l->ep[side]);
		met.busy += rc == -EBUSY;
		if (rc == -EBUSY)
			return;
		if (rc != 0)
			fail("reset of link %d: %d", (int)(l - scene.link), rc);
		held_end(l, side);
	}
	link_connect(l);
}

void
node_restart(struct node *n)
{
	struct link *l;
	uint32_t i;
	int side;

	say("card %d is replaced\n", (int)(n - scene.node));
	node_close(n);
	for (i = 1; i <= scene.nids; i++) { /* Its own calls end with it. */
		struct record *r = &scene.id[i];

		if (r->open && scene.link[r->link].node[r->side] == n - scene.node)
			r->open = false;
	}
	for (i = 0; i < scene.nlinks; i++)
		for (side = 0; side < 2; side++)
			if (scene.link[i].node[side] == n - scene.node)
				scene.one[i][side].done = scene.one[i][side].posted;
	node_open(n);
	met.restarts++;
	for (i = 0; i < scene.nlinks; i++) {
		l = &scene.link[i];
		for (side = 0; side < 2; side++)
			if (l->node[side] == n - scene.node)
				link_make_end(l, side);
	}
}

void
do_mend(bool all)
{
	uint32_t i;

	for (i = 0; i < scene.nnodes; i++)
		if ((scene.node[i].gone || scene.node[i].sick) && (all || one_in(3)))
			node_restart(&scene.node[i]);
	for (i = 0; i < scene.nlinks; i++) {
		link_look(&scene.link[i]);
		if (scene.link[i].broken && (all || one_in(3)))
			link_mend(&scene.link[i]);
	}
}
