package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// kvTypes are the values of --kv.
func kvTypes() []string { return []string{"f32", "f16", "q8"} }

// addPrecision adds the flags that trade accuracy for speed and memory, the
// same for every command that executes a model.
func addPrecision(s *pflag.FlagSet, exact *bool, kv *string) {
	s.BoolVar(exact, "exact", false, "compute in float32 throughout")
	s.StringVar(kv, "kv", "", "keep keys and values as "+strings.Join(kvTypes(), ", ")+"; default: f16, or f32 with --exact")
}

func checkKV(kv string) error {
	if kv != "" && !slices.Contains(kvTypes(), kv) {
		return usagef("--kv %q is not one of %s", kv, strings.Join(kvTypes(), ", "))
	}
	return nil
}
