/* SPDX-License-Identifier: BSD-3-Clause */
/* Gets and puts: what a get brings is of no put before the newest one it had to see. */
#include <errno.h>

#include "crpc_copyrpc.h"
#include "step_rig.h"

void
do_onesided(void)
{
	struct link *l = &scene.link[rnd(scene.nlinks)];
	int side = (int)rnd(2), rc;
	struct onesided *o = &scene.one[l - scene.link][side];
	struct node *n = &scene.node[l->node[side]], *peer = &scene.node[l->node[!side]];
	uint32_t i = (uint32_t)(o->posted % OPS), len = 1 + rnd(OP_BYTES);
	uint64_t number = o->posted + 1;
	uint64_t cookie = OP_COOKIE | (uint64_t)(l - scene.link) << 16 | (uint64_t)side << 8;
	bool put = one_in(2);

	if (n->gone || o->posted - o->done == OPS)
		return;
	o->op[i].put = put;
	o->op[i].len = put ? OP_BYTES : len;
	o->op[i].want = o->newest;
	if (put) {
		bytes_make(o->ours[i], OP_BYTES, number << 20 | cookie);
		rc = crpc_copyrpc_put(l->ep[side], scene.now, &n->mr, o->ours[i], OP_BYTES,
			(uintptr_t)o->theirs, peer->mr.rkey, cookie);
	} else {
		rc = crpc_copyrpc_get(l->ep[side], scene.now, &n->mr, o->ours[i], len,
			(uintptr_t)o->theirs, peer->mr.rkey, cookie);
	}
	link_look(l);
	if (rc == -EAGAIN || (rc != 0 && l->broken))
		return;
	if (rc != 0)
		fail("a %s on link %d: %d", put ? "put" : "get", (int)(l - scene.link), rc);
	o->posted++;
	if (put)
		o->newest = number;
	met.puts += put;
	met.gets += !put;
}

void
onesided_take(const struct crpc_done *d)
{
	uint32_t link = (uint32_t)(d->cookie >> 16) & 0xff, side = (uint32_t)(d->cookie >> 8) & 1;
	struct onesided *o;
	uint32_t i;

	check(link < scene.nlinks);
	o = &scene.one[link][side];
	check(o->done != o->posted);
	i = (uint32_t)(o->done++ % OPS);
	if (d->status != 0) {
		link_look(&scene.link[link]);
		check(d->status == -ECONNRESET && scene.link[link].broken);
		return;
	}
	check(d->data == o->ours[i] && d->len == o->op[i].len);
	if (o->op[i].put || o->op[i].want == 0)
		return;
	/* Writes that were posted after a read may be done before it, none before it after it. */
	for (uint64_t put = o->op[i].want; put <= o->newest; put++)
		if (bytes_are(o->ours[i], d->len, put << 20 | d->cookie))
			return;
	fail("a get of %u bytes on link %u sees none of put %" PRIu64 " to %" PRIu64, d->len, link,
		o->op[i].want, o->newest);
}
