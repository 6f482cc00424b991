/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * crpc-shm: which segments are on this machine, whose they are, and the removal of those that are
 * unowned. Owners are found by kernel locks, through lib/shm, and not by pids.
 */
#include <dirent.h>
#include <inttypes.h>
#include <mntent.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "app_env.h"
#include "app_fail.h"
#include "app_opt.h"
#include "crpc_log.h"
#include "crpc_shm.h"

static const char *const media[] = {"file", "huge", "memfd"};

static struct {
	bool clean, json, dry_run;
	const char *dir;
} opt;

static const struct app_opt table[] = {
	APP_OPT("dir", "DIR", &opt.dir,
		"look there; without it in /dev/shm and every hugetlbfs mount"),
	APP_FLAG("json", &opt.json, "print JSON, one object per line"),
	APP_FLAG("dry-run", &opt.dry_run, "clean: only print what would be removed"),
};

static void
help(int argc, char *const *argv)
{
	printf("usage: crpc-shm list|clean [OPTION]...\n\n"
	       "list shows the shared-memory segments of this machine: name, kind, size, owner,\n"
	       "and whether the owner lives. clean removes those that no living process owns,\n"
	       "and never one that has an owner.\n\n");
	app_opt_help(table, CRPC_DIM(table), stdout);
	printf("\nlife: living, dead, or unknown (this user may not look). users: processes\n"
	       "besides the owner that hold a lock, such as clients of an RPC server.\n"
	       "Exit status: 0; 1 if an unowned segment could not be removed; 2 bad usage.\n");
}

/* Four letters, if they are. */
static void
kind_text(uint32_t kind, char text[5])
{
	int i;

	for (i = 0; i < 4; i++) {
		text[i] = (char)(kind >> 8 * i);
		if (text[i] < ' ' || text[i] > '~')
			text[i] = '?';
	}
	text[4] = '\0';
}

static const char *
state_text(const struct crpc_shm_info *info)
{
	static const char *const states[] = {[CRPC_SHM_INIT] = "init",
		[CRPC_SHM_READY] = "ready", [CRPC_SHM_CLOSED] = "closed"};

	if (info->state < CRPC_DIM(states))
		return states[info->state];
	return info->living < 0 ? "?" : "broken"; /* "?": it could not be opened. */
}

static const char *
life_text(int living)
{
	return living < 0 ? "unknown" : living == 0 ? "dead" : "living";
}

/* One line; done is what clean did, or NULL. */
static void
show(const struct crpc_shm_info *info, const char *done)
{
	char kind[5], users[16] = "?";
	json_t *obj;

	kind_text(info->kind, kind);
	if (!opt.json && done != NULL) {
		printf("%s %s (%s, %s, owner pid %u)\n", done, info->path, life_text(info->living),
				state_text(info), info->owner_pid);
		return;
	}
	if (!opt.json) {
		if (info->users >= 0)
			snprintf(users, sizeof(users), "%d", info->users);
		printf("%-24s %-4s %-5s %14" PRIu64 " %8u %6u %-6s %-7s %5s  %s\n", info->name,
			kind, media[info->medium], info->size, info->owner_pid, info->uid,
			state_text(info), life_text(info->living), users, info->path);
		return;
	}
	obj = json_pack("{s:s, s:s, s:s, s:i, s:s, s:I, s:I, s:I, s:I, s:s, s:s}", "name",
			info->name, "path", info->path, "kind", kind, "kind_version",
			(int)info->kind_version, "medium", media[info->medium], "size",
			(json_int_t)info->size, "pid", (json_int_t)info->owner_pid, "uid",
			(json_int_t)info->uid, "start", (json_int_t)info->owner_start, "state",
			state_text(info), "life", life_text(info->living));
	json_object_set_new(obj, "users",
			info->users < 0 ? json_null() : json_integer(info->users));
	if (done != NULL)
		json_object_set_new(obj, "done", json_string(done));
	json_dumpf(obj, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(obj);
}

/* Remove unowned segments. 0, or 1 if that failed. */
static int
clean_one(const char *dir, const struct crpc_shm_info *info)
{
	int rc;

	if (info->living == 1)
		return 0;
	if (opt.dry_run) {
		if (info->ours && info->living == 0)
			show(info, "would remove");
		return 0;
	}
	/* What was seen may have changed: that function takes the lock. */
	rc = crpc_shm_remove(dir, info->name);
	if (rc == 0)
		show(info, "removed");
	if (rc == 0 || rc == -EADDRINUSE || rc == -EBUSY || rc == -EEXIST)
		return 0;
	app_note("%s", crpc_log_last());
	return rc != -EACCES; /* another user's affair */
}

/* Of memory without a name only its owner can let us see the locks. */
static void
count_users(const char *dir, struct crpc_shm_info *info)
{
	struct crpc_shm *seg;

	if (info->medium != CRPC_SHM_MEMFD || info->living != 1 || info->state != CRPC_SHM_READY)
		return;
	seg = crpc_shm_attach(dir, info->name, info->kind, info->kind_version, 0);
	if (seg == NULL)
		return;
	info->users = crpc_shm_lock_count(seg, 1, CRPC_SHM_USERS_LAST);
	crpc_shm_detach(seg);
}

/* All of one directory; one that is not there has none. */
static int
look_in(const char *dir)
{
	struct crpc_shm_info info;
	struct dirent **list;
	int n, i, rc = 0;

	n = scandir(dir, &list, NULL, alphasort);
	if (n < 0) {
		app_note("%s: %s", dir, strerror(errno));
		return opt.dir != NULL ? 2 : 0;
	}
	for (i = 0; i < n; i++) {
		if (crpc_shm_inspect(dir, list[i]->d_name, &info) == 0) {
			if (opt.clean) {
				rc |= clean_one(dir, &info);
			} else {
				count_users(dir, &info);
				show(&info, NULL);
			}
		}
		free(list[i]);
	}
	free(list);
	return rc;
}

static int
look_in_default_places(void)
{
	FILE *f = setmntent("/proc/self/mounts", "r");
	int rc = look_in("/dev/shm");
	struct mntent *m;

	while (f != NULL && (m = getmntent(f)) != NULL)
		if (strcmp(m->mnt_type, "hugetlbfs") == 0)
			rc |= look_in(m->mnt_dir);
	if (f != NULL)
		endmntent(f);
	return rc;
}

int
main(int argc, char **argv)
{
	const char *verb = argc < 2 ? "" : argv[1];
	int rc;

	app_fail_name("crpc-shm");
	if (app_env_answer("crpc-shm", argc, argv, help))
		return APP_EXIT_OK;
	opt.clean = strcmp(verb, "clean") == 0;
	if (!opt.clean && strcmp(verb, "list") != 0)
		return app_fail("expected list or clean, found '%s'", verb);
	rc = app_opt_parse(table, CRPC_DIM(table), argc - 2, argv + 2);
	if (rc != 0)
		return rc;
	if (opt.dry_run && !opt.clean)
		return app_fail("--dry-run is an option of clean; list removes nothing");
	if (!opt.clean && !opt.json)
		printf("%-24s %-4s %-5s %14s %8s %6s %-6s %-7s %5s  %s\n", "name", "kind", "medium",
			"bytes", "pid", "uid", "state", "life", "users", "path");
	return opt.dir != NULL ? look_in(opt.dir) : look_in_default_places();
}
