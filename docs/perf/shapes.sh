#!/usr/bin/env bash
# Measures the shapes of four published models with random weights on one GPU, prompt and decoding: docs/perf/gpu.md.
#
#   docs/perf/shapes.sh NSTF DEVICE OUT [LLAMA_BENCH] [SHAPE...]
#
# NSTF is the program, DEVICE hip or cuda, OUT a folder for the results. LLAMA_BENCH, llama.cpp's tool of that name
# built for the same GPU, runs the same files ("": not). Of a shape as NAME:N the first N blocks are measured. Each
# file lies under $TMPDIR, 6 to 21 GB, until the next is made. PROFILE=1 times the kernels too.
set -uo pipefail
nstf=$(realpath "${1:?nstf}") device=${2:?hip or cuda} out=${3:?folder for results} llama=${4:-}
shift $(($# < 4 ? $# : 4))
[ $# -gt 0 ] || set -- qwen3.5-9b gpt-oss-20b gemma-4-26b-a4b qwen3.6-35b-a3b
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
"$here/machine.sh" "$nstf" >"$out/machine.json" 2>&1
model=${TMPDIR:-/tmp}/nstf-shape.gguf
trap 'rm -f "$model"' EXIT
for shape; do
  layers=()
  [ "$shape" = "${shape%:*}" ] || layers=(--layers "${shape#*:}")
  shape=${shape%:*}
  began=$SECONDS
  rm -f "$model"
  "$nstf" dev generate --shape "$shape" "${layers[@]}" --blocks -o "$model" >"$out/$shape.err" 2>&1
  echo "== $shape: $(stat -c %s "$model") bytes, made in $((SECONDS - began)) s"
  timeout 120 "$nstf" bench "$model" --device "$device" --prompt 2048 --gen 128 --repeat 3 ${PROFILE:+--profile} --json >"$out/bench-$shape.json" 2>>"$out/$shape.err"
  echo "nstf: exit status $?, $((SECONDS - began)) s"
  echo "prompt and decode, tokens/s: $(grep -A1 '"tokens_per_s"' "$out/bench-$shape.json" | grep -oE 'median": [0-9.]+' | cut -d' ' -f2 | tr '\n' ' ')"
  if [ -n "$llama" ]; then
    timeout 120 "$llama" -m "$model" -ngl 99 -fa 1 -p 2048 -n 128 -r 3 -o json >"$out/llama-$shape.json" 2>>"$out/$shape.err"
    echo "llama-bench: exit status $?, $((SECONDS - began)) s: $(grep -oE '"(n_prompt|n_gen|avg_ts)": [0-9.]+' "$out/llama-$shape.json" | tr '\n' ' ')"
  fi
done 2>&1 | tee "$out/shapes.txt"
