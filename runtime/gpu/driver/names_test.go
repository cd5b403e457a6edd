package driver

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
)

func TestGeneration(t *testing.T) {
	for path, want := range map[string]string{
		"/opt/rocm-6.3.2/lib/libamdhip64.so.6.3.60302": "6", "libhiprtc.so.7": "7", "libamdhip64.so": "",
		"amdhip64_6.dll": "6", "amdhip64.dll": "5", "hiprtc0602.dll": "6", "hiprtc0507.dll": "5", "hiprtc1001.dll": "10", "hiprtc.dll": "", "": "",
	} {
		if got := Generation(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

// TestCandidates: named folders first, then the loader's path, then the usual
// places; of the compilers first the one of the runtime's generation.
func TestCandidates(t *testing.T) {
	dir := t.TempDir()
	lib := filepath.Join(dir, "rocm-6.3", "lib")
	if err := os.MkdirAll(lib, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"libamdhip64.so.6", "libhiprtc.so.6", "libhiprtc.so.5"} {
		if err := os.WriteFile(filepath.Join(lib, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	n := hipLinux
	n.roots = nil
	got := n.candidates(Options{Paths: []string{"/named", filepath.Join(lib, "libamdhip64.so.6")}, Roots: []string{filepath.Join(dir, "rocm-*")}})
	want := []string{"/named/libamdhip64.so.9", filepath.Join(lib, "libamdhip64.so.6"), "libamdhip64.so.9", "libamdhip64.so", filepath.Join(lib, "libamdhip64.so.6")}
	at := 0
	for _, name := range got {
		if at < len(want) && name == filepath.FromSlash(want[at]) {
			at++
		}
	}
	if at != len(want) {
		t.Errorf("%q lacks %q, or has it elsewhere", got, want[at])
	}
	compilers := compilerNames(Options{API: hip.HIP, Only: true}, filepath.Join(lib, "libamdhip64.so.5.7.31921"), 0)
	if compilers[0] != filepath.Join(lib, "libhiprtc.so.5") || compilers[len(compilers)-1] != filepath.Join(lib, "libamdhip64.so.5.7.31921") {
		t.Errorf("%q", compilers)
	}
	if names := compilerNames(Options{API: hip.CUDA}, "", 12); names[0] != "libnvrtc.so.12" || !slices.Contains(names, "libnvrtc.so.13") {
		t.Errorf("%q", names)
	}
}

// TestArchOf reads both layouts, and one that nobody knows.
func TestArchOf(t *testing.T) {
	for name, c := range map[string]struct {
		symbol string
		offset int
		arch   string
		want   string
	}{
		"new":      {"hipGetDevicePropertiesR0600", archOffsetR0600, "gfx90a:sramecc+:xnack-", "gfx90a"},
		"old":      {"hipGetDeviceProperties", archOffsetR0000, "gfx1100", "gfx1100"},
		"shifted":  {"hipGetDevicePropertiesR0600", 1300, "gfx1201", "gfx1201"},
		"absent":   {"hipGetDevicePropertiesR0600", 1300, "", ""},
		"no digit": {"hipGetDevicePropertiesR0600", archOffsetR0600, "gfx", ""},
	} {
		p := make([]byte, propertiesSize)
		copy(p, "AMD gfx1036 Graphics")
		copy(p[c.offset:], c.arch)
		if got := archOf(p, c.symbol); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
