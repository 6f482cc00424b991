/* SPDX-License-Identifier: BSD-3-Clause */
#include <glob.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "app_env.h"
#include "app_fail.h"
#include "app_json.h"
#include "app_opt.h"
#include "app_stop.h"
#include "crpc_clock.h"
#include "crpc_kv.h"
#include "crpc_log.h"

/*
 * The tool of the key-value service: README.md. Keys and values are text, which zeros fill up to
 * the size that the service needs, or hex digits.
 */

#define SHM "/dev/shm/crpc."
/* Open calls of load and dump, at most. */
#define DEPTH_MAX 64
/* Failures of load and dump are reported one by one up to here, then counted. */
#define REPORTS_MAX 10
#define PROGRESS_NS UINT64_C(2000000000)

struct command {
	const char *name, *args, *help;
	int n; /* arguments */
	int (*run)(const struct command *c, char *const *arg);
	bool catches; /* Ctrl-C, to report what was done */
};

static struct {
	const char *name;
	bool hex, raw, json;
	uint64_t limit, depth, ttl_ms, timeout_ms, trust_uid;
} opt = {.depth = DEPTH_MAX, .timeout_ms = 2000};

static const struct app_opt table[] = {
	APP_OPT("name", "NAME", &opt.name, "name of the service, as kvd's --name"),
	APP_FLAG("hex", &opt.hex, "keys and values are given and shown as hex digits"),
	APP_FLAG("raw", &opt.raw, "get: write the value's bytes and nothing else"),
	APP_FLAG("json", &opt.json, "print JSON, one object per line"),
	APP_OPT("limit", "N", &opt.limit, "scan: keys at most; 0: all", 0, 1e9),
	APP_DEPTH(&opt.depth, "load and dump", DEPTH_MAX),
	APP_OPT("ttl-ms", "MS", &opt.ttl_ms, "put, cas, load: life of the value; 0: it stays", 0,
		CRPC_KV_TTL_MAX_MS),
	APP_OPT("timeout-ms", "MS", &opt.timeout_ms,
		"for the service to come up, and for each answer", 1, 3600000),
	APP_TRUST_UID(&opt.trust_uid),
};

static struct crpc_kv *kv;
static uint32_t key_size, value_size;
static uint8_t value[CRPC_KV_VALUE_MAX + 1]; /* of a put */
static uint64_t failures;

/* @return APP_EXIT_RUN. */
static int
failed(const char *what, const char *of, int status)
{
	static const struct {
		int status;
		const char *text;
	} causes[] = {
		{-ENOENT, "no such key"},
		{-ENOSPC, "the store is full; delete keys, or start the service with more room"},
		{-EHOSTUNREACH, "the rank that owns it is lost"},
		{-EHOSTDOWN, "the rank that owns it is lost"},
		{-ETIMEDOUT, "no answer in time; see --timeout-ms"},
		{-ECONNRESET, "the service has ended"},
		{-EOPNOTSUPP, "the service has another version"},
	};
	const char *text = strerror(-status);

	for (size_t i = 0; i < CRPC_DIM(causes); i++)
		if (causes[i].status == status)
			text = causes[i].text;
	if (failures++ < REPORTS_MAX)
		app_note("%s '%s': %s", what, of, text);
	return APP_EXIT_RUN;
}

/* ---- bytes as text ---- */

/* What a terminal may obey: also U+0080 to U+009f, which UTF-8 has as 0xc2 and themselves. */
static bool
is_control(const uint8_t *data, uint32_t i)
{
	return data[i] < ' ' || data[i] == 0x7f ||
		(i != 0 && data[i - 1] == 0xc2 && data[i] < 0xa0);
}

/*
 * Add the bytes, if they are text without control characters, else, as name_hex, their hex digits.
 * Zeros at the end of what has `padded` bytes at most may have filled up shorter text.
 */
static void
add(json_t *obj, const char *name, const uint8_t *data, uint32_t len, uint32_t padded)
{
	uint32_t i, text = len;
	json_t *string = NULL;
	char *digits, other[16];

	while (text != 0 && len <= padded && data[text - 1] == 0)
		text--;
	for (i = 0; i < text && !is_control(data, i); i++)
		;
	if (!opt.hex && i == text)
		string = json_stringn((const char *)data, text); /* NULL: not UTF-8 */
	if (string == NULL) {
		digits = calloc(len + 1, 2);
		for (i = 0; digits != NULL && i < len; i++)
			snprintf(digits + 2 * (size_t)i, 3, "%02x", data[i]);
		string = json_string(digits);
		free(digits);
		snprintf(other, sizeof(other), "%s_hex", name);
		name = other;
	}
	json_object_set_new(obj, name, string);
}

