#!/usr/bin/env bash
# Measures a model on two GPUs against one: docs/perf/devices.md.
#
#   docs/perf/devices.sh NSTF API OUT [CASES_TEST] [EXEC_TEST]
#
# NSTF is the program, API hip or cuda, OUT a file for the results. CASES_TEST and EXEC_TEST are go test -c of
# ./runtime/gpu/conformance and ./runtime/exec, to be run on both devices first ("": not). A model of 4.5 GB is made
# under $TMPDIR.
set -uo pipefail
nstf=$(realpath "${1:?nstf}") api=${2:?hip or cuda} out=$(realpath "${3:?file for the results}") cases=${4:-} tests=${5:-}
here=$(cd "$(dirname "$0")" && pwd)
model=${TMPDIR:-/tmp}/8b.gguf
"$here/machine.sh" "$nstf" >"$out" 2>&1
exec >>"$out" 2>&1
[ -z "$cases" ] || (cd "$here/../../runtime/gpu/conformance" && "$(realpath "$cases")" -test.run Exchange -device "$api" -test.v | grep -E '^ *(---|FAIL|PASS)')
[ -z "$tests" ] || (cd "$here/../../runtime/exec" && env -u NSTF_SHARED "$(realpath "$tests")" -test.short -test.run 'Team|TwoDevices' -device "$api" -kernels "${TMPDIR:-/tmp}/kernels" -test.v | grep -E '^ *(---|FAIL|PASS|team)')
[ -f "$model" ] || "$nstf" dev generate --shape 8b --blocks -o "$model" >/dev/null
both=$api:0,$api:1
"$nstf" place "$model" --device "$both" --ctx 4096
for how in "--device $api:0" "--device $both --split tensor" "--device $both --split layers"; do
  echo "== $how"
  # shellcheck disable=SC2086
  "$nstf" bench "$model" --prompt 2048 --gen 128 --repeat 3 $how
done
half=$(mktemp)
echo "{\"ranges\":[{\"device\":\"$api:0\",\"lo\":0,\"hi\":16},{\"device\":\"$api:1\",\"lo\":16,\"hi\":32}]}" >"$half"
echo '== 16 blocks on each'
"$nstf" bench "$model" --prompt 2048 --gen 128 --repeat 3 --place "$half"
rm "$half"
