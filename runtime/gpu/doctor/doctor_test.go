package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// system writes files below a new root: a machine as Linux shows it.
func system(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// A Radeon RX 7900 XTX beside the processor, as /sys shows them.
var navi31 = map[string]string{
	"sys/class/kfd/kfd/topology/nodes/0/properties":             "cpu_cores_count 16\nsimd_count 0\ngfx_target_version 0\n",
	"sys/class/kfd/kfd/topology/nodes/1/properties":             "cpu_cores_count 0\nsimd_count 192\nsimd_per_cu 2\ngfx_target_version 110000\nlocal_mem_size 0\n",
	"sys/class/kfd/kfd/topology/nodes/1/name":                   "navi31\n",
	"sys/class/kfd/kfd/topology/nodes/1/mem_banks/0/properties": "heap_type 1\nsize_in_bytes 25753026560\n",
	"dev/kfd":            "",
	"dev/dri/renderD128": "",
}

func TestCards(t *testing.T) {
	got := cards(system(t, navi31))
	want := []Card{{Node: "1", Arch: "gfx1100", Name: "navi31", Units: 96, Memory: 25753026560}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for version, want := range map[int64]string{90010: "gfx90a", 90402: "gfx942", 90500: "gfx950", 100300: "gfx1030", 110501: "gfx1151", 120001: "gfx1201", 90012: "gfx90c", 110700: "gfx1170", 120500: "gfx1250"} {
		if got := archOf(version); got != want {
			t.Errorf("%d is %s, want %s", version, got, want)
		}
	}
}

// device is one that works.
func device(arch string) Device {
	d := Device{Test: "ok"}
	d.Target = hip.Target{API: hip.HIP, Arch: arch}
	return d
}

// amd is a report on a machine with a runtime and a card.
func amd(change func(*Report, *API)) *Report {
	r := &Report{Environment: map[string]string{}, Cards: []Card{{Arch: "gfx1100"}}, APIs: []API{{
		API: hip.HIP, Runtime: "/opt/rocm/lib/libamdhip64.so.6.3.60302", Compiler: "/opt/rocm/lib/libhiprtc.so.6.3.60302", Version: "6.3.42134",
		Devices: []Device{device("gfx1100")},
	}, {API: hip.CUDA, Missing: true, Error: "not found"}}}
	change(r, &r.APIs[0])
	return r
}

// TestFindings: each thing that is in the way is found, by itself, and says
// what to do.
func TestFindings(t *testing.T) {
	refused := func(string) error { return fs.ErrPermission }
	root := system(t, navi31)
	for name, c := range map[string]struct {
		change  func(*Report, *API)
		problem string // "": nothing is in the way
		remedy  string
	}{
		"fine":       {func(*Report, *API) {}, "", ""},
		"no card":    {func(r *Report, a *API) { r.Cards, *a = nil, API{API: hip.HIP, Missing: true, Error: "not found"} }, "", ""},
		"no runtime": {func(r *Report, a *API) { *a = API{API: hip.HIP, Missing: true, Error: "not found"} }, "gfx1100 here, and no ROCm runtime", "docs/gpu.md"},
		"permission": {func(r *Report, a *API) { r.Nodes, a.Devices, a.Error = driver.Nodes(root, refused), nil, "no device" }, "no permission for", "usermod"},
		"no driver":  {func(r *Report, a *API) { r.Cards, r.Nodes, a.Devices = nil, driver.Nodes(t.TempDir(), refused), nil }, "does not exist", "amdgpu"},
		"hidden": {func(r *Report, a *API) { a.Devices = nil; r.Environment["HIP_VISIBLE_DEVICES"] = "-1" },
			`HIP_VISIBLE_DEVICES="-1" hides`, "unset"},
		"old ROCm hides RDNA 4":  {func(r *Report, a *API) { r.Cards[0].Arch, a.Devices = "gfx1201", nil }, "lists a gfx1201", "ROCm 6.4 or newer"},
		"runtime without an APU": {func(r *Report, a *API) { r.Cards = append(r.Cards, Card{Arch: "gfx1036"}) }, "lists a gfx1036", "HSA_OVERRIDE_GFX_VERSION=10.3.0"},
		"little memory": {func(r *Report, a *API) {
			a.Devices[0].Integrated, a.Devices[0].Memory, a.Devices[0].Shared = true, 512<<20, 1<<30
		}, "has 1.5 GiB", "gttsize"},
		"override by number": {func(r *Report, a *API) {
			r.Environment["HSA_OVERRIDE_GFX_VERSION"], a.Version, r.Cards[0].Arch, a.Devices[0] = "11.0.0", "10.0.0", "gfx1170", device("gfx1170")
		}, "take a gfx1170 for a gfx1100", "unset"},
		"wrong override": {func(r *Report, a *API) { r.Environment["HSA_OVERRIDE_GFX_VERSION"] = "10.3.0" }, "take a gfx1100 for a gfx1030", "unset"},
		"kin's override": {func(r *Report, a *API) {
			r.Environment["HSA_OVERRIDE_GFX_VERSION"], r.Cards[0].Arch, a.Devices[0] = "10.3.0", "gfx1031", device("gfx1030")
		}, "", ""},
		"odd override": {func(r *Report, a *API) { r.Environment["HSA_OVERRIDE_GFX_VERSION"] = "gfx1100" }, "is no version", "10.3.0"},
		"ROCm 5 with RDNA 4": {func(r *Report, a *API) {
			a.Version, r.Cards[0].Arch, a.Devices[0] = "5.7.31921", "gfx1201", device("gfx1201")
		}, "ROCm knows from 6.4 on", "newer ROCm"},
		"other hiprtc": {func(r *Report, a *API) { a.Compiler = "/opt/rocm-5.7.1/lib/libhiprtc.so.5.7.50701" }, "different releases", "ROCM_PATH"},
		"no hiprtc": {func(r *Report, a *API) {
			a.Compiler = ""
			a.Devices[0].Test, a.Devices[0].Missing = "no compiler", true
		},
			"no compiler", "--build-kernels gfx1100"},
		"new NVRTC": {func(r *Report, a *API) {
			r.APIs[1] = API{API: hip.CUDA, Runtime: "libcuda.so.1", Version: "12.4", Compiler: "libnvrtc.so.13", Language: "13.0"}
		}, "NVRTC 13.0 is newer", "nvidia-cuda-nvrtc-cu12"},
		"broken":    {func(r *Report, a *API) { a.Devices[0].Test, a.Devices[0].Hint = "it was wrong", "report it" }, "hip:0 does not work: it was wrong", "report it"},
		"small APU": {func(r *Report, a *API) { a.Devices[0].Integrated, a.Devices[0].Memory = true, 512<<20 }, "0.5 GiB", "UMA"},
	} {
		t.Run(name, func(t *testing.T) {
			got := findings(amd(c.change))
			if c.problem == "" {
				if len(got) > 0 {
					t.Errorf("%+v", got)
				}
				return
			}
			if len(got) != 1 || !strings.Contains(got[0].Problem, c.problem) || !strings.Contains(got[0].Remedy, c.remedy) {
				t.Errorf("%+v, want %q with remedy %q", got, c.problem, c.remedy)
			}
		})
	}
}

// TestExamineNothing: a machine without libraries is a report, not an error.
func TestExamineNothing(t *testing.T) {
	r := Examine(Options{Root: system(t, navi31), Libraries: []string{t.TempDir()}, Only: true, OpenNode: func(string) error { return nil }})
	if len(r.APIs) != 2 || !r.APIs[0].Missing || r.APIs[0].Error == "" || len(r.APIs[0].Tried) == 0 || !r.APIs[1].Missing {
		t.Errorf("%+v", r.APIs)
	}
	if len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Problem, "no ROCm runtime") || len(r.Nodes) != 2 {
		t.Errorf("%+v", r)
	}
}

// TestExamine has each device here run the kernel.
func TestExamine(t *testing.T) {
	for _, api := range []hip.API{hip.HIP, hip.CUDA} {
		a := examineAPI(api, Options{Root: "/"})
		if len(a.Devices) == 0 {
			continue
		}
		for _, d := range a.Devices {
			if !d.Works() || d.Free <= 0 || d.Expect == "" {
				t.Errorf("%s: %+v", api, d)
			}
		}
		return
	}
	t.Skip("no device, and no emulated one")
}

// TestPage: the page for users names every architecture that the doctor knows.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/gpu.md")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the tests are run without the sources")
	}
	for _, f := range Families() {
		for _, arch := range f.Archs {
			if !strings.Contains(string(page), arch) {
				t.Errorf("docs/gpu.md does not name %s (%s)", arch, f.Cards)
			}
		}
	}
}