static void
add_number(json_t *obj, const char *name, uint64_t v)
{
	json_object_set_new(obj, name, json_integer((json_int_t)v));
}

/* Take an object, and print it in a line: as JSON, or its fields, numbers with their names. */
static int
print(FILE *out, bool json, json_t *obj)
{
	const char *name, *sep = "";
	json_t *v;

	if (json)
		json_dumpf(obj, out, JSON_COMPACT);
	else
		json_object_foreach (obj, name, v) {
			fprintf(out, "%s%s", sep, json_is_integer(v) ? name : "");
			if (json_is_integer(v))
				fprintf(out, " %lld", json_integer_value(v));
			else
				fprintf(out, "%s%s", strstr(name, "_hex") && !opt.hex ? "0x" : "",
					json_string_value(v));
			sep = "\t";
		}
	json_decref(obj);
	fputc('\n', out);
	return ferror(out) ? -EIO : 0;
}

static uint8_t
nibble(char digit)
{
	return (uint8_t)(digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10);
}

/* Text, or hex digits, as min to max bytes; text may be shorter. @return their number, or -1. */
static int64_t
take(const char *what, const char *text, size_t len, bool hex, uint8_t *to, uint32_t min,
	uint32_t max)
{
	size_t bytes = hex ? len / 2 : len, i;

	if (bytes > max ||
		(hex &&
			(bytes < min || len % 2 != 0 ||
				strspn(text, "0123456789abcdefABCDEF") != len))) {
		app_note("%s: expected %u to %u bytes%s, found %zu %s; the sizes are those of "
			 "kvd's --key-size and --value-size",
			what, hex ? min : 0, max, hex ? " in hex digits" : "", len,
			hex ? "characters" : "bytes");
		return -1;
	}
	for (i = 0; i < bytes; i++)
		to[i] = hex ? (uint8_t)(nibble(text[2 * i]) << 4 | nibble(text[2 * i + 1]))
			    : (uint8_t)text[i];
	for (; i < min; i++)
		to[i] = 0;
	return (int64_t)i;
}

/* ---- put, get, cas, del ---- */

/* A value of the command line, or of standard input: "-". @return its bytes, or -1. */
static int64_t
take_value(const char *text)
{
	size_t len;

	if (strcmp(text, "-") != 0)
		return take(
			"value", text, strlen(text), opt.hex, value, CRPC_KV_VALUE_MIN, value_size);
	len = fread(value, 1, value_size + 1, stdin);
	if (!ferror(stdin))
		return take("value", (const char *)value, len, false, value, CRPC_KV_VALUE_MIN,
			value_size);
	app_note("standard input: %s", strerror(errno));
	return -1;
}

static int
print_answer(const uint8_t *key, const struct crpc_kv_done *done, bool get)
{
	json_t *obj;

	if (get && opt.raw)
		return fwrite(done->value, 1, done->len, stdout) == done->len ? 0 : -EIO;
	obj = json_object();
	if (opt.json)
		add(obj, "key", key, key_size, key_size);
	if (opt.json || !get)
		add_number(obj, "version", done->version);
	if (get)
		add(obj, "value", done->value, done->len, CRPC_KV_VALUE_MIN);
	return print(stdout, opt.json, obj);
}

