package driver_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// compiler returns the compiler of an API, which needs no device.
func compiler(t *testing.T, api hip.API) *driver.Compiler {
	t.Helper()
	o := driver.Options{API: api}
	if *pathFlag != "" {
		o.Paths = []string{*pathFlag}
	}
	c, _, err := driver.FindCompiler(o)
	if errors.Is(err, driver.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s of %s knows %v", c.Identity(), c.Path(), c.Targets())
	return c
}

// known leaves out what an old hiprtc does not know.
func known(c *driver.Compiler, list []hip.Target) []hip.Target {
	return slices.DeleteFunc(slices.Clone(list), func(t hip.Target) bool {
		return c.Targets() != nil && !slices.Contains(c.Targets(), t.Arch)
	})
}

var targets = map[hip.API][]hip.Target{
	hip.HIP: {{API: hip.HIP, Arch: "gfx1030", Wave: 32}, {API: hip.HIP, Arch: "gfx90a", Wave: 64}, {API: hip.HIP, Arch: "gfx1100", Wave: 32}},
	hip.CUDA: {{API: hip.CUDA, Arch: "sm_80", Wave: 32}, {API: hip.CUDA, Arch: "sm_90", Wave: 32},
		{API: hip.CUDA, Arch: "sm_999", Wave: 32}}, // newer than the compiler: PTX
}

// TestCompile makes code for machines that are not here, several at once.
func TestCompile(t *testing.T) {
	for api, list := range targets {
		t.Run(string(api), func(t *testing.T) {
			c := compiler(t, api)
			list := known(c, list)
			var wg sync.WaitGroup
			for _, target := range list {
				wg.Go(func() {
					code, log, err := c.CompileSource("test.hip", kernels, nil, target)
					if err != nil {
						t.Errorf("%s: %v", target.Arch, err)
						return
					}
					wanted := "\x7fELF"
					if target.Arch == "sm_999" {
						wanted = "//"
					}
					if !strings.HasPrefix(strings.TrimSpace(string(code)), wanted) || !bytes.Contains(code, []byte("arguments")) {
						t.Errorf("%s: %.60q...", target.Arch, code)
					}
					if log != "" {
						t.Errorf("%s: warnings:\n%s", target.Arch, log)
					}
				})
			}
			wg.Wait()
			_, log, err := c.CompileSource("wrong.hip", "#line 1 \"wrong.hip\"\nextern \"C\" __global__ void f() { undeclared_name = 1; }", nil, list[0])
			if !errors.Is(err, driver.ErrCompile) || !strings.Contains(log, "undeclared_name") || !strings.Contains(log, "wrong.hip") {
				t.Errorf("%v, log %q", err, log)
			}
			if _, _, err = c.CompileSource("test.hip", kernels, nil, hip.Target{API: api, Arch: "gfx000"}); err == nil {
				t.Error("compiled for a target that does not exist")
			}
		})
	}
}

// TestUnits compiles a source of kernels/hip with its defines, as C++17.
func TestUnits(t *testing.T) {
	for api, list := range targets {
		t.Run(string(api), func(t *testing.T) {
			c := compiler(t, api)
			list := known(c, list)
			u := hip.Unit{File: "common.hip"}
			if _, _, err := c.Compile(u, list[0]); err != nil {
				t.Error(err)
			}
			if _, _, err := c.CompileSource("std.hip", "static_assert(__cplusplus >= 201703L, \"too old\");\n"+kernels, nil, list[0]); err != nil {
				t.Error(err)
			}
			a, b := c.Options(u, list[0]), c.Options(u, list[1])
			if strings.Join(a, " ") == strings.Join(b, " ") {
				t.Errorf("the same options for two targets: %q", a)
			}
		})
	}
}
