/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rte_config.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>

#include "app_eal.h"
#include "app_fail.h"
#include "app_opt.h"
#include "app_out.h"
#include "app_room.h"
#include "crpc_clock.h"
#include "crpc_file.h"
#include "crpc_log.h"
#include "crpc_mem_eal.h"

#define EAL_ARGS_MAX 64
/* What the EAL opens and maps before it reports that something failed. */
#define EAL_FILES 24
#define EAL_MIB   128
/* Programs that start at once wait for each other's EAL this long at most. */
#define TURN_MS 2000

bool
app_args_split(struct app_args *args, int argc, char **argv, bool own)
{
	int i = 1;

	while (i < argc && strcmp(argv[i], "--") != 0)
		i++;
	if (i >= argc && own)
		*args = (struct app_args){
			.eal_argc = 1, .eal_argv = argv, .argc = argc - 1, .argv = argv + 1};
	else
		*args = (struct app_args){.eal_argc = i,
			.eal_argv = argv,
			.argc = i < argc ? argc - i - 1 : 0,
			.argv = argv + i + 1};
	return i < argc;
}

bool
app_args_answer(const char *name, int argc, char **argv, void (*help)(int argc, char *const *argv))
{
	static char log[] = "--log-level=lib.eal:4", eal_help[] = "--help";
	char *eal[] = {argv[0], log, eal_help, NULL};

	if (app_opt_find("eal-help", argc - 1, argv + 1) != NULL) {
		rte_eal_init(3, eal); /* Prints it and exits. */
		return true;
	}
	if (!app_env_answer(name, argc, argv, help))
		return false;
	if (app_opt_find("version", argc - 1, argv + 1) != NULL)
		return true;
	printf("%s --eal-help lists the EAL arguments, which come before the --.\n", name);
	return true;
}

/* True if one of the EAL's arguments is one of these names ("-l" also as "-l0", long with "="). */
static bool
eal_has(const struct app_args *args, const char *const *names)
{
	const char *arg;
	size_t len;

	for (int i = 1; i < args->eal_argc; i++) {
		arg = args->eal_argv[i];
		for (int k = 0; names[k] != NULL; k++) {
			len = strlen(names[k]);
			if (strncmp(arg, names[k], len) != 0)
				continue;
			if (arg[len] == '\0' || arg[len] == '=' || names[k][1] != '-')
				return true;
		}
	}
	return false;
}

#define EAL_HAS(args, ...) eal_has(args, (const char *const[]){__VA_ARGS__, NULL})

bool
app_eal_has_lcores(const struct app_args *args)
{
	return EAL_HAS(args, "-l", "-c", "-s", "-S", "--lcores");
}

/* While the EAL starts, its output goes to a memory file. */
struct capture {
	int fd, out, err;
};

static bool
capture_begin(struct capture *c)
{
	fflush(stdout);
	fflush(stderr);
	c->fd = memfd_create("eal-output", MFD_CLOEXEC);
	if (c->fd < 0)
		return false;
	c->out = dup(STDOUT_FILENO);
	c->err = dup(STDERR_FILENO);
	if (c->out < 0 || c->err < 0)
		return false;
	dup2(c->fd, STDOUT_FILENO);
	dup2(c->fd, STDERR_FILENO);
	return true;
}