static int
do_key(const struct command *c, char *const *arg)
{
	struct crpc_kv_how how = {.ttl_ms = (uint32_t)opt.ttl_ms, .if_version = c->n == 3};
	const char *at = c->n == 3 ? arg[1] : "0";
	struct crpc_kv_done done = {0};
	uint8_t key[CRPC_KV_KEY_MAX];
	int64_t len = 0;
	int rc;

	if (!app_opt_number(&at, false, &how.version) || *at != '\0')
		return app_fail("cas: version '%s' is not a whole number; give the one that "
				"--json get shows, or 0: only if the key is not there",
			arg[1]);
	if (c->n > 1)
		len = take_value(arg[c->n - 1]);
	if (len < 0 || take("key", arg[0], strlen(arg[0]), opt.hex, key, key_size, key_size) < 0)
		return APP_EXIT_USAGE;
	if (c->n > 1)
		rc = crpc_kv_put(kv, key, value, (uint32_t)len, &how, 0);
	else if (c->name[0] == 'g')
		rc = crpc_kv_get(kv, key, 0);
	else
		rc = crpc_kv_delete(kv, key, NULL, 0);
	if (rc == 0)
		rc = crpc_kv_wait(kv, &done);
	if (rc == 0)
		return print_answer(key, &done, c->name[0] == 'g');
	if (rc != -ESTALE)
		return failed(c->name, arg[0], rc);
	app_note("cas '%s': expected version %" PRIu64 ", found %" PRIu64 "; get it and try again",
		arg[0], how.version, done.version);
	return APP_EXIT_RUN;
}

/* ---- all owners ---- */

/* Continue with the next owner if the rank of this one is lost. */
static int
skip_owner(const char *what, struct crpc_kv_scan *at, int status)
{
	uint32_t daemons = crpc_kv_info(kv)->daemons;
	char of[48];

	snprintf(of, sizeof(of), "rank %u, daemon %u", at->owner / daemons, at->owner % daemons);
	failed(what, of, status);
	*at = (struct crpc_kv_scan){.owner = at->owner + 1};
	return status == -EHOSTUNREACH || status == -EHOSTDOWN ? 0 : APP_EXIT_RUN;
}

/* The line of an owner, below one of names for the first. */
static int
print_stats(json_t *obj, bool first)
{
	const char *name;
	json_t *v;

	if (opt.json)
		return print(stdout, true, obj);
	if (first)
		json_object_foreach (obj, name, v)
			printf("%*s", (int)crpc_max(strlen(name) + 1, 10u), name);
	printf("%s", first ? "\n" : "");
	json_object_foreach (obj, name, v)
		printf("%*lld", (int)crpc_max(strlen(name) + 1, 10u), json_integer_value(v));
	json_decref(obj);
	return putchar('\n') == EOF ? -EIO : 0;
}

static int
do_stats(const struct command *c, char *const *arg)
{
	static const enum kv_stat shown[] = {CRPC_KV_STAT_KEYS, CRPC_KV_STAT_CAPACITY,
		CRPC_KV_STAT_GETS, CRPC_KV_STAT_PUTS, CRPC_KV_STAT_MISSES, CRPC_KV_STAT_CLIENTS};
	uint32_t daemons = crpc_kv_info(kv)->daemons, lines = 0;
	struct crpc_kv_scan at = {0};
	uint64_t stat[CRPC_KV_STATS_N];
	enum kv_stat k;
	json_t *obj;
	int rc = 0;

	while (at.owner < crpc_kv_owners(kv) && rc == 0) {
		rc = crpc_kv_stats(kv, at.owner, stat);
		if (rc != 0) {
			rc = skip_owner(c->name, &at, rc);
			continue;
		}
		obj = json_object();
		add_number(obj, "rank", at.owner / daemons);
		add_number(obj, "daemon", at.owner++ % daemons);
		for (uint32_t i = 0; i < (opt.json ? CRPC_KV_STATS_N : CRPC_DIM(shown)); i++) {
			k = opt.json ? (enum kv_stat)i : shown[i];
			add_number(obj, crpc_kv_stat_name(k), stat[k]);
		}
		rc = print_stats(obj, lines++ == 0);
	}
	return rc;
}

/* ---- scan, dump and load ---- */

/* What is open, and what is done. */
struct bulk {
	const struct command *c;
	FILE *f;
	const struct crpc_kv_item *item; /* dump: the keys whose values were asked for */
	uint64_t lines, keys, open;
	int rc; /* of the output */
};

/* A key of a scan, with its value if there is one. */
static int
print_item(FILE *out, const struct crpc_kv_item *item, const struct crpc_kv_done *done)
{
	json_t *obj = json_object();

	add(obj, "key", item->key, key_size, key_size);
	add_number(obj, "version", done != NULL ? done->version : item->version);
	if (done != NULL)
		add(obj, "value", done->value, done->len, CRPC_KV_VALUE_MIN);
	else
		add_number(obj, "bytes", item->value_len);
	if (item->ttl_ms != 0)
		add_number(obj, "ttl_ms", item->ttl_ms);
	return print(out, done != NULL || opt.json, obj);
}

