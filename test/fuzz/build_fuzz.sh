#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Compile one fuzz target and the libraries below it with clang, libFuzzer, ASan and UBSan, whatever
# compiler and options the rest of the build has.
#
# build_fuzz.sh CLANG OUTPUT DEPFILE [FLAG|SOURCE]...
set -u

clang=$1
output=$2
depfile=$3
shift 3
flags=(-g -O1 -fno-omit-frame-pointer -fno-sanitize-recover=undefined
	-fsanitize=fuzzer,address,undefined)
"$clang" -w -MM -MT "$output" "$@" >"$depfile" || exit 1
exec "$clang" "${flags[@]}" "$@" -o "$output"
