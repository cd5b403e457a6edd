package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nstf/nstf/kernels/hip"
)

// A Witness says how we know what we know about an architecture.
type Witness int

// From the strongest to the weakest.
const (
	Executed Witness = iota // its machine code is executed by the emulator in every run of the tests
	Compiled                // every kernel is compiled for it and held to its budget of registers and LDS
	Kin                     // it has all instructions of one of the above
	Doubtful                // it lacks instructions that the kernels use, or ROCm does not carry it any more
)

// String says it to the user.
func (w Witness) String() string {
	switch w {
	case Executed:
		return "expected to work: its machine code is executed in our tests"
	case Compiled:
		return "expected to work: every kernel is compiled for it in our tests"
	case Kin:
		return "expected to work: it has the instructions of a target that is tested"
	}
	return "may work, slowly: it lacks instructions that the kernels use, or ROCm does not support it"
}

// A Family is a row of docs/gpu.md: architectures that are known alike.
type Family struct {
	Archs   []string
	Cards   string
	Witness Witness
	ROCm    [2]int // the first release whose compiler and runtime know it
	// Override is the HSA_OVERRIDE_GFX_VERSION under which a runtime that does
	// not know these takes them for a relative; "": there is none.
	Override string
	// Units are how many compute units (RDNA: pairs of them) such cards have, as
	// the runtime counts them: a kernel's shape may depend on it. nil: nobody has said.
	Units []int
}

// Families returns all AMD architectures that we say something about: those from
// gfx9 on that LLVM 23 lists as processors of the amdgcn target, but for gfx904
// and gfx1310, of which no product is known. For gfx1154 to gfx1172, which are in
// LLVM from 23 on, and gfx1250, ROCm 10.0 is the first that others build with
// (llama.cpp b12001); an earlier one may know them.
func Families() []Family {
	return []Family{
		{[]string{"gfx908"}, "Instinct MI100", Compiled, [2]int{5, 0}, "", []int{120}},
		{[]string{"gfx90a"}, "Instinct MI210, MI250, MI250X", Executed, [2]int{5, 0}, "", []int{104, 110}},
		{[]string{"gfx942"}, "Instinct MI300A, MI300X, MI325X", Executed, [2]int{6, 0}, "", []int{304, 228}},
		{[]string{"gfx950"}, "Instinct MI350X, MI355X", Compiled, [2]int{7, 0}, "", []int{256}},
		{[]string{"gfx1030"}, "Radeon RX 6800, 6900, 6950, PRO W6800", Compiled, [2]int{5, 0}, "", []int{40, 36, 30}},
		{[]string{"gfx1031", "gfx1032", "gfx1034"}, "Radeon RX 6700, 6600, 6500", Kin, [2]int{5, 0}, "10.3.0", []int{20, 18, 16, 14, 8}},
		{[]string{"gfx1033", "gfx1035", "gfx1036"}, "RDNA 2 in processors: Steam Deck, Ryzen 6000, desktop Ryzen 7000", Kin, [2]int{5, 0}, "10.3.0", []int{6, 4, 1}},
		{[]string{"gfx1100"}, "Radeon RX 7900, PRO W7900, W7800", Executed, [2]int{5, 5}, "", []int{48, 42, 40, 35}},
		{[]string{"gfx1101", "gfx1102"}, "Radeon RX 7800, 7700, 7600", Kin, [2]int{5, 5}, "11.0.0", []int{30, 27, 16, 14}},
		{[]string{"gfx1103"}, "RDNA 3 in processors: Ryzen 7040, 8040", Kin, [2]int{6, 1}, "11.0.0", []int{6, 4}},
		{[]string{"gfx1150", "gfx1151", "gfx1152", "gfx1153"}, "RDNA 3.5 in processors: Ryzen AI 300, AI Max", Kin, [2]int{6, 4}, "11.0.0", []int{20, 16, 8, 6, 4}},
		{[]string{"gfx1154"}, "RDNA 3.5 in processors", Kin, [2]int{10, 0}, "11.0.0", nil},
		{[]string{"gfx1170", "gfx1171", "gfx1172"}, "RDNA 4m in processors", Kin, [2]int{10, 0}, "", nil},
		{[]string{"gfx1200"}, "Radeon RX 9060", Kin, [2]int{6, 4}, "", []int{16, 14}},
		{[]string{"gfx1201"}, "Radeon RX 9070, AI PRO R9700", Executed, [2]int{6, 4}, "", []int{32, 28}},
		{[]string{"gfx1250", "gfx1251"}, "Instinct MI455X, MI430X", Doubtful, [2]int{10, 0}, "", nil},
		{[]string{"gfx906"}, "Radeon VII, Instinct MI50, MI60", Doubtful, [2]int{5, 0}, "", []int{60, 64}},
		{[]string{"gfx900", "gfx902", "gfx909", "gfx90c"}, "Vega", Doubtful, [2]int{5, 0}, "9.0.0", []int{64, 56, 8}},
		{[]string{"gfx1010", "gfx1011", "gfx1012", "gfx1013"}, "Radeon RX 5700, 5600, 5500", Doubtful, [2]int{5, 0}, "10.3.0", []int{20, 18, 11}},
	}
}

// familyOf finds an architecture's row.
func familyOf(arch string) (Family, bool) {
	for _, f := range Families() {
		if slices.Contains(f.Archs, arch) {
			return f, true
		}
	}
	return Family{}, false
}

// Targets returns the targets that an architecture's cards are: one for each
// usual number of compute units.
func Targets(arch string) ([]hip.Target, error) {
	t, err := hip.ParseTarget(arch)
	if err != nil {
		return nil, err
	}
	counts := []int{132, 108, 84, 60, 28} // NVIDIA: near enough, as shapes go by halves and doubles
	if f, ok := familyOf(arch); ok && f.Units != nil {
		counts = f.Units
	} else if t.API == hip.HIP {
		counts = []int{40, 16}
	}
	var list []hip.Target
	for _, n := range counts {
		t.Units = n
		list = append(list, t)
	}
	return list, nil
}

// expectation says whether a target should work, and why we believe it.
func expectation(t hip.Target) string {
	if t.API == hip.CUDA {
		digits := strings.TrimPrefix(t.Arch, "sm_")
		n, err := strconv.Atoi(digits)
		switch {
		case err != nil || n < 61:
			return "not expected to work: it lacks byte dot products (compute capability 6.1)"
		case n == 90:
			return "expected to work: measured on such a card"
		}
		return "expected to work: it has the instructions of compute capability 9.0 that are used, or ways around them"
	}
	if f, ok := familyOf(t.Arch); ok {
		return f.Witness.String()
	}
	return "unknown: please tell us how it goes"
}

// older reports whether a runtime's version is below the first that knows a family.
func (f *Family) older(version string) bool {
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n < 2 {
		return false
	}
	return major < f.ROCm[0] || major == f.ROCm[0] && minor < f.ROCm[1]
}
