package driver

import (
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/nstf/nstf/kernels/hip"
)

// libraryNames are the names of one library on one system, and the folders in
// which it lies below an installation's root.
type libraryNames struct {
	names   []string // newest first; the last is what a message calls it
	folders []string // below a root
	roots   []string // patterns of usual roots
}

// The number in a soname of HIP's is not ROCm's: .so.7 serves ROCm 7 and 10. A
// number that does not exist yet costs nothing to ask for. The DLLs come with
// AMD's display driver (HIP) and with the HIP SDK (hiprtc, whose name carries
// the minor version, too).
var (
	hipLinux = libraryNames{
		names:   []string{"libamdhip64.so.9", "libamdhip64.so.8", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"},
		folders: []string{"lib", "lib64", "hip/lib"},
		roots:   []string{"/opt/rocm", "/opt/rocm/core", "/opt/rocm/core-*", "/opt/rocm-*"},
	}
	hipWindows = libraryNames{
		names:   []string{"amdhip64_9.dll", "amdhip64_8.dll", "amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"},
		folders: []string{"bin"},
		roots:   []string{`C:\Program Files\AMD\ROCm\*`},
	}
	hiprtcLinux = libraryNames{
		names:   []string{"libhiprtc.so.9", "libhiprtc.so.8", "libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so"},
		folders: hipLinux.folders,
		roots:   hipLinux.roots,
	}
	hiprtcWindows = libraryNames{
		names: []string{"hiprtc1001.dll", "hiprtc1000.dll", "hiprtc0800.dll",
			"hiprtc0714.dll", "hiprtc0713.dll", "hiprtc0712.dll", "hiprtc0711.dll", "hiprtc0710.dll", "hiprtc0709.dll",
			"hiprtc0703.dll", "hiprtc0702.dll", "hiprtc0701.dll", "hiprtc0700.dll",
			"hiprtc0605.dll", "hiprtc0604.dll", "hiprtc0603.dll", "hiprtc0602.dll", "hiprtc0601.dll", "hiprtc0600.dll",
			"hiprtc0507.dll", "hiprtc0506.dll", "hiprtc0505.dll", "hiprtc0504.dll", "hiprtc0503.dll", "hiprtc.dll"},
		folders: hipWindows.folders,
		roots:   hipWindows.roots,
	}
	cudaLinux = libraryNames{
		names:   []string{"libcuda.so.1", "libcuda.so"},
		folders: []string{"lib64", "lib"},
		roots:   []string{"/usr/lib/wsl", "/usr/lib/x86_64-linux-gnu/nvidia/current"},
	}
	cudaWindows = libraryNames{names: []string{"nvcuda.dll"}}
	nvrtcLinux  = libraryNames{
		names:   []string{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"},
		folders: []string{"lib64", "lib", "targets/x86_64-linux/lib"},
		roots:   []string{"/usr/local/cuda", "/usr/local/cuda-*"},
	}
	nvrtcWindows = libraryNames{
		names:   []string{"nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"},
		folders: []string{"bin", `bin\x64`},
		roots:   []string{`C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v*`},
	}
)

// pick returns the names for the system that this program runs on.
func pick(linux, windows libraryNames) libraryNames {
	if goruntime.GOOS == "windows" {
		return windows
	}
	return linux
}

// runtimeNames lists what to try for the runtime, in order.
func runtimeNames(o Options) []string {
	if o.API == hip.HIP {
		return pick(hipLinux, hipWindows).candidates(o)
	}
	return pick(cudaLinux, cudaWindows).candidates(o)
}

// candidates lists paths below the options' paths, then plain names for the
// loader to find, then paths below the options' and the usual roots. Below
// roots that the user did not name only what exists is listed.
func (n libraryNames) candidates(o Options) []string {
	var all []string
	for _, p := range o.Paths {
		if s, err := os.Stat(p); err == nil && !s.IsDir() {
			if n.has(filepath.Base(p)) {
				all = append(all, p)
			}
			continue
		}
		for _, name := range n.names {
			all = append(all, filepath.Join(p, name))
		}
	}
	if o.Only {
		return all
	}
	all = append(all, n.names...)
	for _, pattern := range append(slices.Clone(o.Roots), n.roots...) {
		roots, _ := filepath.Glob(pattern)
		slices.Reverse(roots) // the highest version first
		for _, root := range roots {
			for _, folder := range n.folders {
				for _, name := range n.names {
					if path := filepath.Join(root, folder, name); exists(path) {
						all = append(all, path)
					}
				}
			}
		}
	}
	return all
}

// has reports whether a file's name is one of the library's.
func (n libraryNames) has(name string) bool { return slices.Contains(n.names, name) }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// compilerNames lists what to try for the compiler: first the one that lies
// beside the runtime and is of its generation, at last the runtime itself, which
// holds hiprtc's functions until ROCm 6.0.
func compilerNames(o Options, runtimePath string, cudaMajor int) []string {
	if o.API == hip.CUDA {
		n := pick(nvrtcLinux, nvrtcWindows)
		n.names = prefer(n.names, strconv.Itoa(cudaMajor))
		return n.candidates(o)
	}
	n := pick(hiprtcLinux, hiprtcWindows)
	if runtimePath == "" {
		return append(n.candidates(o), runtimeNames(o)...)
	}
	n.names = prefer(n.names, Generation(runtimePath))
	o.Paths = append(slices.Clone(o.Paths), filepath.Dir(runtimePath))
	return append(n.candidates(o), runtimePath)
}

// Generation returns the number in a HIP library's name: 6 of
// libamdhip64.so.6.3.60302, amdhip64_6.dll and hiprtc0602.dll, 5 of amdhip64.dll;
// "" where it has none. It may differ from the version that the runtime gives.
func Generation(path string) string {
	name := filepath.Base(path)
	if _, rest, ok := strings.Cut(name, ".so."); ok {
		digits, _, _ := strings.Cut(rest, ".")
		return digits
	}
	name, ok := strings.CutSuffix(name, ".dll")
	digits := strings.TrimLeft(name, "abcdefghijklmnopqrstuvwxyz")
	switch {
	case !ok:
		return ""
	case strings.HasPrefix(name, "hiprtc") && len(digits) == 4:
		return strings.TrimPrefix(digits[:2], "0")
	case name == "amdhip64":
		return "5"
	}
	_, digits, _ = strings.Cut(name, "_")
	return digits
}

// prefer moves the names of a generation to the front.
func prefer(names []string, generation string) []string {
	if generation == "" {
		return names
	}
	score := func(name string) int {
		for _, mark := range []string{".so.", "hiprtc0", "nvrtc64_"} {
			if strings.Contains(name, mark+generation) {
				return 0
			}
		}
		return 1
	}
	names = slices.Clone(names)
	slices.SortStableFunc(names, func(a, b string) int { return score(a) - score(b) })
	return names
}

// comgrNames are the names of the library behind hiprtc.
func comgrNames() []string {
	if goruntime.GOOS == "windows" {
		return []string{"amd_comgr_4.dll", "amd_comgr_3.dll", "amd_comgr_2.dll", "amd_comgr.dll"}
	}
	return []string{"libamd_comgr.so.4", "libamd_comgr.so.3", "libamd_comgr.so.2"}
}
