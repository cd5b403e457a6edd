package form

import (
	"fmt"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
)

// train is a tensor train of 2 to 4 cores: docs/forms/train.md.
type train struct{}

// Cores a train can have, and the most its ranks and columns can be.
const (
	minCores = 2
	maxCores = 4
	maxTrain = 1 << 24
)

// A TrainCore is the sizes of one core of a tensor train: a matrix of Rows
// rows, each of which is [RankIn][Columns][RankOut].
type TrainCore struct {
	Rows, RankIn, Columns, RankOut int64
}

// ParseTrain returns the cores of a tensor that [Check] has accepted.
func ParseTrain(t *formats.Tensor) []TrainCore {
	cores := make([]TrainCore, len(t.Factors))
	in := int64(1)
	for i := range cores {
		out := int64(1)
		if i+1 < len(cores) {
			out = t.Params[fmt.Sprintf("rank%d", i+1)]
		}
		cores[i] = TrainCore{t.Factors[i].Shape[0], in, t.Params[fmt.Sprintf("cols%d", i+1)], out}
		in = out
	}
	return cores
}

// TrainParams returns the parameters that say what cores are.
func TrainParams(cores []TrainCore) map[string]int64 {
	p := map[string]int64{}
	for i, c := range cores {
		p[fmt.Sprintf("cols%d", i+1)] = c.Columns
		if i+1 < len(cores) {
			p[fmt.Sprintf("rank%d", i+1)] = c.RankOut
		}
	}
	return p
}

func (train) check(t *formats.Tensor) error {
	d := len(t.Factors)
	if d < minCores || d > maxCores {
		return formats.Errorf("", t.Name, "%d factors, but the form %q has %d to %d", d, t.Form, minCores, maxCores)
	}
	want := make([]string, d)
	for i := range want {
		want[i] = fmt.Sprintf("g%d", i+1)
	}
	if err := names(t, want...); err != nil {
		return err
	}
	if err := dims(t, 2); err != nil {
		return err
	}
	if len(t.Shape) != 2 || len(t.Params) != 2*d-1 {
		return formats.Errorf("", t.Name, "shape %v with parameters %v is no train of %d cores", t.Shape, t.Params, d)
	}
	for i, name := range want {
		if len(t.Factors[i].Shape) != 2 || t.Factors[i].Shape[0] < 1 {
			return formats.Errorf("", t.Name, "factor %q has shape %v instead of rows and columns", name, t.Factors[i].Shape)
		}
	}
	return checkCores(t, ParseTrain(t))
}

// checkCores holds cores to the tensor's shape.
func checkCores(t *formats.Tensor, cores []TrainCore) error {
	rows, columns := int64(1), int64(1)
	for i, c := range cores {
		if c.Columns < 1 || c.Columns > maxTrain || c.RankOut < 1 || c.RankOut > maxTrain || c.Rows > maxTrain {
			return formats.Errorf("", t.Name, "core %d has %d rows, %d columns and the rank %d", i+1, c.Rows, c.Columns, c.RankOut)
		}
		if k := t.Factors[i].Shape[1]; c.RankIn*c.Columns > 1<<40 || k != c.RankIn*c.Columns*c.RankOut {
			return formats.Errorf("", t.Name, "core %d has rows of %d numbers instead of %d x %d x %d", i+1, k, c.RankIn, c.Columns, c.RankOut)
		}
		if rows > 1<<36 || columns > 1<<36 {
			return formats.Errorf("", t.Name, "cores make more than shape %v", t.Shape)
		}
		rows *= c.Rows
		columns *= c.Columns
	}
	if columns != t.Shape[1] || rows < t.Shape[0] || rows/cores[0].Rows*(cores[0].Rows-1) >= t.Shape[0] {
		return formats.Errorf("", t.Name, "cores make %d x %d, the shape is %v", rows, columns, t.Shape)
	}
	return nil
}

func (train) matrix(t *formats.Tensor, i int64) (formats.Tensor, error) { return *t, nil }

// A chain decodes rows of a train.
type chain struct {
	cores   []TrainCore
	factors [][]float32
	a, b    []float32
}

func (train) rows() []string    { return nil } // a row is of all cores
func (train) columns() []string { return nil }

func (train) open(t *formats.Tensor, f []*scheme.Matrix) decoder {
	c := &chain{cores: ParseTrain(t)}
	most, columns := int64(0), int64(1)
	for i := range f {
		c.factors = append(c.factors, floats(f[i]))
		columns *= c.cores[i].Columns
		most = max(most, columns*c.cores[i].RankOut)
	}
	c.a, c.b = make([]float32, most), make([]float32, most)
	return c
}

func (c *chain) decodeRow(dst []float32, row int64) {
	var digits [maxCores]int64
	for i := len(c.cores) - 1; i >= 0; i-- {
		digits[i] = row % c.cores[i].Rows
		row /= c.cores[i].Rows
	}
	columns := int64(1)
	c.a[0] = 1
	for i, core := range c.cores {
		size := core.RankIn * core.Columns * core.RankOut
		g := c.factors[i][digits[i]*size:][:size]
		width := core.Columns * core.RankOut
		out := c.b[:columns*width]
		clear(out)
		for j := range columns {
			for r := range core.RankIn {
				addScaled(out[j*width:(j+1)*width], c.a[j*core.RankIn+r], g[r*width:])
			}
		}
		columns *= core.Columns
		c.a, c.b = c.b, c.a
	}
	copy(dst, c.a)
}
