package doctor

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// hintBuild is what helps where a machine cannot compile.
const hintBuild = "or build the kernels on a machine with a compiler by `nstf doctor --build-kernels %s -o DIR` and copy them into this machine's cache"

// findings says what is in the way. Each check looks at the report alone.
func findings(r *Report) []Finding {
	var list []Finding
	for _, check := range []func(*Report) []Finding{nodeFindings, hiddenFindings, overrideFindings, apiFindings, deviceFindings, linkFindings} {
		list = append(list, check(r)...)
	}
	return list
}

// api returns the report of a family; Examine fills in both.
func (r *Report) api(name hip.API) *API {
	for i := range r.APIs {
		if r.APIs[i].API == name {
			return &r.APIs[i]
		}
	}
	return &API{API: name}
}

// nodeFindings: Linux's driver or its permissions.
func nodeFindings(r *Report) []Finding {
	if a := driver.Advice(r.Nodes); a != "" {
		problem, remedy, _ := strings.Cut(a, ": ")
		return []Finding{{problem, remedy}}
	}
	return nil
}

// hiddenFindings: cards that Linux lists and the runtime does not show.
func hiddenFindings(r *Report) []Finding {
	a := r.api(hip.HIP)
	if len(r.Cards) == 0 || len(a.Devices) >= len(r.Cards) {
		return nil
	}
	if a.Missing {
		var names []string
		for _, c := range r.Cards {
			names = append(names, c.Arch)
		}
		return []Finding{{fmt.Sprintf("%s here, and no ROCm runtime", strings.Join(names, ", ")), "install it (docs/gpu.md names the packages), or say where it lies by ROCM_PATH"}}
	}
	for _, name := range []string{"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"} {
		if v, ok := r.Environment[name]; ok {
			return []Finding{{fmt.Sprintf("%s=%q hides cards: Linux lists %d, the runtime shows %d", name, v, len(r.Cards), len(a.Devices)), "unset it"}}
		}
	}
	if driver.Advice(r.Nodes) != "" {
		return nil // that is the reason
	}
	var list []Finding
	for _, c := range r.Cards {
		if shown(a, c.Arch) {
			continue
		}
		f, ok := familyOf(c.Arch)
		remedy := "install the newest ROCm"
		if ok && a.Version != "" && f.older(a.Version) {
			remedy = fmt.Sprintf("install ROCm %d.%d or newer", f.ROCm[0], f.ROCm[1])
		} else if f.Override != "" {
			remedy += fmt.Sprintf(", or set HSA_OVERRIDE_GFX_VERSION=%s", f.Override)
		}
		list = append(list, Finding{fmt.Sprintf("Linux lists a %s, and the runtime (%s) does not show it", c.Arch, orUnknown(a.Version)), remedy})
	}
	return list
}

func shown(a *API, arch string) bool {
	for i := range a.Devices {
		if a.Devices[i].Target.Arch == arch {
			return true
		}
	}
	return false
}

func orUnknown(s string) string {
	if s == "" {
		return "version unknown"
	}
	return s
}

// overrideFindings: HSA_OVERRIDE_GFX_VERSION makes the runtime load code of
// another architecture; one of another generation hangs the card, and so does one
// of the same number with other matrix instructions (gfx1170 is no gfx1100).
func overrideFindings(r *Report) []Finding {
	v, ok := r.Environment["HSA_OVERRIDE_GFX_VERSION"]
	if !ok {
		return nil
	}
	var major, minor, step int
	if n, _ := fmt.Sscanf(v, "%d.%d.%d", &major, &minor, &step); n != 3 {
		return []Finding{{fmt.Sprintf("HSA_OVERRIDE_GFX_VERSION=%q is no version", v), "unset it, or give one like 10.3.0"}}
	}
	as := fmt.Sprintf("gfx%d%x%x", major, minor, step)
	for _, c := range r.Cards {
		if f, _ := familyOf(c.Arch); c.Arch != as && f.Override != v && !alike(c.Arch, as) {
			return []Finding{{fmt.Sprintf("HSA_OVERRIDE_GFX_VERSION=%s has the runtime take a %s for a %s, which is of another generation", v, c.Arch, as), "unset it"}}
		}
	}
	return nil
}

