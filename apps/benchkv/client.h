/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_CLIENT_H
#define KV_CLIENT_H

/**
 * Load a service that runs already: benchkv-client, and benchkv --attach.
 *
 * @param argc, argv
 *   Options only.
 * @return
 *   An exit code.
 */
int kv_client(int argc, char *const *argv);

#endif
