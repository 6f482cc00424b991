#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# ibv_ud_pingpong and ibv_uc_pingpong between two processes: datagrams and unreliable connections,
# polled and with events. Nothing is lost as long as receives are posted, and the tools post them.
. "$(dirname "$0")/lib.sh"
need ibv_ud_pingpong ibv_uc_pingpong

pingpong ibv_ud_pingpong 1000 -c
pingpong ibv_ud_pingpong 300 -c -e
pingpong ibv_ud_pingpong 500 -c -g 0
pingpong ibv_ud_pingpong 500 -c -s 4096
pingpong ibv_uc_pingpong 1000
pingpong ibv_uc_pingpong 300 -e
pingpong ibv_uc_pingpong 200 -s 65536
pingpong ibv_uc_pingpong 200 -g 0
finish
