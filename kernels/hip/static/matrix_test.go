package static

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
)

var clangFlag = flag.String("clang", "", "compiler that TestMatrixUnits asks what architectures have")

// matrixForms are functions that a compiler refuses for an architecture without
// the instruction that they name.
var matrixForms = map[hip.MatrixUnit]string{
	hip.MFMA:   `sums t(half4 a, half4 b, sums c) { return __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0); }`,
	hip.WMMA11: `sums8 t(half16 a, half16 b, sums8 c) { return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c); }`,
	hip.WMMA12: `sums8 t(half8 a, half8 b, sums8 c) { return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c); }`,
}

const matrixTypes = `
typedef _Float16 half4 __attribute__((ext_vector_type(4)));
typedef _Float16 half8 __attribute__((ext_vector_type(8)));
typedef _Float16 half16 __attribute__((ext_vector_type(16)));
typedef float sums __attribute__((ext_vector_type(4)));
typedef float sums8 __attribute__((ext_vector_type(8)));
`

// TestMatrixUnits: every architecture that a compiler knows has the matrix
// instructions that hip.Target says, and none of the other forms.
func TestMatrixUnits(t *testing.T) {
	if *clangFlag == "" {
		t.Skip("no -clang")
	}
	out, err := exec.Command(*clangFlag, "--target=amdgcn-amd-amdhsa", "-nogpulib", "-print-supported-cpus").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	archs := regexp.MustCompile(`gfx[0-9a-f]+\b`).FindAllString(string(out), -1)
	archs = slices.DeleteFunc(archs, func(a string) bool { return len(a) == len("gfx600") && a < "gfx900" || len(a) < len("gfx900") })
	if !slices.Contains(archs, "gfx90a") || !slices.Contains(archs, "gfx1100") {
		t.Fatalf("%s knows %v", *clangFlag, archs)
	}
	dir := t.TempDir()
	for unit, text := range matrixForms {
		if err := os.WriteFile(filepath.Join(dir, string(unit)+".c"), []byte(matrixTypes+text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, arch := range archs {
		target, err := hip.ParseTarget(arch)
		if err != nil {
			t.Fatal(err)
		}
		for unit := range matrixForms {
			c := exec.Command(*clangFlag, "--target=amdgcn-amd-amdhsa", "-mcpu="+arch, "-nogpulib", "-S", "-o", os.DevNull, filepath.Join(dir, string(unit)+".c"))
			if has, want := c.Run() == nil, target.Matrix() == unit; has != want {
				t.Errorf("%s: the compiler has %s: %v, the table says %s", arch, unit, has, target.Matrix())
			}
		}
	}
	t.Logf("%d architectures", len(archs))
}