static void
capture_end(struct capture *c, char *text, size_t len)
{
	ssize_t n;

	fflush(stdout);
	fflush(stderr);
	dup2(c->out, STDOUT_FILENO);
	dup2(c->err, STDERR_FILENO);
	n = pread(c->fd, text, len - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	close(c->out);
	close(c->err);
	close(c->fd);
}

/*
 * The first line of the EAL's output, without the speaker's name: at this log level it speaks only
 * of what is wrong, and the first line is the cause, the others what follows from it.
 */
static const char *
capture_cause(char *text)
{
	char *p, *colon;

	p = text + strspn(text, " \n");
	p[strcspn(p, "\n")] = '\0';
	while ((colon = strstr(p, ": ")) != NULL &&
		(strncmp(p, "EAL:", 4) == 0 || strncmp(p, "FATAL:", 6) == 0 ||
			memchr(p, '/', (size_t)(colon - p)) != NULL))
		p = colon + 2;
	return *p == '\0' ? rte_strerror(rte_errno) : p;
}

/* Hugepages to reserve, so that as many are free as -m asks for; without it 256 MiB. */
static uint64_t
pages_wanted(const struct app_args *args)
{
	uint64_t page = crpc_max(__crpc_meminfo("Hugepagesize:"), 1), kib = 256 << 10;
	uint64_t used = __crpc_meminfo("HugePages_Total:") - __crpc_meminfo("HugePages_Free:");
	const char *arg;

	for (int i = 1; i < args->eal_argc; i++) {
		arg = args->eal_argv[i];
		if (strncmp(arg, "-m", 2) != 0)
			continue;
		arg = arg[2] == '\0' && i + 1 < args->eal_argc ? args->eal_argv[i + 1] : arg + 2;
		kib = strtoull(arg, NULL, 10) << 10;
	}
	return used + (kib + page - 1) / page;
}

static int
eal_refused(const struct app_args *args, char *text, bool no_huge)
{
	bool about_args = strstr(text, "Usage:") != NULL;
	const char *cause = capture_cause(text);

	if (about_args)
		return app_fail_once(
			"DPDK refused its arguments: %s; EAL arguments come before the "
			"--, the program's own behind it",
			cause);
	if (no_huge)
		return app_fail_once(
			"DPDK could not start with --no-huge: %s; free memory, or ask for "
			"less with -m MIB before the --",
			cause);
	return app_fail_once("DPDK could not start: %s; reserve hugepages (as root: echo %llu > "
			     "/proc/sys/vm/nr_hugepages), or give --no-huge before the --",
		cause, (unsigned long long)pages_wanted(args));
}

/* Libraries say their errors here; --log-level=crpc.*:7 shows more, crpc.*:4 errors. */
static void
log_to_eal(enum crpc_log_level level, const char *type, const char *line)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	int id;

	/* A new type moves DPDK's table of types, which no lock of its own guards. */
	pthread_mutex_lock(&lock);
	id = rte_log_register_type_and_pick_level(type, RTE_LOG_CRIT);
	if (id >= 0)
		rte_log((uint32_t)level, (uint32_t)id, "%s: %s\n", type, line);
	pthread_mutex_unlock(&lock);
}

struct eal_args {
	char *argv[EAL_ARGS_MAX + 16];
	int argc;
	char lcores[1024];
	char text[4096]; /* What argv points to beside the user's own; the EAL permutes argv. */
	size_t used;
};

static void
eal_add(struct eal_args *out, const char *arg)
{
	size_t len = strlen(arg) + 1;

	if (out->argc + 1 >= (int)CRPC_DIM(out->argv) || out->used + len > sizeof(out->text))
		return;
	out->argv[out->argc++] = memcpy(out->text + out->used, arg, len);
	out->used += len;
}

/* "0@4,1@6": lcores numbered from 0, whatever the cores' numbers are. */
static void
lcores_text(const cpu_set_t *set, char *buf, size_t len)
{
	size_t used = 0;
	int id = 0;

	for (int cpu = 0; cpu < CPU_SETSIZE && id < RTE_MAX_LCORE && used < len; cpu++)
		if (CPU_ISSET(cpu, set))
			used += (size_t)snprintf(
				buf + used, len - used, "%s%d@%d", id == 0 ? "" : ",", id, cpu),
				id++;
}

