package stats

import (
	"io"
	"math"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// A File is the statistics of one model on one text.
type File struct {
	Path   string // "" where they were measured, not read
	Source Source
	// Inputs are the distinct inputs of the model's linears, by
	// [graph.Linear.Input]. What the experts of a mixture read is here for all
	// of them together.
	Inputs map[string]*Input
	// Experts are what each expert of a mixture reads, by the same names. An
	// expert that no token came to has zero Tokens and no numbers.
	Experts map[string][]*Input
	// Sensitivity is, by the name of a tensor, the mean KL divergence (nats per
	// token) that an error in it costs, divided by the error's size relative to
	// the tensor: tr(E H E')/tr(W H W') with H the moments of what it reads, and
	// the identity for an embedding table. Empty where it was not measured.
	Sensitivity map[string]float64

	close []io.Closer
}

// New returns statistics of nothing.
func New() *File {
	return &File{Inputs: map[string]*Input{}, Experts: map[string][]*Input{}, Sensitivity: map[string]float64{}}
}

// A Source says where statistics come from.
type Source struct {
	Model     string `json:"model"`      // base name of the model's path
	ModelHash string `json:"model_hash"` // see Fingerprint; "" for foreign files, which know no model
	Text      string `json:"text"`       // base name of the text's path
	TextHash  string `json:"text_hash"`  // BLAKE3 of the windows' token ids
	Context   int    `json:"context"`    // tokens of a window
	Windows   int    `json:"windows"`    // windows measured
	Seed      uint64 `json:"seed"`       // of their choice
	Tokens    int64  `json:"tokens"`
	Level     string `json:"level"` // instruction set that measured
	Tool      string `json:"tool"`  // program and version
}

// An Input is what one or more linears read.
type Input struct {
	K      int
	Tokens int64     // 0: nothing came, and nothing below is set
	AbsMax []float32 // [K]; nil where unknown

	diagonal []float32   // [K]; nil with moments
	moments  tensor.Blob // float32, the packed triangle
}

// NewInput makes an input from the packed lower triangle of the mean of x x'.
// absmax may be nil.
func NewInput(k int, tokens int64, moments, absmax []float32) *Input {
	return &Input{K: k, Tokens: tokens, AbsMax: absmax, moments: tensor.BytesBlob(bytesOf(moments))}
}

// NewStoredInput is NewInput for a triangle that lies in a file: float32,
// little endian, K(K+1)/2 of them.
func NewStoredInput(k int, tokens int64, moments tensor.Blob, absmax []float32) *Input {
	return &Input{K: k, Tokens: tokens, AbsMax: absmax, moments: moments}
}

// NewDiagonal makes an input of which only the mean squares are known.
func NewDiagonal(k int, tokens int64, diagonal []float32) *Input {
	return &Input{K: k, Tokens: tokens, diagonal: diagonal}
}

// Full reports whether the input has all second moments, not the diagonal
// alone.
func (in *Input) Full() bool { return in.moments.Len() > 0 }

// Diagonal returns the mean squares [K] in a slice of the caller's; zeros where
// no token came. Errors are those of reading.
func (in *Input) Diagonal() ([]float64, error) {
	out := make([]float64, in.K)
	for i, v := range in.diagonal {
		out[i] = float64(v)
	}
	if !in.Full() {
		return out, nil
	}
	return out, in.rows(func(i int, row []float32) { out[i] = float64(row[i]) })
}

// Moments returns the mean of x x' as a full matrix [K][K] of the caller's: the
// diagonal alone where no more is known, zeros where no token came. It takes
// 8*K*K bytes. Errors are those of reading.
func (in *Input) Moments() ([]float64, error) {
	k := in.K
	out := make([]float64, k*k)
	if !in.Full() {
		for i, v := range in.diagonal {
			out[i*k+i] = float64(v)
		}
		return out, nil
	}
	if err := in.rows(func(i int, row []float32) {
		for j, v := range row {
			out[i*k+j] = float64(v)
		}
	}); err != nil {
		return nil, err
	}
	Mirror(out, k)
	return out, nil
}

// Mirror copies what is below the diagonal of h[K][K] above it.
func Mirror(h []float64, k int) {
	const side = 32 // of squares that are mirrored, so that both stay in the cache
	for i0 := 0; i0 < k; i0 += side {
		for j0 := 0; j0 <= i0; j0 += side {
			for i := i0; i < min(i0+side, k); i++ {
				for j, v := range h[i*k+j0 : i*k+min(j0+side, i)] {
					h[(j0+j)*k+i] = v
				}
			}
		}
	}
}

// rows reads the triangle row by row.
func (in *Input) rows(f func(i int, row []float32)) error {
	raw, row := make([]byte, 4*in.K), make([]float32, in.K)
	at := int64(0)
	for i := range in.K {
		p := raw[:4*(i+1)]
		if _, err := in.moments.ReadAt(p, at); err != nil && err != io.EOF {
			return err
		}
		at += int64(len(p))
		if err := tensor.ToFloat32(row[:i+1], p, tensor.F32); err != nil {
			return err
		}
		f(i, row[:i+1])
	}
	return nil
}

// Triangle returns K(K+1)/2, or an error where that is no possible size.
func Triangle(k int64) (int64, error) {
	if k < 0 || k > math.MaxInt32 {
		return 0, formats.Errorf("", "", "an input of %d features", k)
	}
	return k * (k + 1) / 2, nil
}

// Close closes the file that moments are read from. It returns nil for
// statistics that were measured.
func (f *File) Close() error {
	var err error
	for _, c := range f.close {
		if e := c.Close(); err == nil {
			err = e
		}
	}
	f.close = nil
	return err
}

// Owns makes Close close c too: what the inputs' moments are read from.
func (f *File) Owns(c io.Closer) { f.close = append(f.close, c) }

func bytesOf(x []float32) []byte {
	out := make([]byte, 4*len(x))
	if err := tensor.FromFloat32(out, x, tensor.F32); err != nil {
		panic(err) // sizes fit
	}
	return out
}
