/* SPDX-License-Identifier: BSD-3-Clause */
#include <signal.h>

#include "app_stop.h"
#include "crpc_clock.h"

_Atomic int app_stop_signal;

static void
on_signal(int sig)
{
	static _Atomic uint64_t first_ns;
	uint64_t now = crpc_clock_monotonic_ns();

	if (app_stopped() == 0) {
		crpc_store_relaxed(&first_ns, now);
		crpc_store_relaxed(&app_stop_signal, sig);
	} else if (now > crpc_load_relaxed(&first_ns) + APP_STOP_SAME_MS * UINT64_C(1000000)) {
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