static void
eal_complete(const struct app_args *args, const cpu_set_t *set, struct eal_args *out)
{
	bool no_huge = EAL_HAS(args, "--no-huge");

	for (int i = 0; i < args->eal_argc; i++)
		out->argv[out->argc++] = args->eal_argv[i];
	if (!app_eal_has_lcores(args)) {
		lcores_text(set, out->lcores, sizeof(out->lcores));
		eal_add(out, "--lcores");
		eal_add(out, out->lcores);
	}
	if (!EAL_HAS(args, "--in-memory", "--no-shconf", "--file-prefix", "--proc-type",
		    "--huge-dir", "--huge-unlink", "--legacy-mem")) {
		/*
		 * Without hugepages the EAL refuses --in-memory, but keeps nothing in files either.
		 */
		eal_add(out, no_huge ? "--no-shconf" : "--in-memory");
	}
	if (!EAL_HAS(args, "--no-pci", "-a", "--allow", "-b", "--block"))
		eal_add(out, "--no-pci");
	if (!EAL_HAS(args, "--log-level")) {
		/* Libraries' failures come back to us, and we say them. */
		eal_add(out, "--log-level=lib.*:3");
		eal_add(out, "--log-level=lib.eal:4");
	}
	if (no_huge && !EAL_HAS(args, "-m", "--socket-mem")) {
		eal_add(out, "-m");
		eal_add(out, "64");
	}
}

/*
 * A program whose EAL begins removes the telemetry socket of one that does not listen at its own
 * yet, so they begin one after the other. What holds the lock too long is not waited for.
 */
static int
turn_take(void)
{
	int fd = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (int ms = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && ms < TURN_MS; ms++)
		crpc_nap(1000000);
	return fd;
}

static bool started;

int
app_eal_start(const struct app_args *args, const cpu_set_t *set)
{
	static char text[16384];
	static struct eal_args eal; /* The EAL keeps pointers into it. */
	struct capture capture;
	const char *lacks = app_room_lacks(EAL_FILES, EAL_MIB);
	bool captured;
	int rc, turn;

	if (lacks != NULL)
		return app_fail_once("DPDK: %s", lacks);
	if (args->eal_argc > EAL_ARGS_MAX)
		return app_fail_once("%d EAL arguments were given; give at most %d",
			args->eal_argc - 1, EAL_ARGS_MAX - 1);
	eal_complete(args, set, &eal);
	turn = turn_take();
	captured = capture_begin(&capture);
	rc = rte_eal_init(eal.argc, eal.argv);
	if (turn >= 0)
		close(turn);
	if (captured)
		capture_end(&capture, text, sizeof(text));
	if (rc < 0)
		return eal_refused(args, text, EAL_HAS(args, "--no-huge"));
	started = true;
	crpc_log_set_sink(log_to_eal, CRPC_LOG_DEBUG);
	crpc_mem_eal_start();
	return 0;
}

void
app_eal_stop(void)
{
	if (!started)
		return;
	crpc_mem_eal_stop();
	rte_eal_cleanup();
}

int
app_eal_core_of(unsigned int lcore)
{
	cpu_set_t set = rte_lcore_cpuset(lcore);
	int cpu;

	for (cpu = 0; cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &set); cpu++)
		;
	return cpu;
}

void
app_eal_lcores(uint32_t max, cpu_set_t *set)
{
	cpu_set_t one;
	unsigned int id;

	*set = rte_lcore_cpuset(rte_get_main_lcore());
	RTE_LCORE_FOREACH_WORKER(id)
	{
		if ((uint32_t)CPU_COUNT(set) >= max)
			break;
		one = rte_lcore_cpuset(id);
		CPU_OR(set, set, &one);
	}
}

static void
mem_row(const struct crpc_mem_part *part, void *rows)
{
	json_array_append_new(rows,
		json_pack("{s:s, s:I, s:I, s:I, s:I, s:i, s:i}", "part", part->name, "count",
			(json_int_t)part->count, "bytes", (json_int_t)part->bytes, "page",
			(json_int_t)part->page_size, "thp_bytes", (json_int_t)part->thp_bytes,
			"node", part->node, "lcore", part->lcore));
}

void
app_eal_mem_report(void)
{
	static bool done;
	json_t *rows;

	if (!app_opt_mem_report || done)
		return;
	rows = json_array();
	crpc_mem_walk(mem_row, rows);
	done = json_array_size(rows) != 0;
	if (done)
		app_out_table("memory of the datapath", json_incref(rows));
	json_decref(rows);
}
