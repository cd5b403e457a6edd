#!/usr/bin/env bash
# Converts and rounds a model of 1.1 B weights in bf16, from a copy on this machine and by
# ranges from a hub on it (--stream), in turn: seconds, resident memory, and what lies on the
# disk of the cache.
#
#   docs/perf/stream.sh [WAIT]    WAIT of the hub between pieces of 64 KiB of each connection: 0s, 2ms
set -euo pipefail
cd "$(dirname "$0")/../.."
tmp=$(mktemp -d -p /dev/shm)
trap 'rm -rf "$tmp"' EXIT
go build -o "$tmp/nstf" ./cmd/nstf
go build -o "$tmp/hubd" ./.ci/hubd
"$tmp/nstf" dev generate -o "$tmp/m" --shape 1.1b 2>/dev/null
coproc HUB { "$tmp/hubd" -slow "${1:-0s}" "$tmp/m"; }
read -r hub <&"${HUB[0]}"
export HF_ENDPOINT=$hub HF_HUB_CACHE=$tmp/cache
du -sm "$tmp/m" | cut -f1 | sed 's/$/ MiB of model/'
for line in "convert" "quantize --scheme q4_k"; do
  for _ in 1 2; do
    rm -rf "$tmp/cache"
    /usr/bin/time -f "%e s, %M KiB: $line, from the disk" "$tmp/nstf" $line "$tmp/m" -o "$tmp/a.nstf" 2>&1 >/dev/null | tail -1
    /usr/bin/time -f "%e s, %M KiB: $line --stream" "$tmp/nstf" $line test/m -o "$tmp/b.nstf" --stream 2>&1 >/dev/null | tail -1
    echo "$(du -sk "$tmp/cache" | cut -f1) KiB in the cache"
    cmp "$tmp/a.nstf" "$tmp/b.nstf"
    rm "$tmp"/?.nstf
  done
done
exec {HUB[1]}>&-
