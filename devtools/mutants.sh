#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Plant known faults, one at a time, and see that the contract tests find each; -h lists the options.
exec python3 "$(dirname "$0")/mutants.py" "$@"
