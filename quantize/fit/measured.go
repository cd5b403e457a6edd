package fit

import "github.com/nstf/nstf/formats/stats"

// Measured gives the Inputs that statistics know, one at a time: the one asked
// for last is held, with its factors, until another is asked for. It belongs to
// one goroutine.
type Measured struct {
	file *stats.File
	last string // name of in, "" for none
	in   *Input
}

// NewMeasured returns the Inputs of statistics, nil for none.
func NewMeasured(s *stats.File) *Measured { return &Measured{file: s} }

// Input returns an input by the name that linears have for it ([graph.Linear]),
// of one expert's tokens or, with -1, of all; nil where nothing was measured.
// It fails where the statistics cannot be read.
func (m *Measured) Input(name string, expert int) (*Input, error) {
	if m.file == nil || m.file.Inputs[name] == nil || m.file.Inputs[name].Tokens == 0 {
		return nil, nil
	}
	if expert < 0 && name == m.last {
		return m.in, nil
	}
	m.last, m.in = "", nil // dropped before the next is made
	h, err := m.file.Moments(name, expert)
	if err != nil || h == nil {
		return nil, err
	}
	in := NewInput(h, m.file.Inputs[name].K)
	if expert < 0 {
		m.last, m.in = name, in
	}
	return in, nil
}
