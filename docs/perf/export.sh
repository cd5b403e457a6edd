#!/usr/bin/env bash
# Exports models to GGUF, runs each in llama.cpp, and compares perplexity and KL divergence with
# nstf eval --protocol llama.cpp on the same file and text. docs/perf/export.md says what came out.
#
#   docs/perf/export.sh NSTF LLAMA_PERPLEXITY SHARED [THREADS] > results.jsonl
#
# NSTF is the program, LLAMA_PERPLEXITY that tool of a llama.cpp build, SHARED the folder with models/
# and text/. One JSON line per export; exit code 1 where a perplexity differs by more than 0.1 % (1 % with
# quantized weights) or a mean divergence by more than 1 %; the divergence's quantiles, which chance moves
# more (docs/decisions/0011), may differ by 2.5 % (median) and 5 % (99th percentile). An architecture that the build does not know is
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

# run_peer LAST ARGUMENT... runs the peer until its log holds LAST, five times at most: a build of 2026 now and
# then ends before its last line is written.
run_peer() {
  local last=$1 turn
  shift
  for turn in 1 2 3 4 5; do
    "$peer" "$@" >"$tmp/peer.log" 2>&1 || return 1
    if grep -a -q "$last" "$tmp/peer.log"; then return 0; fi
  done
  return 1
}

# compare NAME GGUF TEXT CTX [SHARE] compares the perplexity of a file.
compare() {
  local name=$1 gguf=$2 text=$3 ctx=$4 share=${5:-1e-3} theirs ours off
  if ! run_peer 'Final estimate: PPL' -m "$gguf" -f "$text" -c "$ctx" -t "$threads"; then
    if grep -q 'unknown model architecture' "$tmp/peer.log"; then
      printf '{"model": "%s", "peer": "unknown architecture"}\n' "$name"
    else
      printf '{"model": "%s", "peer": "%s", "ok": false}\n' "$name" \
        "$(grep -m 1 -i -E 'error loading model|assert|failed' "$tmp/peer.log" | tr -d '"\\' | tr -s ' ')"
      failed=1
    fi
    return 0
  fi
  theirs=$(sed -n 's/^.*Final estimate: PPL = \([0-9.]*\).*/\1/p' "$tmp/peer.log")
  "$nstf" eval "$gguf" --text "$text" --ctx "$ctx" --protocol llama.cpp --device cpu --json >"$tmp/ours.json"
  ours=$(value perplexity "$tmp/ours.json")
  local ok=true
  off=$(near "$ours" "$theirs" "$share") || { ok=false; failed=1; }
  printf '{"model": "%s", "ctx": %d, "llama.cpp": %s, "nstf": %s, "off": %s, "ok": %s}\n' "$name" "$ctx" "$theirs" "$ours" "$off" "$ok"
}

# exported SRC OUT.gguf [FLAG...] takes a model the whole way; 4 says that llama.cpp does not run it.
exported() {
  local src=$1 out=$2
  shift 2
  "$nstf" convert "$src" -o "$tmp/package.nstf" "$@" >/dev/null 2>"$tmp/export.log"
  "$nstf" export "$tmp/package.nstf" -o "$out" >/dev/null 2>"$tmp/export.log"
}

# divergence NAME GGUF REF TEXT compares KL figures of one file against another.
divergence() {
  local name=$1 gguf=$2 ref=$3 text=$4 ok=true
  run_peer 'Final estimate: PPL' -m "$ref" -f "$text" -c 512 -t "$threads" --kl-divergence-base "$tmp/base.kld"
  run_peer 'Same top p:' -m "$gguf" -c 512 -t "$threads" --kl-divergence-base "$tmp/base.kld" --kl-divergence
  "$nstf" eval "$gguf" --text "$text" --ctx 512 --protocol llama.cpp --device cpu --ref "$ref" --json >"$tmp/ours.json"
  printf '{"model": "%s", "ref": "%s"' "$name" "$(basename "$ref")"
  local row theirs ours off share
  while IFS='|' read -r row pattern key share; do
    theirs=$(sed -n "s/^.*$pattern *: *\([0-9.]*\).*/\1/p" "$tmp/peer.log" | head -n 1)
    ours=$(value "$key" "$tmp/ours.json")
    if [ "$row" = same_top ]; then ours=$(awk -v x="$ours" 'BEGIN {print 100 * x}'); fi
    off=$(near "$ours" "$theirs" "$share") || ok=false
    printf ', "%s": {"llama.cpp": %s, "nstf": %s, "off": %s}' "$row" "$theirs" "$ours" "$off"
  done <<'ROWS'
perplexity|Mean PPL(Q)|perplexity|1e-2
kl_mean|Mean *KLD|kl_mean|1e-2
kl_median|Median *KLD|kl_median|2.5e-2
kl_p90|90.0% *KLD|kl_p90|2.5e-2
kl_p99|99.0% *KLD|kl_p99|5e-2
same_top|Same top p|top1_agreement|1e-2
ROWS
  $ok || failed=1
  printf ', "ok": %s}\n' "$ok"
}

"$(dirname "$0")/machine.sh" "$nstf"
printf '{"peer": "%s"}\n' "$("$peer" --version 2>&1 | grep -m 1 version)"
text=$shared/text/anchor_mix.txt
for name in tiny-llama tiny-qwen3 tiny-gemma3 tiny-mixtral base-llama; do
  exported "$shared/models/$name" "$tmp/$name.gguf"
  compare "$name" "$tmp/$name.gguf" "$text" 512
done

# Several micro checkpoints differ from what GGUF can say. The same weights under a configuration that it can:
# the scale that llama.cpp assumes, no window where it disregards one, and the first layer alone where layers
# differ in kind.
sayable() { mkdir "$tmp/micro/$1" && cp "$micro/$2"/* "$tmp/micro/$1/" && sed -i "$3" "$tmp/micro/$1/config.json"; }
mkdir "$tmp/micro"
sayable gemma2-scale gemma2 's/"query_pre_attn_scalar": 24/"query_pre_attn_scalar": 16/'
sayable gemma3-mm-scale gemma3-mm 's/"query_pre_attn_scalar": 256/"query_pre_attn_scalar": 8/'
sayable phi3-full phi3 's/"sliding_window": 8/"sliding_window": null/'
sayable qwen3_moe-first qwen3_moe 's/"num_hidden_layers": 3/"num_hidden_layers": 1/; /"mlp_only_layers": \[/,/\]/ {/^ *[0-9]/d}'

head -c 6000 "$text" >"$tmp/short.txt"
for dir in "$micro"/*/ "$tmp"/micro/*/; do
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

# llama.cpp rounds activations to 8 bits before it meets quantized weights; the same weights in float32 show
# what is left without that.
"$nstf" quantize "$shared/models/base-llama" --scheme q4_k -o "$tmp/package.nstf" >/dev/null
"$nstf" export "$tmp/package.nstf" -o "$tmp/q4_k.gguf" >/dev/null
exported "$tmp/q4_k.gguf" "$tmp/q4_k-as-f32.gguf" --dtype f32
compare base-llama-q4_k-as-f32 "$tmp/q4_k-as-f32.gguf" "$text" 512
divergence base-llama-q4_k-as-f32 "$tmp/q4_k-as-f32.gguf" "$tmp/base-llama.gguf" "$text"
compare base-llama-q4_k "$tmp/q4_k.gguf" "$text" 512 1e-2
divergence base-llama-q4_k "$tmp/q4_k.gguf" "$tmp/base-llama.gguf" "$text"
exit "$failed"
