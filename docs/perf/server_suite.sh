#!/usr/bin/env bash
# Points the tests that llama.cpp has of its server (tools/server/tests, in the source of llama-cpp-python 0.3.36) at
# `nstf serve`, with our model in place of theirs: docs/perf/server_suite.sh NSTF [PYTEST ARGUMENTS]. Needs PyPI.
set -euo pipefail
cd "$(dirname "$0")/../.."
nstf=$(realpath "$1")
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pytest pytest-timeout filelock numpy openai prometheus-client requests wget aiohttp scikit-build-core
# pip asks the package for its name before it hands out the archive; nothing is compiled.
"$work/venv/bin/pip" download -q --no-deps --no-build-isolation --no-binary :all: -d "$work" llama-cpp-python==0.3.36
tar xzf "$work/llama_cpp_python-0.3.36.tar.gz" -C "$work"
export VENDOR=$work/llama_cpp_python-0.3.36/vendor/llama.cpp NSTF=$nstf MODEL_HF=$PWD/testdata/demo/model MODEL=$work/demo.gguf
export LLAMA_SERVER_BIN_PATH=$PWD/docs/perf/server_suite_shim.py PORT=${PORT:-18080}
"$nstf" export "$MODEL_HF" -o "$MODEL"
cd "$VENDOR/tools/server/tests"
"$work/venv/bin/python" -m pytest -q -m "not slow" --timeout 60 -rfE "$@" unit
