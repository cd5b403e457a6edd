#!/bin/sh
# How fast a GPU decodes behind long contexts that reads all pages, and a tenth of them: a block's
# attention by itself and launch by launch, then an 8 B model of random q4_k blocks (5 GB, with 17 GB of keys
# and values in 16 bits behind 131,072 positions). Steps that read all, one in 128, count.
#
#   docs/perf/attention-gpu.sh NSTF DEVICE OUT CASES_TEST
#
# NSTF is the program, DEVICE hip or cuda, OUT a folder for the results, CASES_TEST the kernels' cases, built by
# go test -c ./runtime/gpu/conformance. The model is made under $TMPDIR (5 GiB).
set -eu
nstf=$(realpath "$1") device=$2 out=$3 cases=$(realpath "$4")
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
"$here/machine.sh" "$nstf" >"$out/attention-machine.json"
(cd "$here/../../runtime/gpu/conformance" && "$cases" -device "$device" -test.run xxx -test.bench 'Follow/' -test.benchtime 1x) >"$out/attention-follow.txt"
model=${TMPDIR:-/tmp}/nstf-8b.gguf
[ -e "$model" ] || "$nstf" dev generate --shape 8b --blocks -o "$model"
for depth in 4096 65536 131072; do
	for kv in f16 q4; do
		for kind in dense policy; do
			"$nstf" bench "$model" --device "$device" --prompt 0 --gen 256 --depth $depth --repeat 3 --kv $kv --attention $kind --json >"$out/attention-$depth-$kv-$kind.json"
		done
	done
done
