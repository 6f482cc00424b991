/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEAK_H
#define WEAK_H

/**
 * @file
 * A model of weakly ordered memory, and the search through all that it allows.
 *
 * A scenario is some threads that run a library's own code, compiled with weak_atomic.h. They are
 * coroutines, so an execution is determined by its choices: which thread does the next access to a
 * shared word, and which of the values that it may see a load returns. All choices are tried, depth
 * first, from the start each time; a state that was reached before, by the accesses of another
 * order, is not entered again. A state is what each thread has read and written where, which
 * determines all else.
 *
 * The model is the views of J. Kang et al., "A promising semantics for relaxed-memory concurrency"
 * (POPL 2017), without promises, and the races of C11:
 *
 *   - A word keeps all values stored to it, in order. A thread has a view: per word, the oldest
 *     value that it may still see. So a store is buffered for each reader apart, and stores to two
 *     words are seen in either order, unless they are ordered as follows.
 *   - A release puts the thread's view beside the value, and an acquire that reads the value joins
 *     that view to its own. A read-modify-write reads the newest value and passes on its view.
 *   - A seq_cst access reads nothing older in a word than other seq_cst accesses have seen there.
 *   - Two plain accesses, or a plain and an atomic one, to the same byte from two threads, one of
 *     them a store, must be ordered by such joins: else the execution fails with a data race. A
 *     read that the machine or the compiler delays past a release is found by this.
 *   - A thread in weak_wait() goes on when another one stores. If all threads wait, all stores
 *     become visible to all; if they then wait without a store, the execution fails: a deadlock.
 *
 * Limits: a store is placed behind those that were there (relaxed stores of two threads to one
 * word are in the order of execution); an atomic load is not delayed past a later store of its
 * thread (load buffering); seq_cst orders accesses to one word, which is weaker than C11. Nothing
 * is allocated in a scenario's threads; the numbers of threads, words and values are below.
 *
 * weak_main() explores each scenario as the code is, and must find nothing. Then it removes one
 * ordering (the acquire, the release or the seq_cst) of one site after the other, and some scenario
 * must fail. Orderings that no scenario misses are named in a list, with the reason.
 */

#include <stdbool.h>
#include <stddef.h>

#define WEAK_THREADS 3

enum weak_order {
	WEAK_ACQUIRE = 1,
	WEAK_RELEASE = 2,
	WEAK_SEQ_CST = 4,
};

enum weak_op {
	WEAK_SET,
	WEAK_ADD,
	WEAK_OR,
	WEAK_AND,
};

/** An atomic access in the source. */
struct weak_site {
	const char *file;
	const char *func;
	int line;
	unsigned int orders;
	unsigned int ran; /**< In these scenarios: a bit for each. */
};

/** What the macros of weak_atomic.h call. */
void weak_load(struct weak_site *site, const volatile void *p, void *v, size_t size);
void weak_store(struct weak_site *site, volatile void *p, const void *v, size_t size);
void weak_rmw(struct weak_site *site, volatile void *p, void *v, size_t size, enum weak_op op);
bool weak_cas(
	struct weak_site *site, volatile void *p, void *expected, const void *v, size_t size);
void *weak_memcpy(void *to, const void *from, size_t n);
void *weak_memset(void *to, int byte, size_t n);

struct weak_scenario {
	const char *name;
	void (*setup)(void); /**< Once: makes the objects, and names them by weak_memory(). */
	void (*thread[WEAK_THREADS])(void);
	void (*end)(void); /**< After each execution; may be NULL. */
};

/** An ordering whose absence no scenario can show. */
struct weak_spare {
	const char *func;
	unsigned int orders;
	const char *why;
	unsigned int site_orders; /**< Only of an access with all these; 0: of any. */
};

/** In setup: memory that threads change. It is restored before each execution. */
void weak_memory(void *p, size_t len);

/** In a thread: nothing can be done until another thread stores. */
void weak_wait(void);

/** In a thread or at the end: the execution fails unless @p good. */
void weak_check(bool good, const char *what);

/** More messages, more rounds: set by --deep, before setup. */
extern bool weak_deep;

/**
 * The program: arguments are --deep, --trace (print the accesses of a failure), and scenarios.
 *
 * @param part
 *   Part of the paths of the files whose sites are judged.
 * @return
 *   Exit status.
 */
int weak_main(int argc, char **argv, const char *part, const struct weak_scenario *scenarios,
	const struct weak_spare *spares);

#endif
