#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Print how large the tree is, compared with an earlier commit; -h lists the options.
exec python3 "$(dirname "$0")/size.py" "$@"
