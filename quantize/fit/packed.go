package fit

import (
	"encoding/binary"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/cpu"
)

// A Packed says what stands of an [Input] beside its numbers, little-endian: the diagonal of
// the moments (float64), of each rotation its panels, and of the plain factor D, the squares
// on the diagonal and what answers errors. It is for processes that have the same kernels and
// fit pieces of the same matrices: factors of an input take K^3/3 products each.
type Packed struct {
	K       int             `json:"k"`
	Width   int             `json:"width"` // of the kernels, see [cpu.Set.FixedWidth]
	Rotated []packedRotated `json:"rotated,omitempty"`
	Plain   *packedPlain    `json:"plain,omitempty"`
}

type packedRotated struct {
	Rotate  int     `json:"rotate"`
	Seed    int64   `json:"seed"`
	Block   int     `json:"block"`
	Damping float64 `json:"damping"`
	Trace   float64 `json:"trace"`
}

type packedPlain struct {
	Share   float64 `json:"share"`
	Damping float64 `json:"damping"`
}

// Prepare makes the factors that fits of a [Cuttable] code by these options want, where they
// are not made yet. It fails for moments that cannot be used.
func (in *Input) Prepare(c plan.Code, o Options) error {
	if in.err != nil {
		return in.err
	}
	if c.Bits > 0 {
		if _, err := in.feedback(TCQRotation(in.k), scheme.TCQTile, o.Seed, o.threads()); err != nil {
			return err
		}
	} else if turns(o.Effort) == 0 {
		return nil
	}
	_, err := in.factor(cpu.Best(), o.threads())
	return err
}

// Pack returns an input with the factors that have been made, to be read by [Packed.Unpack].
// The numbers are shared.
func (in *Input) Pack() (Packed, tensor.Blob) {
	in.mu.Lock()
	defer in.mu.Unlock()
	p := Packed{K: in.k, Width: cpu.Best().FixedWidth()}
	blobs := []tensor.Blob{tensor.NumbersBlob(in.own)}
	for r, f := range in.rotated {
		p.Rotated = append(p.Rotated, packedRotated{r.block, r.seed, f.Block, f.Damping, f.trace})
		for i := range f.behind {
			blobs = append(blobs, tensor.NumbersBlob(f.behind[i]), tensor.NumbersBlob(f.within[i]))
		}
	}
	if f := in.plain; f != nil {
		p.Plain = &packedPlain{f.share, f.damping}
		blobs = append(blobs, tensor.NumbersBlob(f.d))
		for i, row := range f.answers {
			blobs = append(blobs, tensor.NumbersBlob(f.own(i)))
			for j := range row {
				words, units := row[j].Right()
				blobs = append(blobs, tensor.NumbersBlob(words), tensor.NumbersBlob(units))
			}
		}
	}
	return p, tensor.Concat(blobs...)
}

// Unpack returns the input of packed numbers, which are kept and must not be changed. It can
// be fitted by with what was prepared, and knows no [Input.Moments]. Numbers of other kernels, or
// too few, are a FormatError.
func (p *Packed) Unpack(numbers []byte) (in *Input, err error) {
	set := cpu.Best()
	if p.K <= 0 || p.K > len(numbers)/8 || p.Width != set.FixedWidth() {
		return nil, formats.Errorf("", "", "factors of %d columns by kernels of width %d", p.K, p.Width)
	}
	r := unpacker{p: numbers}
	in = newInput(taken[float64](&r, p.K))
	for _, x := range p.Rotated {
		if x.Block != scheme.TCQTile || p.K%x.Block != 0 || r.short {
			return nil, formats.Errorf("", "", "factors of %d columns in blocks of %d", p.K, x.Block)
		}
		f := &Feedback{K: p.K, Block: x.Block, Damping: x.Damping, set: set, trace: x.Trace}
		for at := 0; at < p.K; at += feedbackPanel {
			to := min(at+feedbackPanel, p.K)
			f.behind = append(f.behind, taken[float32](&r, (to-at)*(p.K-to)))
			f.within = append(f.within, taken[float32](&r, (to-at)*(to-at)))
		}
		in.rotated[rotation{x.Rotate, x.Seed}] = f
	}
	if p.Plain != nil {
		in.plain = r.plain(set, p.K, p.Plain)
	}
	if r.short || len(r.p) > 0 {
		return nil, formats.Errorf("", "", "%d bytes of factors of %d columns", len(numbers), p.K)
	}
	return in, nil
}

// An unpacker takes numbers one after the other.
type unpacker struct {
	p     []byte
	short bool // there were fewer
}

// plain takes a factor.
func (r *unpacker) plain(set *cpu.Set, k int, is *packedPlain) *factor {
	f := &factor{k: k, share: is.Share, damping: is.Damping, d: taken[float32](r, k)}
	for from := 0; from < k && !r.short; from += factorPanel {
		n, p := min(factorPanel, k-from), len(f.squares)
		squares, answers := make([][]float32, p+1), make([]cpu.Fixed, p)
		squares[p] = taken[float32](r, n*squareStride)
		for q := range answers {
			words, units := set.RightSizes(n, factorPanel)
			w, u := taken[uint32](r, words), taken[float32](r, units)
			if !r.short {
				answers[q] = set.RightOf(n, factorPanel, w, u)
			}
		}
		f.squares, f.answers = append(f.squares, squares), append(f.answers, answers)
	}
	return f
}

// taken returns the next n numbers, none where there are fewer.
func taken[T tensor.Number](r *unpacker, n int) []T {
	var one [1]T
	if n *= binary.Size(one); n > len(r.p) {
		r.p, r.short = nil, true
		return nil
	}
	p := r.p[:n]
	r.p = r.p[n:]
	return tensor.Numbers[T](p)
}
