/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef APP_OPT_H
#define APP_OPT_H

/**
 * @file
 * Command-line options from a table: strict ranges, one line for each mistake. What programs have
 * in common they take from the vocabulary below: one name, argument, unit and range.
 *
 *     static const struct app_opt opts[] = {
 *             APP_CLIENTS(&o.clients, "of this rank", 1, 1024),
 *             APP_JSON(&o.json),
 *             APP_OPT("dist", "NAME", &o.dist, "key distribution", .choices = dists),
 *     };
 *     rc = app_opt_parse(opts, CRPC_DIM(opts), argc, argv);
 *
 * `--name value` and `--name=value` both work; a later option replaces an earlier one. A number may
 * end in K, M or G (1000), of BYTES 1024, or Ki, Mi, Gi; a list has commas between its values.
 */

#include <stdio.h>

#include "crpc_util.h"

/** --idle: what a loop without work does with its core. */
enum app_idle {
	APP_IDLE_AUTO, /**< Yield where something else needs the core, else poll. */
	APP_IDLE_POLL,
	APP_IDLE_YIELD,
};

/** Their names; ends with NULL. */
extern const char *const app_idle_names[];
/** Transports of lib/rdma, flows and flush policies of copyrpc, in the order of their numbers. */
extern const char *const app_transport_names[], *const app_flow_names[], *const app_flush_names[];

/** When ranks are connected, and the names. */
enum app_connect { APP_CONNECT_START, APP_CONNECT_USE };
extern const char *const app_connect_names[];

/** What an option takes, by the type of its destination. */
enum app_opt_type {
	APP_OPT_FLAG,   /**< `bool`: nothing; it becomes true. */
	APP_OPT_UINT,   /**< `uint64_t`: a whole number within min..max. */
	APP_OPT_REAL,   /**< `double`: a number within min..max. */
	APP_OPT_STRING, /**< `const char *`: anything that is not empty. */
	APP_OPT_CHOICE, /**< `unsigned int`: the index of one of choices. */
	/** `struct app_list`: whole numbers, or indexes of choices, each at most once, or "all". */
	APP_OPT_LIST,
};

/** Values of a list at most. */
#define APP_LIST_MAX 16

/** What a list option gives. */
struct app_list {
	uint32_t n;
	uint64_t v[APP_LIST_MAX];
};

/** The largest number of a list; 0 of none. */
static inline uint64_t
app_list_max(const struct app_list *l)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < l->n; i++)
		most = crpc_max(most, l->v[i]);
	return most;
}

/** One option. */
struct app_opt {
	const char *name; /**< Without the dashes. */
	const char *arg;  /**< What its value is called in the help; NULL of a flag. */
	enum app_opt_type type;
	void *dest;
	const char *help;
	double min, max;
	const char *const *choices; /**< Ends with NULL. */
	uint32_t unit; /**< Whole numbers are multiples of it; 0: any. */
	bool pow2;     /**< They are powers of two. */
};

/** An option: help, least and greatest, or .choices; the help adds these and the default. */
#define APP_OPT(name, arg, dest, ...) \
	{ \
		name, arg, \
			_Generic(dest, \
				bool *: APP_OPT_FLAG, \
				uint64_t *: APP_OPT_UINT, \
				double *: APP_OPT_REAL, \
				const char **: APP_OPT_STRING, \
				unsigned int *: APP_OPT_CHOICE, \
				struct app_list *: APP_OPT_LIST), \
			dest, __VA_ARGS__ \
	}

/*
 * The vocabulary. `of` continues the text of the help.
 */
#define APP_FLAG(name, to, of)          APP_OPT(name, NULL, to, of, 0)
#define APP_CHOICE(name, to, of, names) APP_OPT(name, "NAME", to, of, .choices = names)
#define APP_TRANSPORT(to, of, names)    APP_CHOICE("transport", to, "what carries " of, names)
#define APP_BACKEND(to, of, names)      APP_CHOICE("backend", to, "how requests travel" of, names)
#define APP_FLUSH(to, of)                                                                          \
	APP_CHOICE("flush", to, "when messages leave" of, app_flush_names)
#define APP_FLOW(to) APP_CHOICE("flow", to, "copyrpc: flow control", app_flow_names)
#define APP_CONNECT(to)                                                                            \
	APP_CHOICE("connect", to, "when two ranks make their endpoints: at the start, or for "     \
		"the first request", app_connect_names)
