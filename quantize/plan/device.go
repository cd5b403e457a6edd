package plan

import (
	"slices"

	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
)

// A Device bounds how fast a product of a stored matrix with one vector can be:
// by the bytes that are read, and by the operations that decode and multiply
// them. It is a roofline (Williams, Waterman and Patterson, 2009).
type Device struct {
	Name  string
	Bytes float64 // per second from memory
	Ops   float64 // vector operations per second, each on one 32-bit lane
	Start float64 // seconds that each further product of a form costs
}

// devices are by data sheet: bandwidth, and compute units times lanes times
// clock. Kernels reach a part of either, much the same part of both.
var devices = []Device{
	{"mi300x", 5.3e12, 304 * 64 * 2.1e9, 2e-6},
	{"7900xtx", 0.96e12, 96 * 64 * 2.5e9, 2e-6},
	{"h200", 4.8e12, 132 * 128 * 1.98e9, 2e-6},
}

// Devices lists the devices that are known by name.
func Devices() []Device { return slices.Clone(devices) }

// Seconds returns the time of a product with one vector of a tensor whose
// matrices have n*k weights together, are stored by a recipe in so many bytes,
// and of which a share is read for a token. source is what a kept tensor is stored
// in, nil for a form.
func (d Device) Seconds(r plan.Recipe, source *scheme.Scheme, n, k, bytes int64, share float64) float64 {
	of := r.Code.Scheme
	if r.Kept() {
		of = source
	}
	weights, further := 0.0, 0.0
	if of != nil {
		weights = float64(n*k) * float64(of.Operations())
	}
	if r.Rank > 0 {
		weights += float64(r.Rank) * (float64(n)*float64(r.A.Scheme.Operations()) + float64(k)*float64(r.B.Scheme.Operations()))
		further = 1
	}
	return max(share*float64(bytes)/d.Bytes, share*weights/d.Ops) + further*d.Start
}
