#!/bin/sh
# What prompts lose and gain whose blocks of queries read some pages of keys and values, as JSON
# lines: long-llama on held-out books and documents and on its questions, and times of rows and
# of whole prompts on one thread. NSTF: the program; SHARED: the folder with the trained models
# and texts; ATTENTION: a file of nstf calibrate --attention; MODEL: a model of the 1.1 B shape
# (nstf dev generate --shape 1.1b --layers 3 --blocks --ctx 131072 -o MODEL); TMP: room for ids.
set -e
cd "$(dirname "$0")/../.."
export NSTF_SHARED="$SHARED" ATTENTION
bench() {
	go test ./runtime/exec -run xxx -bench "PolicyPrompt$1\$" -benchtime 1x | grep '^{'
}
for text in eval_book eval_docs; do
	python3 -c 'import json, sys; print("\n".join(json.loads(line)["text"] for line in sys.stdin), end="")' <"$SHARED/text/$text.jsonl" >"$TMP/$text.txt"
	"$NSTF" tokenize "$SHARED/models/long-llama" -f "$TMP/$text.txt" --ids --no-special >"$TMP/$text.json"
	TEXT=$TMP/$text.json PAGES=0.1,0.2,0.3 bench ''
done
LENGTH=4096 PAGES=0.05,0.1,0.2 bench Needles
LENGTH=8192 CASES=16 PAGES=0.1,0.2 bench Needles
LENGTH=16384 CASES=8 PAGES=0.1,0.2 bench Needles
export THREADS=1 PAGES=0.1,0.2,0.3
KL=0 TEXT=$TMP/eval_book.json bench ''
BEHIND=65536 MODEL=$MODEL bench Rows
unset ATTENTION
KL=0 MODEL=$MODEL bench ''
