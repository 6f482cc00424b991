#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# embed.sh FILE: print C source with the bytes of FILE as the kernel's image.
set -eu

echo '/* Made by embed.sh. */'
echo 'extern const unsigned char __crpc_gpudev_fatbin[];'
echo 'const unsigned char __crpc_gpudev_fatbin[] __attribute__((aligned(16))) = {'
od -An -v -tx1 "$1" | sed 's/ \([0-9a-f][0-9a-f]\)/0x\1,/g'
echo '};'
