/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_STEP_H
#define SOFT_MLX5_STEP_H

/**
 * @file
 * Step mode: the software ConnectX under a test's thumb.
 *
 * Any number of devices are open in one process, nothing moves by itself, and time is what the test
 * says. The program above (rdma-core, a driver, a protocol) is the real one, unchanged; the order
 * in which the cards work comes from a seed, so a failure can be run again.
 *
 *     test thread                                cards (contexts), numbered as they were opened
 *     ----------------------------------         ---------------------------------------------
 *     start(seed)
 *     open devices, make queues, connect            1        2        3
 *     post, poll      (no card moves)               .        .        .
 *     step(now)       one pass of one card,         .      [pass]     .
 *     step(now)       chosen by the seed          [pass]     .        .
 *     faults(2, "drop=0.01")
 *     break_qp(1, 0)  a queue pair fails            x
 *     vanish(3)       as if its process died                          x
 *
 * A pass is a bounded amount of work: doorbells seen, packets sent and received, acknowledgements,
 * timers. Between two passes of one card the others may have any number of them; packets stay where
 * they are until their receiver has a pass.
 *
 * How to begin: start the program with SOFT_MLX5_PROGRESS=step (usertools/soft-mlx5 --progress
 * step). Then there is no helper thread, ibv_poll_cq() and soft_mlx5_progress() move nothing, and
 * the functions below do. The library, which is preloaded, has one structure of them, which
 * soft_mlx5_step_find() looks up. In another mode each of them fails with EPERM.
 *
 * Numbers: a context's number is how many contexts the process had opened, itself included, since
 * start(). It is never given again, and a closed one names nothing.
 *
 * Time: nanoseconds, any origin, never back. All cards have the same clock; timers (RNR,
 * retransmission, checks for dead peers, every 20 ms) run by it alone.
 *
 * What repeats: with the same seed, the same calls in the same order and a net of its own (no
 * other process on it), every pass does the same, as long as no address or clock enters what the
 * program posts.
 *
 * Threads: one, for everything here and for the devices.
 */

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define SOFT_MLX5_STEP_SYMBOL "soft_mlx5_step"
#define SOFT_MLX5_STEP_ALL 0u /**< As a context's number: all that are open. */

/** The functions, as soft_mlx5_step_find() finds them. */
struct soft_mlx5_step {
	/**
	 * Begin: seed the scheduler, number contexts from 1 again. No context may be open.
	 *
	 * @return
	 *   0, EBUSY (a context is open), EPERM (another mode).
	 */
	int (*start)(uint64_t seed);
	/** The number of the context that was opened last; 0: none since start. */
	uint32_t (*last)(void);
	/**
	 * One pass of one open context, the seed's choice.
	 *
	 * @param now_ns
	 *   The time.
	 * @param work
	 *   What the pass did, as sm_nic_progress() counts; NULL: not wanted.
	 * @return
	 *   0, ENOENT (no context is open), EPERM.
	 */
	int (*step)(uint64_t now_ns, uint32_t *work);
	/** One pass of the context @p number, or one of each; as step(). */
	int (*pass)(uint32_t number, uint64_t now_ns, uint32_t *work);
	/**
	 * Whether no open context has anything to do now: no doorbell, packet or answer is pending.
	 * What waits for time to pass (timers, late packets) does not count.
	 *
	 * @return
	 *   1 or 0; -EPERM.
	 */
	int (*idle)(void);
	/**
	 * Make the network of a context bad, or good again.
	 *
	 * @param number
	 *   Whose; SOFT_MLX5_STEP_ALL for all.
	 * @param text
	 *   As SOFT_MLX5_FAULTS; "" ends all faults. Retransmission timers stay on: what was lost
	 *   before is still to be sent again.
	 * @return
	 *   0, EINVAL (the text), ENOENT, ENOMEM, EPERM.
	 */
	int (*faults)(uint32_t number, const char *text);
	/**
	 * Let a queue pair fail, as by an error inside the card: it enters ERR with everything
	 * flushed, and IBV_EVENT_QP_FATAL is raised.
	 *
	 * @param number
	 *   The context.
	 * @param which
	 *   Index among its queue pairs that are connected (RTR, RTS or SQD), modulo their number.
	 * @return
	 *   0, ENOENT (no such context, or it has none), EPERM.
	 */
	int (*break_qp)(uint32_t number, uint32_t which);
	/**
	 * Let a context go as if its process had been killed: nothing it owes is sent, its place on
	 * the net is free at once, it never has a pass again. Its objects can still be destroyed.
	 *
	 * @return
	 *   0, ENOENT, EPERM.
	 */
	int (*vanish)(uint32_t number);
	/**
	 * Write what soft-mlx5 stat --json shows of a context: its ledgers, and where its queues
	 * stand.
	 *
	 * @return
	 *   0, ENOENT, EPERM.
	 */
	int (*dump)(uint32_t number, FILE *out);
};

/**
 * Look the functions up.
 *
 * @param s
 *   Filled.
 * @return
 *   0; ENOENT: the program was not started on the software ConnectX.
 */
static inline int
soft_mlx5_step_find(struct soft_mlx5_step *s)
{
	const void *found = dlsym(RTLD_DEFAULT, SOFT_MLX5_STEP_SYMBOL);

	if (found == NULL)
		return ENOENT;
	memcpy(s, found, sizeof(*s));
	return 0;
}

#endif
