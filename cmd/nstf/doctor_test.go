package main

import (
	"strings"
	"testing"

	"github.com/nstf/nstf/runtime/gpu/doctor"
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

// Ways between cards are drawn as the kernel lists them: two dies beside one another, and a card
// that nothing reaches.
func TestDoctorLinks(t *testing.T) {
	var out strings.Builder
	a := &app{out: &out}
	r := &doctor.Report{Cards: []doctor.Card{{Node: "1"}, {Node: "2"}, {Node: "3"}}, Links: []doctor.Link{
		{From: "1", To: "2", Kind: "xgmi", Hops: 1, Rate: 200000}, {From: "2", To: "1", Kind: "xgmi", Hops: 1}, {From: "1", To: "3", Kind: "pcie"}, {From: "3", To: "1", Kind: "pcie", Closed: true}}}
	a.printLinks(r)
	for _, want := range []string{"card 1    .       xgmi 1  pcie", "card 2    xgmi 1  .       -", "card 3    -       -       .", "200 GB/s at most from card 1 to 2"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

func TestDoctorUsage(t *testing.T) {
	dir := t.TempDir()
	invoke("doctor", "extra").fails(t, exitUsage, "extra")
	invoke("doctor", "-o", dir).fails(t, exitUsage, "go together")
	invoke("doctor", "--build-kernels", "gfx1100").fails(t, exitUsage, "go together")
	invoke("doctor", "--build-kernels", "gfx1100", "-o", dir, "--json").fails(t, exitUsage, "--json")
	invoke("doctor", "--build-kernels", "radeon", "-o", dir).fails(t, exitUsage, "radeon")
	invoke("doctor", "--build-kernels", "gfx1100", "-o", dir, "--ranks", "2").fails(t, exitUsage, "--ranks")
	empty(t, dir)
}
