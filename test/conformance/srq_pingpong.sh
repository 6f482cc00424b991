#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# ibv_srq_pingpong between two processes: 16 RC QPs on one shared receive queue, polled and with
# events.
. "$(dirname "$0")/lib.sh"
need ibv_srq_pingpong

pingpong ibv_srq_pingpong 2000
pingpong ibv_srq_pingpong 2000 -c
pingpong ibv_srq_pingpong 1000 -e
pingpong ibv_srq_pingpong 1000 -q 1 -r 16
pingpong ibv_srq_pingpong 1000 -q 64 -r 500
pingpong ibv_srq_pingpong 100 -s 65536 -c
finish
