#!/bin/sh
# How fast a GPU decodes by the policy where pages of keys and values lie in the host's memory: an 8 B model of random
# q4_k blocks (5 GB, with 8 GiB of keys and values in 16 bits behind 65,536 positions), once each. Behind 65,536 with
# all pages on the card, and with three quarters of them in the host's memory; behind 131,072 on a card that gives
# CARD GiB (12), which have no room for it. The lines that say what lies where are in the .txt beside each result.
#
#   docs/perf/hostpages.sh NSTF DEVICE OUT
#
# NSTF is the program, DEVICE hip:N or cuda:N, OUT a folder for the results. The model is made under $TMPDIR (5 GiB).
set -eu
nstf=$(realpath "$1") device=$2 out=$3
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
case $device in *:*) ;; *) device=$device:0 ;; esac
"$here/machine.sh" "$nstf" >"$out/hostpages-machine.json"
model=${TMPDIR:-/tmp}/nstf-8b.gguf
[ -e "$model" ] || "$nstf" dev generate --shape 8b --blocks -o "$model"
bench() { # NAME DEPTH FLAG...
	name=$1 depth=$2
	shift 2
	"$nstf" bench "$model" --device "$device" --prompt 0 --gen 256 --depth "$depth" --repeat 1 --kv f16 --attention policy "$@" --json >"$out/hostpages-$depth-$name.json" 2>"$out/hostpages-$depth-$name.txt"
	cat "$out/hostpages-$depth-$name.txt"
}
# What the weights take, in MiB, by the line that names the device.
weights() { sed -n 's/.*; weights \([0-9.]*\) \([GM]\)iB, .*/\1 \2/p' "$1" | awk '{ printf "%d", $2 == "G" ? 1024 * $1 : $1 }'; }
bench card 65536
w=$(weights "$out/hostpages-65536-card.txt")
# A quarter of the pages is 2 GiB; summaries of all take 0.2, and the work space of 2,048 rows 0.9.
bench quarter 65536 --kv-host 16GiB --memory "$device=$((w + 2048 + 200 + 950))MiB"
bench "${CARD:-12}GiB" 131072 --kv-host 24GiB --memory "$device=$((1024 * ${CARD:-12}))MiB"
