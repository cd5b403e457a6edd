package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nstf/nstf/kernels/cpu"
)

// addPrecision adds the flags that trade accuracy for speed and memory, the
// same for every command that executes a model.
func addPrecision(s *pflag.FlagSet, exact *bool, kv *string) {
	s.BoolVar(exact, "exact", false, "compute in float32 throughout")
	s.StringVar(kv, "kv", "", "keep keys and values as "+strings.Join(cpu.KVFormatNames(), ", ")+"; default: f16, or f32 with --exact")
}

func checkKV(kv string) error {
	if kv != "" && !slices.Contains(cpu.KVFormatNames(), kv) {
		return usagef("--kv %q is not one of %s", kv, strings.Join(cpu.KVFormatNames(), ", "))
	}
	return nil
}