// alike reports whether two architectures are of one generation and have the same
// matrix instructions.
func alike(a, b string) bool {
	of := func(arch string) hip.Target { return hip.Target{API: hip.HIP, Arch: arch} }
	return a[:len(a)-2] == b[:len(b)-2] && of(a).Matrix() == of(b).Matrix()
}

// apiFindings: runtimes and compilers that do not go together.
func apiFindings(r *Report) []Finding {
	var list []Finding
	for i := range r.APIs {
		a := &r.APIs[i]
		if a.Runtime == "" || a.Error != "" {
			continue
		}
		if a.Compiler == "" {
			remedy := "install NVRTC: `pip install nvidia-cuda-nvrtc` and give its folder by CUDA_PATH, or CUDA's runtime packages; "
			if a.API == hip.HIP {
				remedy = "install hiprtc (docs/gpu.md names the package; on Windows it comes with the HIP SDK); "
			}
			list = append(list, Finding{fmt.Sprintf("%s has no compiler for kernels", a.API), remedy + fmt.Sprintf(hintBuild, archs(a))})
			continue
		}
		if f, ok := mismatch(a); ok {
			list = append(list, f)
		}
	}
	return list
}

// archs lists the architectures of an API's devices.
func archs(a *API) string {
	var list []string
	for i := range a.Devices {
		list = append(list, a.Devices[i].Target.Arch)
	}
	return strings.Join(list, ",")
}

// mismatch reports a compiler of another generation than the runtime.
func mismatch(a *API) (Finding, bool) {
	if a.API == hip.CUDA {
		var runtime, compiler int
		fmt.Sscanf(a.Version, "%d", &runtime)
		fmt.Sscanf(a.Language, "%d", &compiler)
		if compiler > runtime && runtime > 0 {
			return Finding{fmt.Sprintf("NVRTC %s is newer than the driver, which is for CUDA %s and may refuse its code", a.Language, a.Version),
				fmt.Sprintf("update the driver, or install NVRTC %d: `pip install nvidia-cuda-nvrtc-cu%d`", runtime, runtime)}, true
		}
		return Finding{}, false
	}
	runtime, compiler := driver.Generation(a.Runtime), driver.Generation(a.Compiler)
	if runtime != "" && compiler != "" && runtime != compiler {
		return Finding{fmt.Sprintf("%s and %s are of different releases", filepath.Base(a.Runtime), filepath.Base(a.Compiler)),
			"install both of one ROCm, or say which one by ROCM_PATH"}, true
	}
	return Finding{}, false
}

// deviceFindings: what each device's test showed.
func deviceFindings(r *Report) []Finding {
	var list []Finding
	for i := range r.APIs {
		a := &r.APIs[i]
		for j := range a.Devices {
			d := &a.Devices[j]
			name := fmt.Sprintf("%s:%d", a.API, d.Ordinal)
			if f, ok := familyOf(d.Target.Arch); ok && a.API == hip.HIP && f.older(a.Version) {
				list = append(list, Finding{fmt.Sprintf("%s is a %s, which ROCm knows from %d.%d on; this is %s", name, d.Target.Arch, f.ROCm[0], f.ROCm[1], a.Version), "install a newer ROCm"})
			}
			if !d.Works() && !d.Missing {
				list = append(list, Finding{fmt.Sprintf("%s does not work: %s", name, d.Test), d.Hint})
			}
			if d.Integrated && d.Memory > 0 && d.Memory+d.Shared < 3<<30 {
				list = append(list, Finding{fmt.Sprintf("%s shares the processor's memory and has %.1f GiB of it", name, float64(d.Memory+d.Shared)/(1<<30)),
					"give it more by the option amdgpu.gttsize (MiB) of Linux's kernel, or in the firmware's setup (UMA frame buffer)"})
			}
		}
	}
	return list
}
