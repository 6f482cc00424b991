/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * crpc-shm: which segments are on this machine, whose they are, and the removal of those that are
 * unowned. Owners are found by kernel locks, through lib/shm, and not by pids.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "crpc_log.h"
#include "crpc_shm.h"

#define DIRS_MAX 64

static const char usage[] =
	"crpc-shm list [--dir DIR]... [--json]\n"
	"crpc-shm clean [--dir DIR]... [--json] [--dry-run]\n"
	"\n"
	"list shows the shared-memory segments of this machine: name, kind, size, owner,\n"
	"and whether the owner lives. clean removes those that no living process owns,\n"
	"and never one that has an owner.\n"
	"\n"
	"  --dir DIR  look there; may be given more than once (default: /dev/shm and\n"
	"             every hugetlbfs mount)\n"
	"  --json     one JSON object per line\n"
	"  --dry-run  clean: only print what would be removed\n"
	"\n"
	"life: living, dead, or unknown (this user may not look). users: processes\n"
	"besides the owner that hold a lock, such as clients of an RPC server.\n"
	"Exit status: 0; 1 if an unowned segment could not be removed; 2 bad usage.\n";

static const char *const media[] = {"file", "huge", "memfd"};

struct opt {
	bool clean;
	bool json;
	bool dry_run;
	const char *dirs[DIRS_MAX];
	size_t ndirs;
};

static int
bad_usage(const char *text, const char *what)
{
	fprintf(stderr, "crpc-shm: %s%s; crpc-shm --help lists what there is\n", text, what);
	return 2;
}

/* 0, 1 after help, or 2. */
static int
parse(struct opt *o, int argc, char **argv)
{
	int i;

	memset(o, 0, sizeof(*o));
	if (argc < 2)
		return bad_usage("say list or clean", "");
	for (i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--version") == 0) {
			puts("crpc-shm " CRPC_VERSION);
			return 1;
		}
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			fputs(usage, stdout);
			return 1;
		}
	}
	o->clean = strcmp(argv[1], "clean") == 0;
	if (!o->clean && strcmp(argv[1], "list") != 0)
		return bad_usage("say list or clean, not ", argv[1]);
	for (i = 2; i < argc; i++) {
		if (strcmp(argv[i], "--json") == 0) {
			o->json = true;
		} else if (strcmp(argv[i], "--dry-run") == 0 && o->clean) {
			o->dry_run = true;
		} else if (strcmp(argv[i], "--dir") == 0) {
			if (++i == argc || o->ndirs == DIRS_MAX)
				return bad_usage("--dir needs a directory, at most 64 times", "");
			o->dirs[o->ndirs++] = argv[i];
		} else {
			return bad_usage("unknown argument ", argv[i]);
		}
	}
	return 0;
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
	if (info->living < 0 && info->state == CRPC_SHM_BROKEN)
		return "?"; /* it could not be opened */
	switch (info->state) {
	case CRPC_SHM_INIT:
		return "init";
	case CRPC_SHM_READY:
		return "ready";
	case CRPC_SHM_CLOSED:
		return "closed";
	default:
		return "broken";
	}
}

static const char *
life_text(int living)
{
	return living < 0 ? "unknown" : living == 0 ? "dead" : "living";
}

/* One line; done is what clean did, or NULL. */
static void
show(const struct opt *o, const struct crpc_shm_info *info, const char *done)
{
	char kind[5], users[16] = "?";
	json_t *obj;

	kind_text(info->kind, kind);
	if (!o->json && done != NULL) {
		printf("%s %s (%s, %s, owner pid %u)\n", done, info->path, life_text(info->living),
				state_text(info), info->owner_pid);
		return;
	}
	if (!o->json) {
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
clean_one(const struct opt *o, const char *dir, const struct crpc_shm_info *info)
{
	int rc;

	if (info->living == 1)
		return 0;
	if (o->dry_run) {
		if (info->ours && info->living == 0)
			show(o, info, "would remove");
		return 0;
	}
	/* What was seen may have changed: that function takes the lock. */
	rc = crpc_shm_remove(dir, info->name);
	if (rc == 0)
		show(o, info, "removed");
	if (rc == 0 || rc == -EADDRINUSE || rc == -EBUSY || rc == -EEXIST)
		return 0;
	fprintf(stderr, "crpc-shm: %s\n", crpc_log_last());
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
look_in(const struct opt *o, const char *dir)
{
	struct crpc_shm_info info;
	struct dirent **list;
	int n, i, rc = 0;

	n = scandir(dir, &list, NULL, alphasort);
	if (n < 0) {
		fprintf(stderr, "crpc-shm: %s: %s\n", dir, strerror(errno));
		return o->ndirs != 0 ? 2 : 0;
	}
	for (i = 0; i < n; i++) {
		if (crpc_shm_inspect(dir, list[i]->d_name, &info) == 0) {
			if (o->clean) {
				rc |= clean_one(o, dir, &info);
			} else {
				count_users(dir, &info);
				show(o, &info, NULL);
			}
		}
		free(list[i]);
	}
	free(list);
	return rc;
}

static int
look_in_default_places(const struct opt *o)
{
	FILE *f = setmntent("/proc/self/mounts", "r");
	int rc = look_in(o, "/dev/shm");
	struct mntent *m;

	while (f != NULL && (m = getmntent(f)) != NULL)
		if (strcmp(m->mnt_type, "hugetlbfs") == 0)
			rc |= look_in(o, m->mnt_dir);
	if (f != NULL)
		endmntent(f);
	return rc;
}

int
main(int argc, char **argv)
{
	struct opt o;
	size_t i;
	int rc = parse(&o, argc, argv);

	if (rc != 0)
		return rc == 1 ? 0 : rc;
	if (!o.clean && !o.json)
		printf("%-24s %-4s %-5s %14s %8s %6s %-6s %-7s %5s  %s\n", "name", "kind", "medium",
				"bytes", "pid", "uid", "state", "life", "users", "path");
	if (o.ndirs == 0)
		return look_in_default_places(&o);
	for (i = 0; i < o.ndirs; i++)
		rc |= look_in(&o, o.dirs[i]);
	return rc > 2 ? 2 : rc;
}
