#!/usr/bin/env bash
# Measures how fast nstf run answers: a prompt of 28 words, 128 greedy tokens, several times.
#
#   docs/perf/run.sh NSTF MODEL [TIMES] [THREADS] > results.txt
#
# On a machine that others use: chrt -f 1 docs/perf/run.sh ..., which takes the cores from them.
set -euo pipefail
nstf=${1:?nstf} model=${2:?model} times=${3:-5} threads=${4:-$(nproc)}
"$(dirname "$0")/machine.sh" "$nstf"
printf '{"model": "%s", "threads": %d, "policy": "%s"}\n' "$(basename "$model")" "$threads" "$(chrt -p $$ | sed -n "s/.*policy: //p")"
for ((i = 0; i < times; i++)); do
  "$nstf" run "$model" --greedy --max-tokens 128 --threads "$threads" --stats -p \
    "It was a cold morning in the early spring, and we sat after breakfast on either side of a cheery fire in the old room at Baker Street." 2>&1 >/dev/null
done