static void
answered(struct bulk *b, const struct crpc_kv_done *done)
{
	char of[32] = "a key";

	if (b->item == NULL)
		snprintf(of, sizeof(of), "line %" PRIu64, done->cookie);
	else if (done->status == -ENOENT) /* It went after the scan gave it. */
		return;
	if (done->status != 0) {
		failed(b->c->name, of, done->status);
		return;
	}
	b->keys++;
	if (b->item != NULL)
		b->rc |= print_item(b->f, &b->item[done->cookie], done);
}

/* Take answers until only so many calls are open; each has a deadline. */
static void
settle(struct bulk *b, uint64_t open)
{
	static uint64_t next;
	struct crpc_kv_done done[DEPTH_MAX];
	uint64_t now;
	uint16_t n;

	while (b->open > open) {
		n = crpc_kv_poll(kv, done, DEPTH_MAX);
		for (uint16_t i = 0; i < n; i++)
			answered(b, &done[i]);
		b->open -= n;
		if (n == 0)
			sched_yield();
	}
	now = crpc_clock_ns();
	if (now <= next)
		return;
	if (next != 0)
		app_note("%s: %" PRIu64 " keys so far", b->c->name, b->keys);
	next = now + PROGRESS_NS;
}

/* "-" is standard input or output. */
static int
bulk_open(struct bulk *b, const char *path, const char *mode, FILE *standard)
{
	b->f = strcmp(path, "-") == 0 ? standard : fopen(path, mode);
	return b->f != NULL
		? 0
		: app_fail("%s: cannot open '%s': %s", b->c->name, path, strerror(errno));
}

static int
bulk_end(struct bulk *b, const char *path, int rc)
{
	settle(b, 0);
	/* A signal that interrupts reading is no error of the file. */
	if (app_stopped() == 0 && (ferror(b->f) || fflush(b->f) != 0))
		rc = failed(b->c->name, path, -EIO);
	if (b->f != stdin && b->f != stdout)
		fclose(b->f);
	if (app_stopped() != 0)
		rc = failed(b->c->name, path, -EINTR);
	app_note("%s '%s': %" PRIu64 " keys%s", b->c->name, path, b->keys,
		rc != 0 || failures != 0 ? "; these are not all" : "");
	return rc;
}

/* Get the values of some keys. */
static int
dump_values(struct bulk *b, const struct crpc_kv_item *item, int n)
{
	int rc = 0;

	b->item = item;
	for (int i = 0; i < n && rc == 0; i++) {
		settle(b, opt.depth - 1);
		rc = crpc_kv_get(kv, item[i].key, (uint64_t)i);
		b->open += rc == 0;
	}
	settle(b, 0);
	return rc != 0 ? failed(b->c->name, "a key", rc) : b->rc;
}

/* And dump. */
static int
do_scan(const struct command *c, char *const *arg)
{
	uint64_t left = c->n == 0 && opt.limit != 0 ? opt.limit : UINT64_MAX;
	struct bulk b = {.c = c, .f = stdout};
	struct crpc_kv_item item[DEPTH_MAX];
	struct crpc_kv_scan at = {0};
	int rc = 0, n;

	if (c->n != 0)
		rc = bulk_open(&b, arg[0], "w", stdout);
	if (rc != 0)
		return rc;
	while (at.owner < crpc_kv_owners(kv) && left != 0 && rc == 0 && app_stopped() == 0) {
		n = crpc_kv_scan(kv, &at, item, (uint16_t)crpc_min(left, DEPTH_MAX));
		if (n < 0)
			rc = skip_owner(c->name, &at, n);
		else if (c->n != 0)
			rc = dump_values(&b, item, n);
		for (int i = 0; i < n && rc == 0; i++, left--)
			rc = c->n == 0 ? print_item(stdout, &item[i], NULL) : 0;
	}
	if (c->n != 0)
		return bulk_end(&b, arg[0], rc);
	return app_stopped() != 0 ? failed(c->name, opt.name, -EINTR) : rc;
}

