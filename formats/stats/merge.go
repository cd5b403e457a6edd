package stats

import (
	"math"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// Merge joins statistics of one model on two texts: moments weighed by tokens,
// the larger of two largest values, sensitivities weighed by tokens too where
// both have them. The result keeps nothing of a and b but what their moments
// are read from: close them after it. It fails where they are of two models.
func Merge(a, b *File) (*File, error) {
	if a.Source.ModelHash != b.Source.ModelHash {
		return nil, formats.Errorf(b.Path, "", "statistics of %s (%.12s), not of %s (%.12s): they cannot be merged",
			b.Source.Model, b.Source.ModelHash, a.Source.Model, a.Source.ModelHash)
	}
	out := New()
	out.Source = mergeSource(a.Source, b.Source)
	if len(a.Inputs) != len(b.Inputs) || len(a.Experts) != len(b.Experts) {
		return nil, formats.Errorf(b.Path, "", "%d inputs and %d mixtures, not %d and %d", len(b.Inputs), len(b.Experts), len(a.Inputs), len(a.Experts))
	}
	var err error
	for _, name := range sortedKeys(a.Inputs) {
		if out.Inputs[name], err = mergeInput(b.Path, name, a.Inputs[name], b.Inputs[name]); err != nil {
			return nil, err
		}
	}
	for _, name := range sortedKeys(a.Experts) {
		x, y := a.Experts[name], b.Experts[name]
		if len(x) != len(y) {
			return nil, formats.Errorf(b.Path, name, "%d experts, not %d", len(y), len(x))
		}
		for i := range x {
			in, err := mergeInput(b.Path, expertName(name, i), x[i], y[i])
			if err != nil {
				return nil, err
			}
			out.Experts[name] = append(out.Experts[name], in)
		}
	}
	mergeSensitivity(out, a, b)
	return out, nil
}

func mergeSource(a, b Source) Source {
	out := a
	out.Tokens, out.Windows = a.Tokens+b.Tokens, a.Windows+b.Windows
	out.Context = max(a.Context, b.Context)
	if a.Text != b.Text {
		out.Text = a.Text + "+" + b.Text
	}
	out.TextHash = a.TextHash + "+" + b.TextHash
	if a.Level != b.Level {
		out.Level = a.Level + "+" + b.Level
	}
	return out
}

func mergeInput(file, name string, a, b *Input) (*Input, error) {
	switch {
	case b == nil || a.K != b.K:
		return nil, formats.Errorf(file, name, "no input of %d features", a.K)
	case a.Tokens == 0:
		return b, nil
	case b.Tokens == 0:
		return a, nil
	case a.Full() != b.Full():
		return nil, formats.Errorf(file, name, "one has all moments and the other a diagonal: they cannot be merged")
	}
	out := &Input{K: a.K, Tokens: a.Tokens + b.Tokens}
	if a.AbsMax != nil && b.AbsMax != nil {
		out.AbsMax = make([]float32, a.K)
		for i := range out.AbsMax {
			out.AbsMax[i] = max(a.AbsMax[i], b.AbsMax[i])
		}
	}
	p, q := float64(a.Tokens)/float64(out.Tokens), float64(b.Tokens)/float64(out.Tokens)
	if !a.Full() {
		out.diagonal = make([]float32, a.K)
		for i := range out.diagonal {
			out.diagonal[i] = mixed(p, a.diagonal[i], q, b.diagonal[i])
		}
		return out, nil
	}
	out.moments = tensor.Computed(a.moments.Len(), func() ([]byte, error) { return mixMoments(p, a, q, b) })
	return out, nil
}

// mixMoments reads two triangles and writes their mean.
func mixMoments(p float64, a *Input, q float64, b *Input) ([]byte, error) {
	sums := make([]float32, 0, a.moments.Len()/4)
	err := a.rows(func(_ int, row []float32) { sums = append(sums, row...) })
	if err != nil {
		return nil, err
	}
	at := 0
	err = b.rows(func(_ int, row []float32) {
		for j, v := range row {
			sums[at+j] = mixed(p, sums[at+j], q, v)
		}
		at += len(row)
	})
	return bytesOf(sums), err
}

func mixed(p float64, x float32, q float64, y float32) float32 {
	return float32(p*float64(x) + q*float64(y))
}

// mergeSensitivity takes a tensor's mean where both know it, else what is known.
func mergeSensitivity(out, a, b *File) {
	n, m := float64(a.Source.Tokens), float64(b.Source.Tokens)
	for name, v := range a.Sensitivity {
		out.Sensitivity[name] = v
	}
	for name, v := range b.Sensitivity {
		if u, ok := a.Sensitivity[name]; ok && n+m > 0 {
			v = (n*u + m*v) / (n + m)
		}
		if !math.IsNaN(v) {
			out.Sensitivity[name] = v
		}
	}
}
