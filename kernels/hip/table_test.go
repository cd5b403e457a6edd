package hip

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
)

// TestKernelsComplete walks the sources: every file with a kernel is in the
// table, every scheme's file is read by one, and names are given once.
func TestKernelsComplete(t *testing.T) {
	for _, arch := range []string{"gfx1100", "gfx90a", "sm_90"} {
		target, err := ParseTarget(arch)
		if err != nil {
			t.Fatal(err)
		}
		names, files, schemes := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for _, k := range Kernels(target) {
			if names[k.Name] {
				t.Errorf("%s: two kernels are called %s", arch, k.Name)
			}
			names[k.Name], files[k.Call.Unit.File] = true, true
			schemes[k.Call.Unit.Define("NSTF_SCHEME")] = true
			if k.Budget.Registers == 0 || k.Budget.LDS == 0 || strings.HasPrefix(k.Name, "matvec") && (k.Product == nil || k.BytesPerWeight == 0) {
				t.Errorf("%s: %+v", k.Name, k)
			}
			if int(k.Call.LDS) > k.Budget.LDS {
				t.Errorf("%s: %s takes %d bytes of dynamic LDS, %d are allowed", arch, k.Name, k.Call.LDS, k.Budget.LDS)
			}
			if !strings.Contains(k.Call.Unit.Source(), "NSTF_KERNEL") {
				t.Errorf("%s: no kernel in %v", k.Name, k.Call.Unit)
			}
		}
		all, err := fs.Glob(sources, "*.hip")
		if err != nil || len(all) == 0 {
			t.Fatalf("no sources: %v", err)
		}
		for _, name := range all {
			text, err := sources.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if name == "matrowsraw.hip" && target.Matrix() != MMA {
				continue // a kernel for that unit alone
			}
			if strings.Contains(string(text), "\nNSTF_KERNEL") && !files[name] && name != "empty.hip" {
				t.Errorf("%s: %s has a kernel that is not in the table", arch, name)
			}
		}
		for _, s := range scheme.Table() {
			if s.BlockBytes > 0 && !schemes[s.Basename()] {
				t.Errorf("%s: no kernel of the table reads %s", arch, s.Name)
			}
		}
	}
}