/* A field of a line. @return its bytes, or -1 after one line on stderr. */
static int64_t
field(const struct bulk *b, const json_t *obj, const char *name, uint8_t *to, uint32_t min,
	uint32_t max)
{
	const json_t *text = json_object_get(obj, name);
	bool hex = text == NULL;
	char what[64];

	snprintf(what, sizeof(what), "%s_hex", name);
	if (hex)
		text = json_object_get(obj, what);
	if (!json_is_string(text)) {
		app_note("line %" PRIu64 ": expected \"%s\" or \"%s\" with a string", b->lines,
			name, what);
		return -1;
	}
	snprintf(what, sizeof(what), "line %" PRIu64 ": %s", b->lines, name);
	return take(what, json_string_value(text), json_string_length(text), hex, to, min, max);
}

static int
load_put(struct bulk *b, const json_t *obj)
{
	const json_t *ttl = json_object_get(obj, "ttl_ms");
	uint64_t ttl_ms = ttl == NULL  ? opt.ttl_ms
		: json_is_integer(ttl) ? (uint64_t)json_integer_value(ttl)
				       : UINT64_MAX;
	struct crpc_kv_how how = {.ttl_ms = (uint32_t)ttl_ms};
	uint8_t key[CRPC_KV_KEY_MAX];
	int64_t len = field(b, obj, "key", key, key_size, key_size);
	uint64_t open = opt.depth;
	int rc;

	if (len >= 0)
		len = field(b, obj, "value", value, CRPC_KV_VALUE_MIN, value_size);
	if (len < 0)
		return APP_EXIT_RUN;
	if (ttl_ms > CRPC_KV_TTL_MAX_MS) {
		app_note("line %" PRIu64 ": expected \"ttl_ms\" with a whole number from 0 to %u",
			b->lines, CRPC_KV_TTL_MAX_MS);
		return APP_EXIT_RUN;
	}
	do { /* Fewer calls are open until there is a block for a large value. */
		settle(b, --open);
		rc = crpc_kv_put(kv, key, value, (uint32_t)len, &how, b->lines);
		open = b->open;
	} while (rc == -EAGAIN && open != 0);
	b->open += rc == 0;
	return rc == 0 ? 0 : failed(b->c->name, "a key", rc);
}

static int
load_line(struct bulk *b, const char *line, size_t len)
{
	json_error_t err;
	json_t *obj;
	int rc = APP_EXIT_RUN;

	b->lines++;
	if (strspn(line, " \t\r\n") == len)
		return 0;
	obj = json_loadb(line, len, JSON_ALLOW_NUL, &err);
	if (json_is_object(obj))
		rc = load_put(b, obj);
	else
		app_note("line %" PRIu64 ": expected an object of JSON with \"key\" and \"value\", "
			 "found %s",
			b->lines, obj != NULL ? "something else" : err.text);
	json_decref(obj);
	return rc;
}

static int
do_load(const struct command *c, char *const *arg)
{
	struct bulk b = {.c = c};
	char *line = NULL;
	size_t room = 0;
	ssize_t len;
	int rc = bulk_open(&b, arg[0], "r", stdin);

	if (rc != 0)
		return rc;
	while (rc == 0 && app_stopped() == 0 && (len = getline(&line, &room, b.f)) > 0)
		rc = load_line(&b, line, (size_t)len);
	free(line);
	return bulk_end(&b, arg[0], rc);
}

/* ---- the program ---- */

static const struct command commands[] = {
	{"put", "K V", "write a value; V -: standard input", 2, do_key, false},
	{"get", "K", "print a value", 1, do_key, false},
	{"cas", "K VERSION V", "put if the key has this version; 0: if there is none", 3, do_key,
		false},
	{"del", "K", "delete a key", 1, do_key, false},
	{"scan", "", "print all keys, in no order", 0, do_scan, true},
	{"stats", "", "print counters of each daemon; --json: all of them", 0, do_stats, false},
	{"load", "FILE", "put the keys of a dump; FILE -: standard input", 1, do_load, true},
	{"dump", "FILE", "write all keys; FILE -: standard output", 1, do_scan, true},
};

