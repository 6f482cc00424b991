/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What kvd is started with: options and a JSON file of the same names, a hosts file, a secret, an
 * epoch file. Every mistake ends with exit code 2 and exactly one line that names what was expected
 * and found.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "app_fail.h"
#include "config.h"
#include "epoch.h"
#include "hello.h"
#include "hosts.h"

#define ARGS_MAX 16

static char folder[] = "/tmp/kvd_config.XXXXXX";
static char path[64];

static int
setup(void **state)
{
	(void)state;
	app_fail_name("kvd");
	if (mkdtemp(folder) == NULL)
		return -1;
	snprintf(path, sizeof(path), "%s/file", folder);
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(folder);
}

static void
file_write(const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

/* Run with stderr in said. */
#define SAID(said, call)                                                                           \
	do {                                                                                       \
		int fd_ = memfd_create("stderr", 0), old_ = dup(STDERR_FILENO);                    \
		ssize_t n_;                                                                        \
                                                                                                   \
		assert_true(fd_ >= 0 && old_ >= 0);                                                \
		dup2(fd_, STDERR_FILENO);                                                          \
		call;                                                                              \
		fflush(stderr);                                                                    \
		dup2(old_, STDERR_FILENO);                                                         \
		n_ = pread(fd_, said, sizeof(said) - 1, 0);                                        \
		said[n_ > 0 ? n_ : 0] = '\0';                                                      \
		close(fd_);                                                                        \
		close(old_);                                                                       \
	} while (0)

static void
one_line_with(const char *said, const char *words)
{
	if (strncmp(said, "kvd: ", 5) != 0 || strchr(said, '\n') == NULL ||
		strchr(said, '\n')[1] != '\0' || strstr(said, words) == NULL)
		fail_msg("expected one line with '%s', found '%s'", words, said);
}

static int
parse(struct kvd_config *c, const char *line)
{
	static char text[512];
	char *argv[ARGS_MAX], *save = NULL, *p;
	int argc = 0;

	snprintf(text, sizeof(text), "%s", line);
	for (p = strtok_r(text, " ", &save); p != NULL; p = strtok_r(NULL, " ", &save))
		argv[argc++] = p;
	return kvd_config_parse(c, argc, argv);
}

static void
refused(const char *line, const char *words)
{
	struct kvd_config c;
	char said[2048];
	int rc = 0;

	SAID(said, rc = parse(&c, line));
	kvd_config_fini(&c);
	assert_int_equal(rc, APP_EXIT_USAGE);
	one_line_with(said, words);
}

static void
refused_file(const char *text, const char *words)
{
	char line[128];

	file_write(text);
	snprintf(line, sizeof(line), "--name kv --keys 10 --config %s", path);
	refused(line, path);
	refused(line, words);
}

static void
options_are_checked(void **state)
{
	(void)state;
	refused("", "--name");
	refused("--name kv", "--keys");
	refused("--name kv --keys 0", "--keys 0");
	refused("--name kv --keys 3 --daemons 4", "--daemons 4");
	refused("--name kv --keys 9 --access 0606x", "--access '0606x'");
	refused("--name kv --keys 9 --access 0777", "expected 0600, 0660 or 0666");
	refused("--name kv --keys 9 --access 4600", "--access");
	refused("--name kv --keys 9 --access 60", "--access");
	refused("--name kv --keys 9 --access 0640", "expected 0600, 0660 or 0666");
	refused("--name kv --keys 9 --group no_such_group", "no_such_group");
	refused("--name kv --keys 9 --snapshot-every 5", "--snapshot PATH");
	refused("--name kv --keys 9 --restore-missing allow", "--snapshot PATH");
	refused("--name kv --keys 9 --rank 1", "--hosts FILE");
	refused("--name kv --keys 9 --secret-file x", "--hosts FILE");
	refused("--name kv --keys 9 --log-level loud", "error, warning, notice, info, debug");
	refused("--name kv --keys 9 --frobnicate", "--frobnicate");
}

static void
options_win_over_the_file(void **state)
{
	struct kvd_config c;
	char line[128];

	(void)state;
	file_write("{\"name\": \"kv\", \"keys\": 1000, \"value-size\": \"4K\","
		   " \"access\": \"0660\", \"group\": \"0\", \"log-level\": \"debug\"}");
	snprintf(line, sizeof(line), "--keys 2k --config %s", path);
	assert_int_equal(parse(&c, line), 0);
	assert_string_equal(c.name, "kv");
	assert_int_equal(c.keys, 2000);
	assert_int_equal(c.value_size, 4096);
	assert_int_equal(c.mode, 0660);
	assert_int_equal(c.log_level, 4);
	assert_int_equal(c.clients, 16);
	kvd_config_fini(&c);
}

static void
the_file_is_checked(void **state)
{
	(void)state;
	refused("--name kv --keys 10 --config /no/such/file", "/no/such/file");
	refused_file("{\"keys\": 1", "line 1");
	refused_file("[1, 2]", "JSON object");
	refused_file("{\"keys\": 1, \"keys\": 2}", "keys");
	refused_file("{\"kees\": 1}", "\"kees\": expected the name of an option");
	refused_file("{\"config\": \"x\"}", "\"config\"");
	refused_file("{\"keys\": \"many\"}", "'many' is not a whole number");
	refused_file("{\"keys\": -1}", "'-1' is not a whole number");
	refused_file("{\"keys\": 1.5}", "\"keys\": expected an integer, found a fraction");
	refused_file("{\"name\": 5}", "\"name\": expected a string, found an integer");
	refused_file("{\"name\": null}", "\"name\": expected a string, found null");
	refused_file("{\"name\": \"a\\u0000b\"}", "");
	refused_file("{\"idle\": \"sleep\"}", "give one of: auto, poll, yield");
	refused_file("{\"daemons\": 4096}", "out of range");
}

static void
hosts_of_every_form_are_read(void **state)
{
	struct kvd_hosts h;
	uint64_t rank = 77;
	char said[2048];
	int rc = 0;

	(void)state;
	file_write("# the cluster\n node0 \n\nnode1:5000# the second\n[::1]:6000\n127.0.0.1\n"
		   "[fe80::1]");
	assert_int_equal(kvd_hosts_read(&h, path), 0);
	assert_int_equal(h.n, 5);
	assert_string_equal(h.host[0].name, "node0");
	assert_string_equal(h.host[0].port, "4950");
	assert_string_equal(h.host[1].name, "node1");
	assert_string_equal(h.host[1].port, "5000");
	assert_string_equal(h.host[2].name, "::1");
	assert_string_equal(h.host[2].port, "6000");
	assert_string_equal(h.host[4].name, "fe80::1");

	file_write("127.0.0.1\n192.0.2.1\n");
	assert_int_equal(kvd_hosts_read(&h, path), 0);
	assert_int_equal(kvd_hosts_find(&h, path, &rank), 0);
	assert_int_equal(rank, 0);

	file_write("127.0.0.1:1\n127.0.0.1:2\n");
	assert_int_equal(kvd_hosts_read(&h, path), 0);
	SAID(said, rc = kvd_hosts_find(&h, path, &rank));
	assert_int_equal(rc, APP_EXIT_USAGE);
	one_line_with(said, "found 2; give --rank N");
}

static void
refused_hosts(const char *text, const char *words)
{
	struct kvd_hosts h;
	char said[2048];
	int rc = 0;

	file_write(text);
	SAID(said, rc = kvd_hosts_read(&h, path));
	assert_int_equal(rc, APP_EXIT_USAGE);
	one_line_with(said, words);
}

static void
hosts_are_checked(void **state)
{
	char long_name[400], long_line[600];

	(void)state;
	refused_hosts("", "found none");
	refused_hosts("# nothing\n\n", "found none");
	refused_hosts("a\nb:port\n",
		"line 2: expected HOST, HOST:PORT or [ADDRESS]:PORT, found 'b:port'");
	refused_hosts("a:0\n", "'a:0'");
	refused_hosts("a:65536\n", "'a:65536'");
	refused_hosts("a:1:2\n", "'a:1:2'");
	refused_hosts("a b\n", "'a b'");
	refused_hosts("[::1\n", "'[::1'");
	refused_hosts("[]:5\n", "line 1");
	refused_hosts(":5\n", "':5'");
	refused_hosts("a\nb\na:4950\n",
		"line 3: expected another host or port than rank 0 has, found 'a:4950'");
	memset(long_name, 'x', sizeof(long_name));
	long_name[sizeof(long_name) - 1] = '\0';
	refused_hosts(long_name, "line 1");
	/* The end of a line is no line. */
	snprintf(long_line, sizeof(long_line), "a\n#%*s", 512, "node0");
	refused_hosts(long_line, "line 2: expected at most 510 bytes");
}

static void
refused_secret(const char *text, mode_t mode, const char *words)
{
	uint8_t secret[KVD_SECRET_MAX];
	char said[2048];
	int rc = 0;

	file_write(text);
	assert_int_equal(chmod(path, mode), 0);
	SAID(said, rc = kvd_secret_read(path, secret));
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(rc, APP_EXIT_USAGE);
	one_line_with(said, words);
}

static void
secrets_are_checked(void **state)
{
	static const char text[] =
		"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
	uint8_t secret[KVD_SECRET_MAX];
	char more[80];

	(void)state;
	refused_secret("0123456789abcde\n", 0600, "found fewer");
	snprintf(more, sizeof(more), "%sx\n", text);
	refused_secret(more, 0600, "found more");
	refused_secret("0123456789abcdef\n", 0640, "expected mode 0600, found 0640");
	file_write(text);
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(kvd_secret_read(path, secret), 0);
	assert_memory_equal(secret, text, KVD_SECRET_MAX);
}

/* path.3.epoch */
static void
epochs_rise_and_last(void **state)
{
	char name[80], fresh[90], why[256], text[16];
	uint64_t epoch = 0;
	FILE *f;

	(void)state;
	snprintf(name, sizeof(name), "%s.3.epoch", path);
	snprintf(fresh, sizeof(fresh), "%s.new", name);
	assert_false(kvd_epoch_exists(path, 3));
	assert_int_equal(kvd_epoch_raise(path, 3, &epoch, why), 0);
	assert_int_equal(epoch, 1);
	assert_true(kvd_epoch_exists(path, 3));
	assert_int_equal(kvd_epoch_raise(path, 3, &epoch, why), 0);
	assert_int_equal(epoch, 2);
	assert_int_not_equal(access(fresh, F_OK), 0);
	f = fopen(name, "r");
	assert_non_null(f);
	assert_non_null(fgets(text, sizeof(text), f));
	assert_string_equal(text, "2\n");
	fclose(f);
	/* Removed while its rank runs: it does not sink. */
	assert_int_equal(unlink(name), 0);
	assert_int_equal(kvd_epoch_raise(path, 3, &epoch, why), 0);
	assert_int_equal(epoch, 3);
	assert_int_equal(unlink(name), 0);
}

/* Pipes where the files are or will be: the control thread does not wait for whom they belong to.
 */
static void
epochs_are_in_plain_files(void **state)
{
	char name[80], fresh[90], why[256];
	uint64_t epoch = 0;
	struct stat st;

	(void)state;
	snprintf(name, sizeof(name), "%s.5.epoch", path);
	snprintf(fresh, sizeof(fresh), "%s.new", name);
	assert_int_equal(mkfifo(fresh, 0666), 0);
	assert_int_equal(kvd_epoch_raise(path, 5, &epoch, why), 0);
	assert_int_equal(stat(name, &st), 0);
	assert_true(S_ISREG(st.st_mode) && (st.st_mode & 0777) == 0600);
	assert_int_equal(unlink(name), 0);
	assert_int_equal(mkfifo(name, 0666), 0);
	assert_int_equal(kvd_epoch_raise(path, 5, &epoch, why), -EBADMSG);
	assert_int_equal(epoch, 1);
	assert_int_equal(unlink(name), 0);
	assert_int_equal(symlink(path, name), 0);
	assert_int_equal(kvd_epoch_raise(path, 5, &epoch, why), -ELOOP);
	assert_int_equal(unlink(name), 0);
}

static void
damaged_epochs_are_refused(void **state)
{
	static const char *const bad[] = {"", "\n", "0\n", "x\n", "5", "5 \n", "-5\n", "5\n6\n",
		"8388607\n", "99999999999999999999\n"};
	char name[80], why[256];
	uint64_t epoch = 0;
	size_t i;
	FILE *f;

	(void)state;
	snprintf(name, sizeof(name), "%s.0.epoch", path);
	for (i = 0; i < CRPC_DIM(bad); i++) {
		f = fopen(name, "w");
		assert_non_null(f);
		fputs(bad[i], f);
		fclose(f);
		assert_int_equal(kvd_epoch_raise(path, 0, &epoch, why), -EBADMSG);
		assert_non_null(strstr(why, "expected a number from 1 to 8388606, found '"));
		assert_int_equal(epoch, 0);
	}
	assert_int_equal(unlink(name), 0);
	assert_int_equal(kvd_epoch_raise("/no/such/folder/x", 0, &epoch, why), -ENOENT);
	assert_non_null(strstr(why, "/no/such/folder/x.0.epoch"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_are_checked),
		cmocka_unit_test(options_win_over_the_file),
		cmocka_unit_test(the_file_is_checked),
		cmocka_unit_test(hosts_of_every_form_are_read),
		cmocka_unit_test(hosts_are_checked),
		cmocka_unit_test(secrets_are_checked),
		cmocka_unit_test(epochs_rise_and_last),
		cmocka_unit_test(epochs_are_in_plain_files),
		cmocka_unit_test(damaged_epochs_are_refused),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
