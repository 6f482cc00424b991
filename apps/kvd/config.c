/* SPDX-License-Identifier: BSD-3-Clause */
#include <grp.h>
#include <stdlib.h>

#include <jansson.h>

#include "app_fail.h"
#include "app_opt.h"
#include "config.h"
#include "crpc_kv_proto.h"

/* Keys of a rank: a daemon's store numbers them with 31 bits. */
#define KEYS_MAX (1u << 30)

static const char *const missing[] = {"refuse", "allow", NULL};
static const char *const levels[] = {"error", "warning", "notice", "info", "debug", NULL};

static const struct kvd_config defaults = {
	.key_size = 8,
	.value_size = 8,
	.daemons = 1,
	.clients = 16,
	.client_memory = 64 << 20,
	.mode_text = "0600",
	.rank = KVD_RANK_FIND,
	.log_level = 2,
};

/* What is parsed into; the caller gets a copy. */
static struct kvd_config opt;

static const struct app_opt opts[] = {
	APP_OPT("config", "FILE", &opt.file, "JSON object with the names of these options"),
	APP_OPT("name", "NAME", &opt.name,
		"name of the service, by which clients of this host find it"),
	APP_OPT("keys", "N", &opt.keys, "keys that each rank takes at least", 1, KEYS_MAX),
	APP_OPT("key-size", "BYTES", &opt.key_size,
		"length of every key; kvcli fills shorter text up with zeros",
		CRPC_KV_KEY_MIN, CRPC_KV_KEY_MAX),
	APP_OPT("value-size", "BYTES", &opt.value_size, "length of the largest value",
		CRPC_KV_VALUE_MIN, CRPC_KV_VALUE_MAX),
	APP_OPT("memory-limit", "BYTES", &opt.memory_limit,
		"memory of each rank for values above 4096 bytes; 0: for all keys", 0,
		UINT64_C(1) << 40),
	APP_OPT("daemons", "N", &opt.daemons, "poll loops, each with its part of the keys",
		1, CRPC_KV_DAEMONS_MAX),
	APP_DEVICE(&opt.device),
	APP_CHOICE("idle", &opt.idle,
		"what a loop without work does with its core; auto: yield if clients "
		"have no other core, else poll",
		app_idle_names),
	APP_CLIENTS(&opt.clients, "of each daemon at most", 1, CRPC_IPC_CLIENTS_MAX),
	APP_DEPTH(&opt.depth,
		"one client at most; without it 64, or 8 where values are above 4096 bytes",
		64),
	APP_OPT("client-memory", "BYTES", &opt.client_memory,
		"blocks in open requests of one client at most; 0: no limit", 0,
		UINT64_C(1) << 40),
	APP_OPT("access", "OCTAL", &opt.mode_text,
		"who may connect: 0600 the same user, 0660 also --group, 0666 all "
		"(default 0600)"),
	APP_OPT("group", "NAME", &opt.group, "group of the segments, a name or number"),
	APP_OPT("snapshot", "PATH", &opt.snapshot,
		"write all keys to PATH.N at the end and on SIGHUP, and begin with what is "
		"there; N is a daemon's number"),
	APP_OPT("snapshot-every", "S", &opt.snapshot_s,
		"seconds between snapshots; 0: none but those of --snapshot", 0, 1 << 30),
	APP_CHOICE("restore-missing", &opt.restore_missing,
		"what to do if some of the snapshot's files are there and some are not",
		missing),
	APP_OPT("hosts", "FILE", &opt.hosts,
		"file with a line HOST[:PORT] for each rank of a cluster"),
	APP_OPT("rank", "N", &opt.rank,
		"line of this rank in --hosts, from 0; without it found by address", 0,
		1023),
	APP_CONNECT(&opt.connect),
	APP_OPT("secret-file", "FILE", &opt.secret_file,
		"secret of 16 to 64 bytes that all ranks of the hosts file have"),
	APP_MEM_REPORT,
	APP_OPT("ready-file", "PATH", &opt.ready_file,
		"file that exists while kvd is ready"),
	APP_CHOICE("log-level", &opt.log_level, "what is printed on stderr", levels),
};

/* One member of the file as "--name=value"; NULL: of the wrong type. */
static char *
member_text(const struct app_opt *o, const char *name, const json_t *value)
{
	char number[32];
	const char *text = number;
	char *out;

	if (json_is_string(value) && strlen(json_string_value(value)) == json_string_length(value))
		text = json_string_value(value);
	else if (o->type == APP_OPT_UINT && json_is_integer(value))
		snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(value));
	else
		return NULL;
	return asprintf(&out, "--%s=%s", name, text) < 0 ? NULL : out;
}

