package pipeline

import (
	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/quantize/fit"
)

// gathered are the moments of a block behind the compressed ones. It holds the
// factors of one input at a time.
type gathered struct {
	g    *calibrate.Gatherer
	last string
	in   *fit.Input
}

func (m *gathered) input(name string, expert int) (*fit.Input, error) {
	if expert < 0 && name == m.last {
		return m.in, nil
	}
	m.last, m.in = "", nil // dropped before the next is made
	in := fitInput(m.g.Moments(name, expert))
	if expert < 0 {
		m.last, m.in = name, in
		if len(m.g.Experts[name]) == 0 { // what reads an input follows one another: its sums are done with
			delete(m.g.Inputs, name)
		}
	}
	return in, nil
}

// measured are the moments of the original model.
type measured struct {
	file *stats.File // or nil
	last string
	in   *fit.Input
}

// original returns what was measured of the original model.
func (r *run) original() moments {
	if r.first == nil {
		r.first = &measured{file: r.o.Stats}
	}
	return r.first
}

func (m *measured) input(name string, expert int) (*fit.Input, error) {
	if m.file == nil || m.file.Inputs[name] == nil || m.file.Inputs[name].Tokens == 0 {
		return nil, nil
	}
	if expert < 0 && name == m.last {
		return m.in, nil
	}
	m.last, m.in = "", nil
	h, err := m.file.Moments(name, expert)
	if err != nil {
		return nil, err
	}
	in := fitInput(h)
	if expert < 0 {
		m.last, m.in = name, in
	}
	return in, nil
}

// fitInput takes a full matrix of moments; nil where there is none.
func fitInput(h []float64) *fit.Input {
	if h == nil {
		return nil
	}
	k := 0
	for k*k < len(h) {
		k++
	}
	return fit.NewInput(h, k)
}
