#!/usr/bin/env bash
# One and eight requests at once over HTTP, of this server and llama.cpp's in turns, two threads each:
#   docs/perf/server_peer.sh NSTF LLAMA-SERVER MODEL.gguf REQUESTS1 REQUESTS8 ROUNDS > RESULT.jsonl
# Prompts of 16 made-up tokens, answers of 96, each server with its own usual settings of sampling.
set -euo pipefail
nstf=$1 llama=$2 model=$3 one=$4 eight=$5 rounds=$6
"$nstf" serve "$model" --listen 127.0.0.1:9101 --device cpu --threads 2 --parallel 8 --ctx 512 2> /dev/null & a=$!
"$llama" -m "$model" --port 9102 -t 2 -tb 2 -np 8 -c 4096 --no-ui > /dev/null 2>&1 & b=$!
trap 'kill $a $b' EXIT
for url in 127.0.0.1:9101/ready 127.0.0.1:9102/health; do
  until curl -sf "$url" > /dev/null; do sleep 0.5; done
done
for _ in $(seq "$rounds"); do
  for n in 1 8; do
    for server in nstf:9101 llama-server:9102; do
      [ "$n" = 1 ] && requests=$one || requests=$eight
      figures=$("$nstf" bench --server "http://127.0.0.1:${server#*:}" --concurrency "$n" --requests "$requests" --prompt 16 --gen 96 --json 2> /dev/null | tr -d '\n ') || true
      echo "{\"model\":\"$(basename "$model")\",\"server\":\"${server%:*}\",\"load\":$(cut -d' ' -f1 /proc/loadavg),\"figures\":$figures}"
    done
  done
done
