package main

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/nstf/nstf/kernels/cpu"
)

// addPrecision adds the flags that trade accuracy for speed and memory, the
// same for every command that executes a model.
func addPrecision(s *pflag.FlagSet, exact *bool, kv *string) {
	s.BoolVar(exact, "exact", false, "compute in float32 throughout")
	s.StringVar(kv, "kv", "", "keys and values: "+strings.Join(cpu.KVFormatNames(), ", ")+", or by block q5*2,q4; else f16, --exact f32")
}

func checkKV(kv string) error {
	if kv == "" {
		return nil
	}
	if _, err := cpu.ParseKVFormats(kv); err != nil {
		return usagef("--kv %q is not one of %s, or a list of them with commas", kv, strings.Join(cpu.KVFormatNames(), ", "))
	}
	return nil
}
