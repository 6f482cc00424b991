/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CRPC_THREAD_H
#define CRPC_THREAD_H

/**
 * @file
 * Threads of the libraries' own, which wait nearly all the time. Inline, as drivers use it too.
 */

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

/**
 * Start a thread that takes no signals, and runs on any core: its maker's is not to be shared. 0 or
 * an errno value.
 */
static inline int
crpc_thread_start(pthread_t *thread, const char *name, void *(*fn)(void *arg), void *arg)
{
	sigset_t all, old;
	cpu_set_t cpus;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(thread, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc != 0)
		return rc;
	pthread_setname_np(*thread, name);
	memset(&cpus, 0xff, sizeof(cpus));
	pthread_setaffinity_np(*thread, sizeof(cpus), &cpus);
	return 0;
}

#endif
