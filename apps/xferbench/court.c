/* SPDX-License-Identifier: BSD-3-Clause */
/* Where two ranks of one host play the line ping-pong: a segment that both have mapped. */
#include <stdio.h>
#include <unistd.h>

#include "crpc_shm.h"
#include "xb.h"

#define KIND      CRPC_SHM_KIND('X', 'B', 'C', 'T')
#define AT        4096
#define ATTACH_MS 5000

/* What the ranks exchange about it. */
struct court_card {
	char name[48];
	uint32_t made;
};

void
xb_court_open(struct xb_team *t)
{
	const struct crpc_shm_conf conf = {
		.name = "", .size = AT + sizeof(struct app_court), .kind = KIND, .kind_version = 1};
	struct crpc_shm_conf named = conf;
	struct court_card mine = {0}, theirs;
	char path[80];

	if (t->shared || !t->one_host)
		return;
	crpc_shm_sweep(NULL, "xferbench."); /* Of a run that was killed while it had a name. */
	snprintf(mine.name, sizeof(mine.name), "xferbench.%ld", (long)getpid());
	named.name = mine.name;
	if (t->side == 0 && (t->segment = crpc_shm_create(&named)) != NULL)
		crpc_shm_ready(t->segment);
	if (xb_team_swap(t, &mine, &theirs, sizeof(mine)) != 0)
		return;
	theirs.name[sizeof(theirs.name) - 1] = '\0';
	if (t->side == 1)
		t->segment = crpc_shm_attach(NULL, theirs.name, KIND, 1, ATTACH_MS);
	mine.made = t->segment != NULL;
	/* Both play, or neither does. */
	if (xb_team_swap(t, &mine, &theirs, sizeof(mine)) != 0 || theirs.made == 0)
		xb_court_close(t);
	/* Both have it: without a name nothing is left of it, however they end. */
	snprintf(path, sizeof(path), "/dev/shm/crpc.%s", mine.name);
	if (t->segment != NULL && t->side == 0)
		unlink(path);
}

void
xb_court_close(struct xb_team *t)
{
	if (t->side == 0)
		crpc_shm_free(t->segment);
	else
		crpc_shm_detach(t->segment);
	t->segment = NULL;
}

double
xb_court_line_ns(struct xb_team *t)
{
	struct app_court *c;
	double ns = 0;

	if (t->segment == NULL || t->stop)
		return 0;
	c = crpc_shm_ptr(t->segment, AT, sizeof(*c));
	if (t->side == 0)
		app_court_reset(c);
	if (xb_team_barrier(t) != 0)
		return 0;
	if (t->side == 0)
		ns = app_court_ping(c);
	else
		app_court_pong(c);
	return xb_team_max(t, ns);
}