#define APP_PRESET(to, of, names)       APP_CHOICE("preset", to, of, names)
#define APP_SIZE(to, of, min, ...) APP_OPT("size", "BYTES", to, "size of " of, min, __VA_ARGS__)
#define APP_DEPTH(to, of, max)          APP_OPT("depth", "N", to, "open calls of " of, 1, max)
#define APP_CLIENTS(to, of, min, max)   APP_OPT("clients", "N", to, "clients " of, min, max)
#define APP_BURST(to, of)               APP_OPT("burst", "N", to, "messages " of, 1, 64)
#define APP_SECONDS(to, of)             APP_OPT("seconds", "S", to, "measured" of, 0.001, 86400)
#define APP_SLICE_MS(to, of)            APP_OPT("slice-ms", "MS", to, "slice length" of, 1, 10000)
#define APP_REPEAT(to, of)              APP_OPT("repeat", "N", to, "rounds over all " of, 1, 1000)
#define APP_VERIFY(to, of)              APP_FLAG("verify", to, "prove " of)
#define APP_CPU_COUNTERS(to, of)                                                                   \
	APP_FLAG("counters", to, "the CPU's counters per " of ", where it has any")
#define APP_DEVICE(to)                                                                             \
	APP_OPT("device", "NAME", to, "RDMA device; without it the first"),                        \
		APP_OPT("driver", "NAME", &app_opt_driver,                                         \
			"driver of the device, mlx5 or verbs; without it the first that fits")
#define APP_UCX_TLS(to)                                                                            \
	APP_OPT("ucx-tls", "LIST", to, "transports of UCX, such as posix,self or rc_v,self")
#define APP_TRUST_UID(to)                                                                          \
	APP_OPT("trust-uid", "N", to, "also use a service of this user; 0: root's and our own", 0, \
		INT32_MAX)
#define APP_SEED(to) APP_OPT("seed", "N", to, "of all random draws", 0, 9e15)
#define APP_JSON(to)                                                                               \
	APP_OPT("json", "FILE", to, "append the results, one JSON object per line"),               \
		APP_FLAG("verbose", &app_opt_verbose,                                              \
			"or -v: print all of each result but its lists"),                          \
		APP_MEM_REPORT
#define APP_MEM_REPORT                                                                             \
	APP_FLAG("mem-report", &app_opt_mem_report, "print where the datapath's memory lies")

/** --driver, for app_driver.h; NULL: any. */
extern const char *app_opt_driver;

/** --verbose: print all keys of each result. */
extern bool app_opt_verbose;

/** --mem-report: app_eal_mem_report() prints. */
extern bool app_opt_mem_report;

/** What --repeat is without being given. */
#define APP_REPEAT_DEFAULT 5

/** How long lanes are measured that are compared slice by slice. */
struct app_length {
	double seconds; /**< 0: one slice. */
	uint64_t slice_ms, repeat;
};

/** Its options, and its defaults. */
#define APP_LENGTH(to, of_slice, lanes)                                                            \
	APP_SLICE_MS(&(to)->slice_ms, of_slice),                                                   \
		APP_SECONDS(&(to)->seconds, " of each lane in a round; without it one slice"),     \
		APP_REPEAT(&(to)->repeat, lanes)
#define APP_LENGTH_DEFAULT                                                                         \
	{                                                                                          \
		.slice_ms = 60, .repeat = APP_REPEAT_DEFAULT                                       \
	}

/** Slices of each lane. */
static inline uint64_t
app_length_slices(const struct app_length *l)
{
	uint64_t slices = (uint64_t)(l->seconds * 1e3 / (double)l->slice_ms + 0.5);

	return l->repeat * crpc_max(slices, UINT64_C(1));
}

/** A list that cases are made of, and where the value of a case goes. */
struct app_axis {
	const struct app_list *list;
	uint32_t *to;
};

/**
 * Set case number `at` of all combinations of the lists; the last one varies fastest.
 *
 * @return
 *   False: there are fewer.
 */
bool app_axes_set(const struct app_axis *axes, uint32_t n, uint64_t at);

/**
 * Parse the program's own arguments.
 *
 * @param opts, n
 *   The table.
 * @param argc, argv
 *   Arguments only, without the program's name.
 * @return
 *   0, or APP_EXIT_USAGE after one line on stderr.
 */
int app_opt_parse(const struct app_opt *opts, size_t n, int argc, char *const *argv);

/**
 * Parse options up to the first argument that is none, or to "--".
 *
 * @param argv
 *   As above; then the first argument behind the options, the end if there is none.
 * @return
 *   As app_opt_parse().
 */
int app_opt_parse_first(const struct app_opt *opts, size_t n, int argc, char *const **argv);

/**
 * The last value given to one option, before the rest is parsed.
 *
 * @return
 *   The value, which is empty if none follows; NULL: the option does not occur.
 */
const char *app_opt_find(const char *name, int argc, char *const *argv);

/**
 * Read a whole number with such a unit.
 *
 * @param at
 *   Text that starts with it; then what follows it.
 * @param bytes
 *   K, M and G are units of 1024.
 * @return
 *   False: no number is there, or it is too large.
 */
bool app_opt_number(const char **at, bool bytes, uint64_t *v);

/**
 * Print each option with its range and its default, within 80 columns. The default is what its dest
 * has, so ask before anything is parsed. A number that is out of its range stands for none.
 */
void app_opt_help(const struct app_opt *opts, size_t n, FILE *out);

#endif
