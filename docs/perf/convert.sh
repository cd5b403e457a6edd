#!/usr/bin/env bash
# Measures nstf convert on a llama of 7 B parameters with random weights (13.5 GB of bf16) against
# copying the same directory and hashing the copy, in turns. docs/perf/convert.md says what came out.
#
#   docs/perf/convert.sh DIR [PAIRS] [SHAPE] > results.jsonl
#
# DIR lies on the disk to measure and needs 41 GB for 7b; everything in it is removed at the end.
# Needs go, git and python3; hashes with b3sum where there is one, else with sha256sum.
set -euo pipefail
dir=$(realpath -m "${1:?directory on the disk to measure}")/nstf-convert pairs=${2:-3} shape=${3:-7b}
here=$(cd "$(dirname "$0")" && pwd)
hash=$(command -v b3sum || command -v sha256sum)
mkdir "$dir"
trap 'rm -rf "$dir"' EXIT

# cold puts every file of a directory on the disk and out of the page cache.
cold() {
  sync "$1"/*
  for f in "$1"/*; do dd if="$f" iflag=nocache count=0 status=none; done
}

(cd "$here/../.." && CGO_ENABLED=0 go build -buildvcs=true -o "$dir/nstf" ./cmd/nstf)
"$here/machine.sh" "$dir/nstf"
printf '{"hash": "%s"}\n' "$("$hash" --version | head -n 1)"
python3 "$here/peak.py" generate "$dir/nstf" dev generate --shape "$shape" --dtype bf16 -o "$dir/src"
printf '{"source_bytes": %d}\n' "$(cat "$dir"/src/* | wc -c)"
for ((i = 0; i < pairs; i++)); do
  cold "$dir/src"
  python3 "$here/peak.py" copy+hash bash -c 'cp -r "$1/src" "$1/copy" && sync "$1"/copy/* && "$2" "$1"/copy/*' - "$dir" "$hash"
  rm -r "$dir/copy"
  cold "$dir/src"
  python3 "$here/peak.py" convert "$dir/nstf" convert "$dir/src" -o "$dir/out.nstf"
  if ((i == 0)); then python3 "$here/peak.py" verify "$dir/nstf" verify "$dir/out.nstf"; fi
  rm "$dir/out.nstf"
done
