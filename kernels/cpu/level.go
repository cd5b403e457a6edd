package cpu

import (
	"strconv"
	"strings"

	"github.com/nstf/nstf/formats"
)

// A Level is a set of instructions that kernels are written for. Levels of one
// processor family are ordered: a machine that runs one runs all below it.
type Level uint8

const (
	// LevelGeneric is plain Go and runs everywhere.
	LevelGeneric Level = iota
	// LevelAVX2 needs AVX2, FMA and F16C (Intel Haswell, AMD Zen and later).
	LevelAVX2
	// LevelAVX512 needs AVX-512 F, BW, DQ and VL beside all of LevelAVX2
	// (Intel Skylake-X, AMD Zen 4 and later). Its integer kernels need VNNI too and
	// are else those of LevelAVX2.
	LevelAVX512
	// LevelNEON is the Advanced SIMD that every arm64 processor has.
	LevelNEON
	// LevelDotProd needs the dot products of signed bytes, SDOT, beside all of
	// LevelNEON (Arm v8.2 FEAT_DotProd: Cortex-A55 and A75, Neoverse N1, Apple A13
	// and later). Kernels of floats are those of LevelNEON.
	LevelDotProd
	levelEnd
)

// levelNames spells the levels, in their order, as flags and reports do.
func levelNames() [levelEnd]string {
	return [...]string{"generic", "avx2", "avx512", "neon", "dotprod"}
}

// String returns the spelling that ParseLevel reads.
func (l Level) String() string {
	if l < levelEnd {
		return levelNames()[l]
	}
	return "Level(" + strconv.Itoa(int(l)) + ")"
}

// ParseLevel reads the spelling of a level ("generic", "avx2", "avx512", "neon",
// "dotprod"); any other is an UnsupportedError that lists them.
func ParseLevel(name string) (Level, error) {
	names := levelNames()
	for l, s := range names {
		if s == name {
			return Level(l), nil
		}
	}
	return 0, formats.Unsupportedf("", "", "instruction-set level %q (known: %s)",
		name, strings.Join(names[:], ", "))
}

// Levels lists the levels that this build has kernels for and this machine
// runs, lowest first. LevelGeneric is always among them.
func Levels() []Level {
	var ls []Level
	for l := LevelGeneric; l < levelEnd; l++ {
		if runs(l) {
			ls = append(ls, l)
		}
	}
	return ls
}
