#!/usr/bin/env bash
# Downloads a model of 1.2 GB by nstf and by eight curls, in turn, from a hub on this machine, into memory.
#
#   docs/perf/hub.sh [WAIT]    WAIT of the hub between pieces of 64 KiB of each connection: 0s, 2ms
#
# curl checks nothing; sha256sum is timed beside it.
set -euo pipefail
cd "$(dirname "$0")/../.."
tmp=$(mktemp -d -p /dev/shm)
trap 'rm -rf "$tmp"' EXIT
go build -o "$tmp/nstf" ./cmd/nstf
go build -o "$tmp/hubd" ./.ci/hubd
mkdir "$tmp/m"
echo '{}' >"$tmp/m/config.json"
file=$tmp/m/model.safetensors
head -c 1258291200 /dev/urandom >"$file"
size=$(stat -c %s "$file")
coproc HUB { "$tmp/hubd" -slow "${1:-0s}" "$tmp/m"; }
read -r hub <&"${HUB[0]}"
commit=$(curl -s "$hub/api/models/test/m" | sed 's/.*"sha":"\([0-9a-f]*\)".*/\1/')
address=$(curl -s -o /dev/null -w '%{redirect_url}' "$hub/test/m/resolve/$commit/model.safetensors")
now() { date +%s.%N; }
for _ in 1 2 3 4; do
  rm -rf "$tmp/cache" "$tmp/curl"
  mkdir "$tmp/curl"
  sleep 1
  began=$(now)
  HF_ENDPOINT=$hub HF_HUB_CACHE=$tmp/cache "$tmp/nstf" pull test/m >/dev/null 2>&1
  nstf=$(echo "$(now) - $began" | bc)
  began=$(now)
  curls=()
  for i in 0 1 2 3 4 5 6 7; do
    curl -s -r $((i * size / 8))-$(((i + 1) * size / 8 - 1)) -o "$tmp/curl/$i" "$address" &
    curls+=($!)
  done
  wait "${curls[@]}"
  curl=$(echo "$(now) - $began" | bc)
  began=$(now)
  sha256sum "$file" >/dev/null
  echo "nstf $nstf s, curl $curl s, sha256sum $(echo "$(now) - $began" | bc) s, curl/nstf $(echo "scale=2; $curl / $nstf" | bc)"
done
exec {HUB[1]}>&-
