#!/usr/bin/env bash
# Exports models to GGUF, runs each in llama.cpp, and compares perplexity and KL divergence with
# nstf eval --protocol llama.cpp --exact on the same file and text. docs/perf/export.md says what came out.
#
#   docs/perf/export.sh NSTF LLAMA_PERPLEXITY SHARED [THREADS] > results.jsonl
#
# NSTF is the program, LLAMA_PERPLEXITY that tool of a llama.cpp build, SHARED the folder with models/
# and text/. One JSON line per export; exit code 1 where a perplexity differs by more than 0.1 % (1 % with
# quantized weights) or a divergence by more than 1 %. An architecture that the build does not know is
# reported as such.
set -euo pipefail
nstf=${1:?nstf} peer=${2:?llama-perplexity} shared=${3:?shared folder} threads=${4:-$(nproc)}
micro=$(cd "$(dirname "$0")/../../testdata/micro" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0

# value NAME prints the number "value" of an object in nstf's JSON.
value() { awk -v name="\"$1\":" '$1 == name {seen = 1} seen && $1 == "\"value\":" {printf "%.8g", $2; exit}' "$2"; }

# near A B SHARE prints the relative difference and fails where it is larger.
near() { awk -v a="$1" -v b="$2" -v max="$3" 'BEGIN {d = a / b - 1; printf "%.2e", d; exit !(d <= max && d >= -max)}'; }

# compare NAME GGUF TEXT CTX [SHARE] compares the perplexity of a file.
compare() {
  local name=$1 gguf=$2 text=$3 ctx=$4 share=${5:-1e-3} theirs ours off
  if ! "$peer" -m "$gguf" -f "$text" -c "$ctx" -t "$threads" >"$tmp/peer.log" 2>&1; then
    if grep -q 'unknown model architecture' "$tmp/peer.log"; then
      printf '{"model": "%s", "peer": "unknown architecture"}\n' "$name"
    else
      printf '{"model": "%s", "peer": "%s", "ok": false}\n' "$name" \
        "$(grep -m 1 -i -E 'error loading model|assert|failed' "$tmp/peer.log" | tr -d '"\\' | tr -s ' ')"
      failed=1
    fi
    return 0
  fi
  theirs=$(sed -n 's/^Final estimate: PPL = \([0-9.]*\).*/\1/p' "$tmp/peer.log")
  "$nstf" eval "$gguf" --text "$text" --ctx "$ctx" --protocol llama.cpp --exact --json >"$tmp/ours.json"
  ours=$(value perplexity "$tmp/ours.json")
  local ok=true
  off=$(near "$ours" "$theirs" "$share") || { ok=false; failed=1; }
  printf '{"model": "%s", "ctx": %d, "llama.cpp": %s, "nstf": %s, "off": %s, "ok": %s}\n' "$name" "$ctx" "$theirs" "$ours" "$off" "$ok"
}

# exported SRC OUT.gguf [FLAG...] takes a model the whole way; 4 says that llama.cpp does not run it.
exported() {
  local src=$1 out=$2
  shift 2
  "$nstf" convert "$src" -o "$tmp/package.nstf" "$@" >/dev/null
  "$nstf" export "$tmp/package.nstf" -o "$out" >/dev/null 2>"$tmp/export.log"
}

# divergence NAME GGUF REF TEXT compares KL figures of one file against another.
divergence() {
  local name=$1 gguf=$2 ref=$3 text=$4 ok=true
  "$peer" -m "$ref" -f "$text" -c 512 -t "$threads" --kl-divergence-base "$tmp/base.kld" >"$tmp/peer.log" 2>&1
  "$peer" -m "$gguf" -c 512 -t "$threads" --kl-divergence-base "$tmp/base.kld" --kl-divergence >"$tmp/peer.log" 2>&1
  "$nstf" eval "$gguf" --text "$text" --ctx 512 --protocol llama.cpp --exact --ref "$ref" --json >"$tmp/ours.json"
  printf '{"model": "%s", "ref": "%s"' "$name" "$(basename "$ref")"
  local row theirs ours off
  while IFS='|' read -r row pattern key; do
    theirs=$(sed -n "s/^$pattern *: *\([0-9.]*\).*/\1/p" "$tmp/peer.log" | head -n 1)
    ours=$(value "$key" "$tmp/ours.json")
    if [ "$row" = same_top ]; then ours=$(awk -v x="$ours" 'BEGIN {print 100 * x}'); fi
    off=$(near "$ours" "$theirs" 1e-2) || ok=false
    printf ', "%s": {"llama.cpp": %s, "nstf": %s, "off": %s}' "$row" "$theirs" "$ours" "$off"
  done <<'ROWS'
perplexity|Mean PPL(Q)|perplexity
kl_mean|Mean *KLD|kl_mean
kl_median|Median *KLD|kl_median
kl_p99|99.0% *KLD|kl_p99
same_top|Same top p|top1_agreement
ROWS
  $ok || failed=1
  printf ', "ok": %s}\n' "$ok"
}

"$(dirname "$0")/machine.sh" "$nstf"
text=$shared/text/anchor_mix.txt
for name in tiny-llama tiny-qwen3 tiny-gemma3 tiny-mixtral base-llama; do
  exported "$shared/models/$name" "$tmp/$name.gguf"
  compare "$name" "$tmp/$name.gguf" "$text" 512
done

head -c 6000 "$text" >"$tmp/short.txt"
for dir in "$micro"/*/; do
  name=$(basename "$dir") rc=0
  case $name in *-oldcfg | quant-* | *-stacked) continue ;; esac # the same models, written otherwise
  exported "$dir" "$tmp/micro.gguf" --dtype f32 || rc=$?
  case $rc in
    0)
      context=$("$nstf" inspect "$tmp/micro.gguf" --json | sed -n 's/^ *"context": \([0-9]*\),.*/\1/p')
      compare "micro/$name" "$tmp/micro.gguf" "$tmp/short.txt" $((context < 128 ? context : 128))
      ;;
    4) printf '{"model": "micro/%s", "export": "%s"}\n' "$name" "$(sed -n 's/^error: //p' "$tmp/export.log" | tr -d '"' | sed "s|$tmp/||g")" ;;
    *) cat "$tmp/export.log" >&2; exit "$rc" ;;
  esac
done

# llama.cpp rounds activations to 8 bits before it meets quantized weights; the same weights in
# float32 show how much of the difference that is.
"$nstf" quantize "$shared/models/base-llama" --scheme q4_k -o "$tmp/package.nstf" >/dev/null
"$nstf" export "$tmp/package.nstf" -o "$tmp/q4_k.gguf" >/dev/null
exported "$tmp/q4_k.gguf" "$tmp/q4_k-as-f32.gguf" --dtype f32
compare base-llama-q4_k-as-f32 "$tmp/q4_k-as-f32.gguf" "$text" 512
divergence base-llama-q4_k-as-f32 "$tmp/q4_k-as-f32.gguf" "$tmp/base-llama.gguf" "$text"
compare base-llama-q4_k "$tmp/q4_k.gguf" "$text" 512 1e-2
divergence base-llama-q4_k "$tmp/q4_k.gguf" "$tmp/base-llama.gguf" "$text"
exit "$failed"
