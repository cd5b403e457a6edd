#!/usr/bin/env bash
# Compares renders of chat templates in circulation, and of templates made at random, with those of transformers,
# and times the attacks on the evaluator. docs/perf/templates.md says what came out.
#
#   docs/perf/templates.sh [DIR]
#
# DIR (a temporary one by default) gets a Python environment with transformers, and llama.cpp's models/templates out
# of the source package of llama-cpp-python, all from PyPI. Prints the hash of each template and the counts.
set -euo pipefail
dir=$(realpath -m "${1:-$(mktemp -d)}") here=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$dir/shared/templates"
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q transformers==5.23.0 jinja2==3.1.6 numpy packaging
"$dir/venv/bin/pip" download -q --no-binary :all: --no-deps -d "$dir" "llama-cpp-python==${LLAMA_CPP_PYTHON:-0.3.36}"
tar -xzf "$dir"/llama_cpp_python-*.tar.gz -C "$dir/shared/templates" --wildcards --strip-components=5 '*/vendor/llama.cpp/models/templates/*.jinja'
"$dir/venv/bin/python" "$here/testdata/tokenizer/templates/render.py" "$dir/shared/templates" "$dir/shared/templates/goldens.json" 2>/dev/null
"$dir/venv/bin/python" -W ignore "$here/testdata/jinja/wild.py" "${WILD:-10000}" "${SEED:-1}" 2>/dev/null >"$dir/shared/templates/wild.json"
(cd "$dir/shared/templates" && sha256sum -- *.jinja)
cd "$here"
NSTF_SHARED=$dir/shared CGO_ENABLED=0 go test ./formats/tokenizer -count 1 -run TestForeignTemplates -v
NSTF_SHARED=$dir/shared CGO_ENABLED=0 go test ./formats/jinja -count 1 -v
