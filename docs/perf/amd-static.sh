#!/usr/bin/env bash
# Writes docs/perf/amd-static.md: what AMD's compiler makes of every kernel of the table, for seven targets,
# and what products execute for a weight. It needs no GPU: Debian with Go and what .ci/gpu installs.
#
#   docs/perf/amd-static.sh [FOLDER]     FOLDER keeps the emulator and the raw results
set -euo pipefail
work=${1:-$(mktemp -d)}
mkdir -p "$work"
work=$(realpath "$work")
cd "$(dirname "$0")/../.."
export CGO_ENABLED=0 GPU_WORK=$work AMDEMU_CACHE=$work/compiled
.ci/gpu prepare
make -s -C kernels/amdemu -j"$(nproc)" BUILD="$work/amdemu" LIB="$work/lib" all
go test -c -o "$work/static.test" ./kernels/hip/static
report() { (cd kernels/hip/static && LD_LIBRARY_PATH="$work/lib" "$work/static.test" -out "$work" "$@"); }
failed=0 # budgets that do not hold are in the page, and in the exit code
report -test.run Resources -all -targets gfx908,gfx90a,gfx942,gfx1030,gfx1100,gfx1201 || failed=1
if [ -x /usr/bin/clang-22 ]; then
  AMDEMU_CLANG=/usr/bin/clang-22 report -test.run Resources -all -targets gfx950 || failed=1
fi
for arch in gfx1100 gfx942; do
  AMDEMU_ARCH=$arch AMDEMU_PROFILE=$work/profile AMDEMU_FILL=0 report -test.run Executed -profile "$work/profile"
done
report -test.run Report -report "$PWD/docs/perf/amd-static.md"
exit $failed
