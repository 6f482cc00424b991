/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes wrong on purpose: the network, requests, queue pairs, cards. */
#include "step_rig.h"

static void
faults_set(uint32_t card, const char *text)
{
	say("faults of %u: %s\n", card, text);
	if (step.faults(card, text) == EINVAL)
		fail("faults '%s'", text);
}

void
network_worsen(void)
{
	static const char *const kinds[] = {
		"drop", "corrupt", "dup", "delay", "reorder", "rnr"};
	char text[256];
	size_t len = 0;

	text[0] = '\0';
	for (uint32_t i = 0; i < CRPC_DIM(kinds); i++)
		if (one_in(2))
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s=0.0%02u",
				len == 0 ? "" : ",", kinds[i], 1 + rnd(30));
	if (one_in(4))
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%sslow=%u",
			len == 0 ? "" : ",", 1 + rnd(2000));
	faults_set(one_in(3) ? scene.node[rnd(scene.nnodes)].number : SOFT_MLX5_STEP_ALL, text);
}

static void
refuse_some(void)
{
	static const char *const kinds[] = {"inval", "access", "op", "prot", "badresp"};
	char text[64] = "";
	uint32_t i = scene.node[rnd(scene.nnodes)].number;
	const char *kind = kinds[rnd(CRPC_DIM(kinds))];

	if (one_in(2))
		snprintf(text, sizeof(text), "%s=0.0%02u", kind, 1 + rnd(50));
	faults_set(i, text);
}

static void
node_kill(struct node *n)
{
	uint32_t how = rnd(scene.kind == KIND_UD ? 2 : 3);

	if (n->gone || n->sick)
		return;
	say("card %d %s\n", (int)(n - scene.node), how == 0 ? "is dead"
		: how == 1 ? "vanishes" : "loses its completion queue");
	/* A card that stands still, a process that was killed, a queue that overran: they are
	 * replaced later. The program on the last one goes on until then. */
	if (how == 0)
		check(step.faults(n->number, "dead=1") == 0);
	else if (how == 1)
		check(step.vanish(n->number) == 0);
	else
		check(step.faults(n->number, "cqfull=1") == 0);
	n->gone = how < 2;
	n->sick = how == 2;
	met.sick += n->sick;
}

void
do_trouble(void)
{
	struct node *n = &scene.node[rnd(scene.nnodes)];
	struct link *l = &scene.link[rnd(scene.nlinks)];
	int side = (int)rnd(2);

	if ((scene.troubles & LOSSES) != 0 && one_in(4))
		network_worsen();
	if ((scene.troubles & REFUSALS) != 0 && one_in(8))
		refuse_some();
	if ((scene.troubles & BREAKS) != 0 && one_in(14)) {
		say("a queue pair of card %d fails\n", (int)(n - scene.node));
		/* Over DC there are targets and initiators; the number is taken modulo. */
		(void)step.break_qp(n->number, rnd(scene.kind == KIND_RC ? LINKS : LINKS * 8));
	}
	if ((scene.troubles & BREAKS) != 0 && one_in(30) && !scene.node[l->node[side]].gone &&
		l->ep[side] != NULL) {
		say("link %d is shut down at side %d\n", (int)(l - scene.link), side);
		scene.protocol->shutdown(l->ep[side]);
		l->broken = true;
	}
	if ((scene.troubles & DEATHS) != 0 && one_in(30))
		node_kill(n);
}
