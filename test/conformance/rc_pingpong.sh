#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# ibv_rc_pingpong between two processes: RC SEND and RECV, polled and with events, 1 byte to 4 MiB,
# with the tool's own check of the data (-c).
. "$(dirname "$0")/lib.sh"
need ibv_rc_pingpong

pingpong ibv_rc_pingpong 2000 -c
pingpong ibv_rc_pingpong 500 -e -c
pingpong ibv_rc_pingpong 500 -g 0
for size in 1 255 4097 65536; do
	pingpong ibv_rc_pingpong 500 -c -s $size
done
pingpong ibv_rc_pingpong 30 -c -s 4194304
pingpong ibv_rc_pingpong 2000 -r 1
for mtu in 256 4096; do
	pingpong ibv_rc_pingpong 200 -c -s 10000 -m $mtu
done
pingpong ibv_rc_pingpong 500 -c -s 32 # comes in the CQE
SOFT_MLX5_PROGRESS=thread pingpong ibv_rc_pingpong 20 -c
finish
