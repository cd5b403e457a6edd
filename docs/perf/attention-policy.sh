#!/bin/sh
# What steps lose that read some pages of keys and values, as JSON lines: long-llama on
# held-out books and documents and on its questions, with what others choose beside it, and
# times. NSTF: the program; SHARED: the folder with the trained models and texts; ATTENTION: a
# file of nstf calibrate --attention; MODEL: a model of the 1.1 B shape for times (nstf dev
# generate --shape 1.1b --blocks --ctx 32768 -o MODEL); TMP: room for token ids.
set -e
cd "$(dirname "$0")/../.."
export NSTF_SHARED="$SHARED" ATTENTION MODEL
bench() {
	go test ./runtime/exec -run xxx -bench "Policy$1" -benchtime 1x | grep '^{'
}
for text in eval_book eval_docs; do
	python3 -c 'import json, sys; print("\n".join(json.loads(line)["text"] for line in sys.stdin), end="")' <"$SHARED/text/$text.jsonl" >"$TMP/$text.txt"
	"$NSTF" tokenize "$SHARED/models/long-llama" -f "$TMP/$text.txt" --ids --no-special >"$TMP/$text.json"
	TEXT=$TMP/$text.json WINDOWS=4 PAGES=0.1,0.2,0.3 bench Quality
done
for length in 4096 8192 16384; do
	LENGTH=$length METHODS=policy PAGES=0.05,0.1,0.2,0.3 bench Needles
done
PAGES=0.05,0.1,0.2,0.3,0.5 bench Step
