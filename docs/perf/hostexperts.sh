#!/usr/bin/env bash
# Measures a mixture of gpt-oss-120b's shape on one GPU that is limited to 24 GiB of its memory, the experts that have
# no room there being the processor's, of prompts multiplied there (home) or sent to the card (stream):
# docs/perf/devices.md.
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
cat "$layout"

by_hand() { # NAME CHANGE: the layout, with its range of a GPU, r, changed
  python3 -c '
import json, sys
l = json.load(open(sys.argv[1]))
r = next(r for r in l["ranges"] if r["device"] != "cpu")
exec(sys.argv[2])
print(json.dumps({"ranges": l["ranges"]}))' "$layout" "$2" >"$layout.$1"
}

bench() { # TITLE LAYOUT PROMPT GEN
  echo "== $1"
  "$nstf" bench "$model" --prompt "$3" --gen "$4" --repeat 3 --place "$layout.$2" --memory "$device=${limit}MiB"
}

by_hand home 'r["stream_experts"] = False'
by_hand stream 'r["stream_experts"] = True'
by_hand more 'home = r.get("host_experts", []); rest = [b for b in range(r["lo"], r["hi"]) if b not in home]; r["host_experts"] = sorted(home + rest[:max(len(rest) // 4, 1)])'
for round in 1 2; do
  for way in home stream; do bench "round $round: experts of prompts: $way" $way 2048 64; done
  if [ -n "$llama" ]; then
    # Its fit leaves a margin of what is free: all but the limit.
    free=$("$nstf" place "$model" --device "$device,cpu" --ctx 4096 --json | sed -n "/\"device\": \"$device\"/,/limit/s/.*\"limit\": \([0-9]*\).*/\1/p")
    echo "== round $round: llama-bench -fitt $((free / 1048576 - limit))"
    "$llama" -m "$model" -fitt "$((free / 1048576 - limit))" -fitc 4096 -p 2048 -n 64 -r 3
  fi
done
for rows in 128 512; do
  for way in home stream; do bench "a prompt of $rows: $way" $way $rows 1; done
done
bench 'by hand, to hold the printed choice to: a quarter of the experts that were left on the card, at home too' more 2048 64
rm "$layout" "$layout".*
