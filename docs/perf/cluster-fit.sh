#!/usr/bin/env bash
# How much faster four processes of four cores fit a block of the 1.1 B shape than one of them does, on one machine of
# 16 cores and one work folder: docs/cluster.md. Between the two it has four processes do so at once that share nothing:
# what the machine itself loses to four. It ends within four minutes.
#
#   docs/perf/cluster-fit.sh NSTF OUT [CORES]
#
# NSTF is the program, OUT a file for the results, CORES those of a process (4). Model, packages and work folder lie
# under $TMPDIR. Seconds are those of date +%s.%N; lines of a process come with the second of its start.
set -euo pipefail
nstf=$(realpath "${1:?nstf}") out=$(realpath "${2:?file for the results}") cores=${3:-4}
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$here/machine.sh" "$nstf" >"$out" 2>&1 || true
"$nstf" dev generate --shape 1.1b --layers 1 --vocab 1536 -o "$dir/model" >/dev/null 2>&1
flags=(quantize "$dir/model" --scheme tcq3 --effort 1 --ctx 256 --samples 36 --device cpu -t "$cores")
echo "FLAGS: ${flags[*]}" | sed "s:$dir/::g" >>"$out"
TIMEFORMAT='%R real %U user %S sys'

# run FIRST NAME FLAG...: a process on the cores from FIRST on. What it says goes to NAME.
run() {
  local first=$1 name=$2 began
  shift 2
  began=$(date +%s.%N)
  {
    echo "== $name: taskset -c $first-$((first + cores - 1)) nstf FLAGS $*"
    echo "$began begins"
    { time timeout 100 taskset -c "$first-$((first + cores - 1))" "$nstf" "${flags[@]}" "$@" 2>&1 || echo "exit $?"; } 2>&1 |
      while IFS= read -r line; do echo "$(date +%s.%N | awk -v b="$began" '{ printf "%7.2f", $1 - b }') $line"; done
    echo "$(date +%s.%N) ends"
  } | sed "s:$dir/::g" >"$dir/$name.log"
}

# watch lists files of the work folder when they are first seen: second, bytes, name.
watch() {
  while [ ! -e "$dir/done" ]; do
    find "$dir/work" -type f ! -name '*.tmp-*' -printf '%T@ %s %f\n' 2>/dev/null >>"$dir/seen" || true
    sleep 0.1
  done
}

run 0 one -o "$dir/one.nstf"
for i in 0 1 2 3; do run $((i * cores)) "beside$i" -o "$dir/beside$i.nstf" & done
wait
watch &
for i in 0 1 2 3; do run $((i * cores)) "shard$i" --shard "$i/4" --work "$dir/work" & done
wait $(jobs -p | tail -4)
touch "$dir/done"
wait
cat "$dir"/one.log "$dir"/shard?.log >>"$out"
{
  echo "== files of the work folder: second, bytes, name"
  awk '!seen[$3]++' "$dir/seen" | sort -n
  "$nstf" "${flags[@]}" --merge --work "$dir/work" -o "$dir/merged.nstf" >/dev/null 2>&1 || echo "the merge failed"
  cmp "$dir/one.nstf" "$dir/merged.nstf" && echo "== the package has the bytes of one process"
  # fit LOG...: seconds from where the first begins to fit, which its first line says, to where the last has ended
  fit() {
    awk '/ begins$/ { at = $1; n = 0 }
      / fitting: / && !n++ { match($0, /[0-9.]+ s (ago|so far)/); t = at + $1 - substr($0, RSTART); if (b == "" || t < b) b = t }
      / fitting: (done|ended)/ && at + $1 > e { e = at + $1 }
      END { printf "%.2f", e - b }' "$@"
  }
  one=$(fit "$dir/one.log") shards=$(fit "$dir"/shard?.log)
  echo "== seconds of fitting: one $one, each of four that share nothing $(for i in 0 1 2 3; do fit "$dir/beside$i.log"; echo -n ' '; done), four shards $shards"
  echo "== four shards fit $(awk -v a="$one" -v b="$shards" 'BEGIN { printf "%.2f", a / b }') times as fast as one"
} >>"$out" 2>&1
tail -3 "$out"