static void
help(int argc, char *const *argv)
{
	char left[32];

	printf("usage: kvcli --name NAME [OPTION]... COMMAND [ARGUMENT]...\n\n"
	       "Reads and writes the keys of a running key-value service, kvd. Keys and values\n"
	       "are text, or hex digits with --hex.\n\nCommands:\n");
	for (size_t i = 0; i < CRPC_DIM(commands); i++) {
		snprintf(left, sizeof(left), "%s %s", commands[i].name, commands[i].args);
		printf("  %-24s %s\n", left, commands[i].help);
	}
	printf("\nOptions, which stand before the command:\n");
	app_opt_help(table, CRPC_DIM(table), stdout);
	printf("\nExit status: 0 done; 1 not found, another version, or an operation failed;\n"
	       "2 bad usage, or no service.\n");
}

/* Connect to the service; of several ranks or daemons to one: NAME.RANK, or NAME.RANK.DAEMON. */
static struct crpc_kv *
connect_service(void)
{
	struct crpc_kv_conf conf = {.name = opt.name,
		.connect_ms = (uint32_t)opt.timeout_ms,
		.call_timeout_us = opt.timeout_ms * 1000,
		.trust_uid = (uid_t)opt.trust_uid};
	struct crpc_kv *found = NULL;
	glob_t daemons = {0};
	char path[256];
	size_t i;

	snprintf(path, sizeof(path), SHM "%s", opt.name);
	if (access(path, F_OK) != 0 && strpbrk(opt.name, "*?[\\/") == NULL) {
		snprintf(path, sizeof(path), SHM "%s.[0-9]*[0-9]", opt.name);
		glob(path, 0, NULL, &daemons);
		snprintf(path, sizeof(path), SHM "%s.[0-9]", opt.name);
		glob(path, daemons.gl_pathc != 0 ? GLOB_APPEND : 0, NULL, &daemons);
	}
	for (i = 0; i < daemons.gl_pathc && found == NULL; i++) {
		conf.name = daemons.gl_pathv[i] + strlen(SHM);
		found = crpc_kv_connect(&conf);
		if (found != NULL && crpc_kv_owners(found) == 1) {
			crpc_kv_close(found); /* Of another service, whose name looks like this. */
			found = NULL;
			errno = ENOENT;
		}
	}
	if (i == 0)
		found = crpc_kv_connect(&conf);
	globfree(&daemons);
	return found;
}

static int
run(const struct command *c, char *const *arg)
{
	int rc;

	if (c->catches)
		app_stop_catch();
	crpc_log_clear();
	kv = connect_service();
	if (kv == NULL)
		return app_fail("cannot connect to service '%s': %s (%s); start it with --name %s, "
				"trust its user with --trust-uid, or give another --name",
			opt.name, strerror(errno), crpc_log_last(), opt.name);
	key_size = crpc_kv_info(kv)->key_size;
	value_size = crpc_kv_info(kv)->value_size;
	opt.depth = crpc_min(opt.depth, crpc_kv_depth(kv));
	rc = c->run(c, arg);
	if (fflush(stdout) != 0)
		rc = -EIO;
	if (rc < 0 && errno != EPIPE)
		app_note("%s: the output cannot be written; make room for it", c->name);
	if (failures > REPORTS_MAX)
		app_note("%s: %" PRIu64 " failures more", c->name, failures - REPORTS_MAX);
	crpc_kv_close(kv);
	return rc < 0 || failures != 0 ? APP_EXIT_RUN : rc;
}

int
main(int argc, char **argv)
{
	const struct command *c = commands, *end = commands + CRPC_DIM(commands);
	char *const *word = argv + 1;
	int n, rc;

	app_fail_name("kvcli");
	app_fail_speak(); /* Each task of a launcher that starts it has a mistake of its own. */
	if (app_env_answer("kvcli", argc, argv, help))
		return APP_EXIT_OK;
	rc = app_opt_parse_first(table, CRPC_DIM(table), argc - 1, &word);
	if (rc != 0)
		return rc;
	if (opt.name == NULL)
		return app_fail("--name is missing; give the name that the service was started "
				"with before the command");
	n = (int)(argv + argc - word) - 1;
	while (c < end && n >= 0 && strcmp(*word, c->name) != 0)
		c++;
	if (n < 0 || c == end)
		return app_fail("expected a command, found '%s'; give one of put, get, cas, del, "
				"scan, stats, load, dump",
			n < 0 ? "" : *word);
	if (n != c->n)
		return app_fail("%s: expected %d arguments, found %d; give %s %s, and options "
				"before it",
			c->name, c->n, n, c->name, c->args);
	return run(c, word + 1);
}
