#!/usr/bin/env bash
# Decodes with a model that is mapped from the disk and larger than the memory allowed, beside what the disk gives to
# two readers at once: docs/perf/devices.md. As root, on Linux with control groups of memory (either version).
#
#   docs/perf/mapped.sh NSTF OUT [SHARE] [GEN] [SHAPE...]
#
# NSTF is the program, OUT a file for the results. The memory allowed is the model's size by SHARE (1.5), GEN the tokens
# of a round. SHAPE are flags of nstf dev generate; without them a llama of 2.8 GiB. It lies under $TMPDIR, on the disk
# that is measured.
set -euo pipefail
nstf=$(realpath "${1:?nstf}") out=$(realpath "${2:?file for the results}") share=${3:-1.5} gen=${4:-4}
shift $(($# < 4 ? $# : 4))
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
if [ -d /sys/fs/cgroup/memory ]; then
  group=/sys/fs/cgroup/memory/nstf-mapped limit=memory.limit_in_bytes
else
  group=/sys/fs/cgroup/nstf-mapped limit=memory.max
fi
mkdir "$group"
trap 'rm -rf "$dir"; rmdir "$group"' EXIT
[ $# -gt 0 ] || set -- --shape 8b --layers 20
"$nstf" dev generate "$@" --blocks -o "$dir/model.gguf" >/dev/null 2>&1
size=$(stat -c %s "$dir/model.gguf")
allowed=$(awk "BEGIN { printf \"%.0f\", $size / $share }")
"$here/machine.sh" "$nstf" >"$out" 2>&1
echo "model: nstf dev generate $* --blocks, $size bytes; memory allowed: $allowed bytes" >>"$out"
echo "$allowed" >"$group/$limit"

forget() { sync; echo 3 >/proc/sys/vm/drop_caches; }
disk() { # what two readers of half of the file each get, past the page cache
  local half=$((size / 8388608)) start end
  start=$(date +%s%N)
  dd if="$dir/model.gguf" of=/dev/null bs=4M iflag=direct count=$half status=none &
  dd if="$dir/model.gguf" of=/dev/null bs=4M iflag=direct skip=$half status=none
  wait $!
  end=$(date +%s%N)
  awk "BEGIN { printf \"disk: %.2f GB/s\n\", $size / ($end - $start) }"
}
for round in 1 2 3; do
  forget
  disk
  (
    echo "$BASHPID" >"$group/cgroup.procs"
    exec "$nstf" bench "$dir/model.gguf" --prompt 0 --gen "$gen" --repeat 1 --device cpu
  ) 2>/dev/null | grep -A 3 '^decode'
done >>"$out"
disk >>"$out"
