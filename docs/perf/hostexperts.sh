#!/usr/bin/env bash
# Measures a mixture of gpt-oss-120b's shape on one GPU that is limited to 24 GiB of its memory, the experts that have
# no room there being the processor's: docs/perf/devices.md.
#
#   docs/perf/hostexperts.sh NSTF DEVICE OUT [LLAMA_BENCH] [BLOCKS] [SHAPE...]
#
# NSTF is the program, DEVICE hip:0 or cuda:0, OUT a file for the results. LLAMA_BENCH, llama.cpp's tool of that name
# built for the same GPU, runs the same file within the same limit, by its own fit ("": not). BLOCKS, 36 unless it is
# given, makes a model of fewer: the limit shrinks with them. In q4_0 36 take 60 GiB under $TMPDIR and of the host's
# memory, 18 half of that. SHAPE are further flags of nstf dev generate.
set -uo pipefail
nstf=$(realpath "${1:?nstf}") device=${2:?hip:0 or cuda:0} out=$(realpath "${3:?file for the results}") llama=${4:-} blocks=${5:-36}
[ -z "$llama" ] || llama=$(realpath "$llama")
shift $(($# < 5 ? $# : 5))
here=$(cd "$(dirname "$0")" && pwd)
model=${TMPDIR:-/tmp}/120b-a5b-$blocks.gguf limit=$((24 * 1024 * blocks / 36)) # MiB
"$here/machine.sh" "$nstf" >"$out" 2>&1
exec >>"$out" 2>&1
[ -f "$model" ] || "$nstf" dev generate --shape 120b-a5b --layers "$blocks" --blocks --scheme q4_0 "$@" -o "$model" >/dev/null
cat "$model" >/dev/null # from the page cache for both
both="--device $device,cpu --memory $device=${limit}MiB"
# shellcheck disable=SC2086
"$nstf" place "$model" $both --ctx 4096
layout=$(mktemp)
# shellcheck disable=SC2086
"$nstf" place "$model" $both --ctx 4096 --json >"$layout"
for round in 1 2; do
  echo "== round $round: experts on the processor"
  "$nstf" bench "$model" --prompt 2048 --gen 64 --repeat 3 --place "$layout" --memory "$device=${limit}MiB"
  if [ -n "$llama" ]; then
    # Its fit leaves a margin of what is free: all but the limit.
    free=$("$nstf" place "$model" --device "$device,cpu" --ctx 4096 --json | sed -n "/\"device\": \"$device\"/,/limit/s/.*\"limit\": \([0-9]*\).*/\1/p")
    echo "== round $round: llama-bench -fitt $((free / 1048576 - limit))"
    "$llama" -m "$model" -fitt "$((free / 1048576 - limit))" -fitc 4096 -p 2048 -n 64 -r 3
  fi
done
# A layout by hand, to hold the printed choice to.
echo '== a quarter of the experts that were left on the card, at home too'
python3 - "$layout" "$blocks" <<'P' >"$layout.more"
import json, sys
l = json.load(open(sys.argv[1]))
r = next(r for r in l["ranges"] if r["device"] != "cpu")
home = r.get("host_experts", [])
rest = [b for b in range(r["lo"], r["hi"]) if b not in home]
r["host_experts"] = sorted(home + rest[: max(len(rest) // 4, 1)])
print(json.dumps({"ranges": l["ranges"]}))
P
"$nstf" bench "$model" --prompt 2048 --gen 64 --repeat 3 --place "$layout.more" --memory "$device=${limit}MiB"
rm "$layout" "$layout.more"
