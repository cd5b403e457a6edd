package imatrix

import (
	"path/filepath"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/arch"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/stats"
)

// Stats returns what the file knows of a model's inputs: diagonals, by the names
// that llama.cpp has for its tensors. Inputs that it does not know are left out.
// It fails where it knows none, or where sizes differ: it is of another model.
func (f *File) Stats(m *model.Model) (*stats.File, error) {
	out := &stats.File{Path: f.Path, Source: stats.Source{Model: filepath.Base(m.Path), Text: f.Text, Tool: "llama-imatrix"},
		Inputs: map[string]*stats.Input{}, Experts: map[string][]*stats.Input{}, Sensitivity: map[string]float64{}}
	linears := []*graph.Linear{&m.Graph.Head.Linear}
	for i := range m.Graph.Blocks {
		linears = append(linears, m.Graph.Blocks[i].Linears()...)
	}
	for _, l := range linears {
		name, ok := arch.GGUFName(m.Graph, l.Weight)
		e := f.Entries[name]
		if !ok || e == nil || out.Inputs[l.Input] != nil && (len(e.Values) == 1 || out.Experts[l.Input] != nil) {
			continue
		}
		if err := f.add(out, m, l, name, e); err != nil {
			return nil, err
		}
	}
	if len(out.Inputs) == 0 {
		return nil, formats.Errorf(f.Path, "", "none of its %d entries is a tensor of %s", len(f.Entries), m.Path)
	}
	for _, in := range out.Inputs {
		out.Source.Tokens = max(out.Source.Tokens, in.Tokens)
	}
	return out, nil
}

// add puts an entry in: for a stack of experts their mean beside each of them.
func (f *File) add(out *stats.File, m *model.Model, l *graph.Linear, name string, e *Entry) error {
	experts := 1
	if t := m.Tensor(l.Weight); len(t.Shape) == 3 {
		experts = int(t.Shape[0])
	}
	rows, tokens := e.Values, e.Tokens
	if len(rows) == 1 && experts > 1 && len(rows[0]) == experts*int(l.In) { // the old format joins them
		whole := rows[0]
		rows, tokens = nil, nil
		for x := range experts {
			rows = append(rows, whole[x*int(l.In):(x+1)*int(l.In)])
			tokens = append(tokens, e.Tokens[0]/int64(experts))
		}
	}
	if len(rows) != 1 && len(rows) != experts || len(rows[0]) != int(l.In) {
		return formats.Errorf(f.Path, name, "%d rows of %d values for %d experts that read %d features: it is of another model", len(rows), len(rows[0]), experts, l.In)
	}
	if out.Inputs[l.Input] == nil {
		out.Inputs[l.Input] = mean(int(l.In), rows, tokens)
	}
	if len(rows) > 1 {
		for x, row := range rows {
			out.Experts[l.Input] = append(out.Experts[l.Input], mean(int(l.In), [][]float32{row}, tokens[x:x+1]))
		}
	}
	return nil
}

// mean joins rows, weighed by their tokens.
func mean(k int, rows [][]float32, tokens []int64) *stats.Input {
	var all int64
	sums := make([]float64, k)
	for x, row := range rows {
		all += tokens[x]
		for i, v := range row {
			sums[i] += float64(v) * float64(tokens[x])
		}
	}
	if all == 0 {
		return &stats.Input{K: k}
	}
	diagonal := make([]float32, k)
	for i, v := range sums {
		diagonal[i] = float32(v / float64(all))
	}
	return stats.NewDiagonal(k, all, diagonal)
}