static int
member_read(const char *name, const json_t *value)
{
	static const char *const types[] = {"an object", "an array", "a string", "an integer",
		"a fraction", "true", "false", "null"};
	const char *file = opt.file;
	char *text;
	size_t i;
	int rc;

	for (i = 1; i < CRPC_DIM(opts) && strcmp(opts[i].name, name) != 0; i++) /* 0 is --config. */
		;
	if (i == CRPC_DIM(opts))
		return app_fail("%s: \"%.64s\": expected the name of an option, found an "
				"unknown one; --help lists them",
			file, name);
	text = member_text(&opts[i], name, value);
	if (text == NULL)
		return app_fail("%s: \"%s\": expected %s, found %s", file, name,
			opts[i].type == APP_OPT_UINT ? "an integer" : "a string",
			types[json_typeof(value)]);
	opt.text[opt.texts++] = text;
	app_fail_hold(true);
	rc = app_opt_parse(opts, CRPC_DIM(opts), 1, &text);
	app_fail_hold(false);
	return rc == 0 ? 0 : app_fail("%s: \"%s\": %s", file, name, app_fail_held());
}

static int
file_read(void)
{
	json_error_t error;
	json_t *root = json_load_file(opt.file, JSON_REJECT_DUPLICATES, &error), *value;
	const char *name;
	int rc = 0;

	if (root == NULL)
		return app_fail("%s: line %d: expected a JSON object with names of options: %s",
			opt.file, error.line, error.text);
	opt.text = calloc(json_object_size(root) + 1, sizeof(*opt.text));
	if (!json_is_object(root) || opt.text == NULL)
		rc = app_fail("%s: expected a JSON object with names of options", opt.file);
	json_object_foreach (root, name, value)
		if (rc == 0)
			rc = member_read(name, value);
	json_decref(root);
	return rc;
}

/* Who may connect. */
static int
access_read(void)
{
	const struct group *group;
	char *end;
	unsigned long v = strtoul(opt.mode_text, &end, 8);

	if (*end != '\0' || (v != 0600 && v != 0660 && v != 0666))
		return app_fail_once("--access '%s': expected 0600, 0660 or 0666", opt.mode_text);
	opt.mode = (mode_t)v;
	if (opt.group == NULL)
		return 0;
	group = getgrnam(opt.group);
	v = strtoul(opt.group, &end, 10);
	if (group == NULL &&
		(*opt.group < '0' || *opt.group > '9' || *end != '\0' || v > INT32_MAX))
		return app_fail("--group '%s': there is no such group here", opt.group);
	opt.gid = group != NULL ? group->gr_gid : (gid_t)v;
	return 0;
}

static int
parse(int argc, char *const *argv)
{
	const struct kvd_config *c = &opt;
	int rc;

	opt.file = app_opt_find("config", argc, argv);
	rc = c->file == NULL || *c->file == '\0' ? 0 : file_read();
	if (rc == 0)
		rc = app_opt_parse(opts, CRPC_DIM(opts), argc, argv);
	if (rc != 0)
		return rc;
	if (c->name == NULL || c->keys == 0)
		return app_fail_once("--%s is missing; give at least --name NAME --keys N",
			c->name == NULL ? "name" : "keys");
	if (c->keys < c->daemons)
		return app_fail_once("--keys %llu are fewer than --daemons %llu; give more",
			(unsigned long long)c->keys, (unsigned long long)c->daemons);
	if (c->snapshot == NULL && (c->snapshot_s != 0 || c->restore_missing != 0))
		return app_fail_once("--%s is of no use without --snapshot PATH; give it too",
			c->snapshot_s != 0 ? "snapshot-every" : "restore-missing");
	if (c->hosts == NULL &&
		(c->rank != KVD_RANK_FIND || c->secret_file != NULL || c->connect != 0))
		return app_fail_once("--%s is of no use without --hosts FILE; give it too",
			c->secret_file != NULL    ? "secret-file"
				: c->connect != 0 ? "connect use"
						  : "rank");
	return access_read();
}

int
kvd_config_parse(struct kvd_config *c, int argc, char *const *argv)
{
	int rc;

	opt = defaults;
	rc = parse(argc, argv);
	*c = opt;
	return rc;
}

void
kvd_config_fini(struct kvd_config *c)
{
	while (c->texts != 0)
		free(c->text[--c->texts]);
	free(c->text);
	c->text = NULL;
}

void
kvd_config_help(int argc, char *const *argv)
{
	opt = defaults;
	printf("usage: kvd [EAL options] -- --name NAME --keys N [options]\n"
	       "       mpirun -n 2 kvd [EAL options] -- --name NAME --keys N [options]\n\n"
	       "A key-value service that runs until it is stopped: SIGTERM drains and writes a\n"
	       "snapshot, a second one ends it at once, SIGHUP writes a snapshot. It needs a\n"
	       "lcore for each of --daemons and one more: kvd -l 0-2 -- --daemons 2 ...\n\n");
	app_opt_help(opts, CRPC_DIM(opts), stdout);
	printf("\nExit status: 0 stopped, all written; 1 the last snapshot was not written;\n"
	       "2 it could not start.\n");
}
