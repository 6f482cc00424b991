/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_CONTROL_H
#define SOFT_MLX5_CONTROL_H

/**
 * @file
 * The control socket of a process: counters, faults and state while a program runs.
 *
 *     @soft_mlx5.<uid>.ctl.<pid>.<n>      the n-th of the process
 *
 * A stream socket with an abstract name, in the network namespace of the process; who is another
 * user is not heard. One question each: a line of words, answered by a line "ok" or "error: ..."
 * and then the text, up to the end.
 *
 *     stat NET                    JSON: a list of one object per context: counters, and where its
 *                                 queues stand; calls: polls by which the program drove it
 *     faults NET CONTEXT TEXT     as soft_mlx5_step.h's faults(); CONTEXT: a slot, or *; TEXT: off
 *                                 ends them; every context of the net gets timers
 *     port NET CONTEXT TEXT       likewise; TEXT as of soft_mlx5_port()
 *
 * Contexts on other nets are passed over, unless NET is *; a process that has none answers with
 * nothing.
 *
 * A thread of its own sleeps in accept() and costs nothing else: questions are answered also by a
 * program that drives nothing. In step mode there is none, nor with SOFT_MLX5_CONTROL=off.
 */

/** A context was opened: have a socket. */
void sm_control_open(void);
/** A context was closed: with the last one the socket goes. */
void sm_control_close(void);
/** Read the question of a connection, answer it and close it, as the thread does. */
void sm_control_serve(int fd);
/** In a forked child, which has neither socket nor thread. */
void sm_control_fork_child(void);

#endif
