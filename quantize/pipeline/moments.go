package pipeline

import (
	"context"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/quantize/fit"
)

// gathered are the moments of a block behind the compressed ones. It holds the
// factors of one input at a time.
type gathered struct {
	g    *calibrate.Gathered
	last string
	in   *fit.Input
}

// Input implements moments.
func (m *gathered) Input(name string, expert int) (*fit.Input, error) {
	if expert < 0 && name == m.last {
		return m.in, nil
	}
	m.last, m.in = "", nil // dropped before the next is made
	var in *fit.Input
	if h := m.g.Moments(name, expert); h != nil {
		in = fit.NewInput(h, m.g.Inputs[name].K)
	}
	if expert < 0 {
		m.last, m.in = name, in
		if len(m.g.Experts[name]) == 0 { // what reads an input follows one another: its sums are done with
			delete(m.g.Inputs, name)
		}
	}
	return in, nil
}

// Ready implements moments.
func (m *gathered) Ready(_ context.Context, name string) (*fit.Input, bool, error) {
	in, err := m.Input(name, -1)
	return in, true, err
}

// known are the moments of statistics.
type known struct{ *fit.Measured }

// Ready implements moments.
func (m known) Ready(_ context.Context, name string) (*fit.Input, bool, error) {
	in, err := m.Input(name, -1)
	return in, true, err
}
