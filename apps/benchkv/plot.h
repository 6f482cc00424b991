/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_PLOT_H
#define KV_PLOT_H

/**
 * @file
 * Pictures of results, by the program that draws them: crpc-plot, which needs python3 and
 * gnuplot.
 */

/**
 * Draw a file of JSON lines into a folder.
 *
 * @return
 *   0, or APP_EXIT_RUN after one line that names the command to draw them with later.
 */
int kv_plot(const char *json, const char *folder);

#endif
