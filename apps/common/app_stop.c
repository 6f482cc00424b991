/* SPDX-License-Identifier: BSD-3-Clause */
#include <signal.h>
#include <stdint.h>
#include <time.h>

#include "app_stop.h"

_Atomic int app_stop_signal;

static int64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void
on_signal(int sig)
{
	static _Atomic int64_t first_ms;

	if (app_stopped() == 0) {
		crpc_store_relaxed(&first_ms, now_ms());
		crpc_store_relaxed(&app_stop_signal, sig);
	} else if (now_ms() - crpc_load_relaxed(&first_ms) > APP_STOP_SAME_MS) {
		signal(sig, SIG_DFL);
		raise(sig); /* Blocked until this function returns. */
	}
}

void
app_stop_catch(void)
{
	struct sigaction sa = {.sa_handler = on_signal};

	/* One at a time: each handler sees what the other has stored. */
	sigaddset(&sa.sa_mask, SIGINT);
	sigaddset(&sa.sa_mask, SIGTERM);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
	/* Who started us may ignore it: then the status of a child would be lost. */
	signal(SIGCHLD, SIG_DFL);
}
