#!/bin/bash
# Quantizes a model by an array of Slurm jobs, then merges:
#
#   docs/cluster/slurm.sh N WORK OUT.nstf MODEL [flags of nstf quantize]
#
# MODEL, the texts and OUT lie on a file system that all nodes see, and so does WORK, unless it
# is s3://BUCKET/PREFIX; logs lie beside WORK, or then where this is started. What a
# task leaves that is killed, preempted or out of time the others do; where none is left, the
# merge names what is missing, and the same command goes on.
# NSTF names the program, SBATCH_OPTIONS what a site wants said (--partition, --time, --gres).
set -euo pipefail
n=$1 work=$2 out=$3
shift 3
nstf=${NSTF:-nstf}
flags=$(printf ' %q' "$@")
logs=$work
[[ $work != *://* ]] || logs=$PWD/$(basename "$work")
# Slurm sets SLURM_ARRAY_TASK_ID, which nstf reads.
# shellcheck disable=SC2086
array=$(sbatch --parsable ${SBATCH_OPTIONS:-} --array="0-$((n - 1))" --requeue --output="$logs-%a.log" \
  --wrap "exec $(printf %q "$nstf") quantize$flags --work $(printf %q "$work") --threads \${SLURM_CPUS_PER_TASK:-1}")
# shellcheck disable=SC2086
sbatch --parsable --wait ${SBATCH_OPTIONS:-} --dependency="afterany:$array" --output="$logs-merge.log" \
  --wrap "exec $(printf %q "$nstf") quantize$flags --work $(printf %q "$work") --merge -o $(printf %q "$out")"
