/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_PORT_H
#define SOFT_MLX5_PORT_H

/**
 * @file
 * Which devices this process sees, and what their ports are, as the environment says:
 *
 *     SOFT_MLX5_DEVICES=2                  how many, mlx5_soft0 and on
 *     SOFT_MLX5_WIRE=udp                   RoCEv2 between hosts; else shared memory on this one
 *     SOFT_MLX5_ADDR=10.0.0.1,10.0.1.1     the devices' IPv4 addresses, or
 *     SOFT_MLX5_NETDEV=eth0,eth1           the interfaces whose first ones they are
 *
 * Without addresses it is the first interface that is up and no loopback. It is read once.
 */

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "crpc_atomic.h"

#define SM_DEVICES_MAX 8

/** Entries of a port's GID table; those behind the used ones are empty. */
#define SM_GIDS 8

#define SM_PKEYS_MAX 2

struct sm_gid {
	uint8_t raw[16];
	uint8_t type; /**< enum ibv_gid_type. */
};

struct sm_port {
	bool ethernet;
	bool udp;     /**< Its wire is UDP. */
	uint8_t mtu;  /**< enum ibv_mtu. */
	/* These two change as a program runs: port_event.c. */
	_Atomic bool down;
	_Atomic uint16_t lid; /**< 0 on Ethernet. */
	uint32_t addr; /**< IPv4; 0: none, on InfiniBand or because none was found. */
	uint32_t ifindex;
	uint32_t npkeys;
	uint16_t pkey[SM_PKEYS_MAX];
	uint32_t ngids;
	struct sm_gid gid[SM_GIDS];
	char netdev[IF_NAMESIZE];
};

/** How many devices there are. */
uint32_t sm_ports(void);
/** The port of device @p n, below sm_ports(). */
const struct sm_port *sm_port(uint32_t n);

/** What the events of ports change. */
void sm_port_down(uint32_t n, bool down);
/** The LID of the first device; those of the others follow. Not on Ethernet. */
void sm_port_lid(uint16_t first);

#endif
