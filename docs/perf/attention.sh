#!/bin/sh
# KL divergence of keys and values in fewer bits from 16, as JSON lines behind one
# that names the machine. NSTF: the program; SHARED: the folder with the trained models;
# TMP: room for references.
set -e
text=$SHARED/text/eval_book.jsonl
"$(dirname "$0")/machine.sh" "$NSTF"
for row in "base-llama 2048 8192" "long-llama 4096 16384"; do
	set -- $row
	model=$SHARED/models/$1 ref=$TMP/$1-$2.ref
	"$NSTF" eval "$model" --text "$text" --ctx "$2" --max-tokens "$3" --device cpu --exact --kv f16 --force --save-ref "$ref" > /dev/null 2>&1
	for kv in q8 q5 q4 q3; do
		printf '{"model":"%s","ctx":%s,"kv":"%s","eval":%s}\n' "$1" "$2" $kv "$("$NSTF" eval "$model" --text "$text" --ctx "$2" --max-tokens "$3" --device cpu --exact --kv $kv --ref "$ref" --json 2> /dev/null | tr -d ' \n')"
	done
done
