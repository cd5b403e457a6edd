#!/usr/bin/env bash
# Prints a JSON line that says what figures belong to: the program's commit, and the machine.
#
#   docs/perf/machine.sh NSTF
set -euo pipefail
field() { "$1" version --json | sed -n "s/^  \"$2\": \"\{0,1\}\([^\",]*\).*/\1/p"; }
printf '{"commit": "%s", "modified": %s, "go": "%s", "simd": "%s", "cpu": "%s", "cores": %d, "ram_gib": %d, "kernel": "%s"}\n' \
  "$(field "$1" commit)" "$(field "$1" modified)" "$(field "$1" go)" "$(field "$1" simd)" \
  "$(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)" \
  "$(awk '/MemTotal/ {print int($2 / 1048576 + 0.5)}' /proc/meminfo)" "$(uname -s) $(uname -r | sed 's/-.*//')"
