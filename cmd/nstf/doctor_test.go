package main

import (
	"strings"
	"testing"
)

// TestDoctor: whatever this machine has, the report says what was tried and
// fails only where a device does not work.
func TestDoctor(t *testing.T) {
	c := command(t, "doctor", "--json")
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var r doctorReport
	decode(t, string(out), &r)
	if r.Program.Go == "" || r.Report == nil || len(r.APIs) != 2 {
		t.Fatalf("%s", out)
	}
	for _, a := range r.APIs {
		if len(a.Tried) == 0 || len(a.Devices) == 0 && a.Error == "" {
			t.Errorf("%s: %+v", a.API, a)
		}
	}
	text, err := command(t, "doctor").Output()
	if err != nil || !strings.Contains(string(text), "AMD") || !strings.Contains(string(text), "NVIDIA") {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestDoctorUsage(t *testing.T) {
	dir := t.TempDir()
	invoke("doctor", "extra").fails(t, exitUsage, "extra")
	invoke("doctor", "-o", dir).fails(t, exitUsage, "go together")
	invoke("doctor", "--build-kernels", "gfx1100").fails(t, exitUsage, "go together")
	invoke("doctor", "--build-kernels", "gfx1100", "-o", dir, "--json").fails(t, exitUsage, "--json")
	invoke("doctor", "--build-kernels", "radeon", "-o", dir).fails(t, exitUsage, "radeon")
	empty(t, dir)
}
