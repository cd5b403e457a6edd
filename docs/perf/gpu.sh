#!/usr/bin/env bash
# Measures an NVIDIA or AMD GPU: are whole models right, and how fast are they?
#
#   docs/perf/gpu.sh NSTF DEVICE OUT [LLAMA_BENCH] [EXEC_TEST] [CASES_TEST] [PARTS]
#
# NSTF is the program, DEVICE hip or cuda, OUT a folder for the results. LLAMA_BENCH, llama.cpp's
# tool of that name built for the same GPU, runs the same files ("": not). EXEC_TEST is runtime/exec's
# tests, built by go test -c ./runtime/exec, to be run on the device ("": not). CASES_TEST is the kernels'
# cases, built by go test -c ./runtime/gpu/conformance: they run on the device and, where NVIDIA's
# compute-sanitizer is in PATH, once more under its memcheck and its racecheck. PARTS is tests, speed
# or both (tests,speed). Models of random q4_k
# blocks in two shapes are made under $TMPDIR (5 GiB). Where NSTF_SHARED names the folder with the
# trained models, their greedy continuations are compared with the processor's.
set -uo pipefail
nstf=$(realpath "${1:?nstf}") device=${2:?hip or cuda} out=${3:?folder for results} llama=${4:-} tests=${5:-} cases=${6:-} parts=${7:-tests,speed}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
tmp=${TMPDIR:-/tmp}/nstf-gpu
mkdir -p "$tmp"
"$here/machine.sh" "$nstf" >"$out/machine.json" 2>&1
"$nstf" doctor >"$out/doctor.txt" 2>&1

correctness() {
  if [ -n "$tests" ]; then
    tests=$(realpath "$tests")
    (cd "$here/../../runtime/exec" && env -u NSTF_SHARED timeout 300 "$tests" -device "$device" -kernels "$tmp/kernels" -test.v) >"$out/exec.txt" 2>&1
    grep -E '^(---|FAIL|ok|PASS|panic)' "$out/exec.txt"
  fi

  if [ -n "$cases" ]; then
    cases=$(realpath "$cases")
    on_cases() { (cd "$here/../../runtime/gpu/conformance" && timeout 420 "$@"); }
    sanitize() { # TOOL: under it kernels are ten times as slow and more, so every other case
      on_cases compute-sanitizer --tool "$1" --error-exitcode 9 "$cases" -device cuda -test.short -half 0 -test.v >"$out/$1.txt" 2>&1
      printf '%s: exit status %d, %d tests passed; %s\n' "$1" $? "$(grep -c '^--- PASS' "$out/$1.txt")" "$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$out/$1.txt" | tail -n 1)"
    }
    if [ "$device" = cuda ] && command -v compute-sanitizer >/dev/null; then
      for tool in memcheck racecheck; do sanitize $tool >"$out/sanitizer-$tool.txt" & done
    fi
    on_cases "$cases" -device "$device" -test.v >"$out/cases.txt" 2>&1
    grep -E '^(---|FAIL|ok|PASS|panic)' "$out/cases.txt"
    wait
    cat "$out"/sanitizer-*.txt 2>/dev/null
  fi

  # Greedy continuations: the same on both devices with --exact.
  if [ -d "${NSTF_SHARED:-}/models" ]; then
    for model in "$NSTF_SHARED"/models/*; do
      for prompt in "The quick brown fox" "Once upon a time there was a little girl"; do
        for d in cpu "$device"; do
          timeout 60 "$nstf" run "$model" --device "$d" --exact --greedy --max-tokens 40 -p "$prompt" >"$tmp/$d.txt" 2>"$tmp/$d.err" || cat "$tmp/$d.err"
        done
        if cmp -s "$tmp/cpu.txt" "$tmp/$device.txt"; then echo "same: $(basename "$model"), $prompt"; else echo "DIFFERENT: $(basename "$model"), $prompt"; fi
      done
    done | tee "$out/greedy.txt"
  fi
}

speed() {
  for shape in 1.1b 8b; do
    model=$tmp/$shape.gguf
    [ -f "$model" ] || "$nstf" dev generate --shape $shape --blocks -o "$model"
    "$nstf" bench "$model" --device "$device" --prompt 2048 --gen 256 --repeat 3 --profile --json >"$out/bench-$shape.json" 2>"$out/bench-$shape.err"
    "$nstf" bench "$model" --device "$device" --prompt 0 --gen 128 --depth 4096 --repeat 3 --json >"$out/bench-$shape-deep.json" 2>>"$out/bench-$shape.err"
    # The first token of a process: with compiled kernels at hand, and without.
    cache=$tmp/cache-$shape
    rm -rf "$cache"
    for start in cold warm warm; do
      began=$(date +%s.%N)
      XDG_CACHE_HOME=$cache "$nstf" run "$model" --device "$device" -p Hello --greedy --max-tokens 1 >/dev/null 2>&1
      printf '{"shape": "%s", "start": "%s", "first_token_s": %.3f}\n' $shape $start "$(awk "BEGIN { print $(date +%s.%N) - $began }")"
    done | tee "$out/start-$shape.json"
    [ -z "$llama" ] || "$llama" -m "$model" -ngl 99 -fa 1 -p 2048 -n 128 -o json >"$out/llama-$shape.json" 2>"$out/llama-$shape.err"
  done

  # What a person wants to see of it.
  for f in "$out"/bench-*.json; do
    echo "== $(basename "$f")"
    grep -E '"(median|share|us|name|load_s)"' "$f" | tr -d '\n' | sed 's/"name"/\n  "name"/g; s/  */ /g' | cut -c1-220 | head -40
    echo
  done
  if [ -n "$llama" ]; then grep -E '"(avg_ts|n_prompt|n_gen|model_filename)"' "$out"/llama-*.json; fi
}

case $parts in *tests*) correctness ;; esac
case $parts in *speed*) speed ;; esac
