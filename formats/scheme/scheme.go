// Package scheme is the table of quantization schemes: what the parts of a
// stored tensor mean, how large they are, and the reference decode of each.
//
// A [formats.Tensor] goes in; float32 rows, or the same codes cut, stacked or
// reordered by rows, come out. Everything here is exact: nothing chooses
// codes (quantize/fit does) and nothing is fast beyond plain loops (kernels
// are).
//
// Each scheme has a page under docs/schemes with its layout, its formula in
// the order of the float32 operations, and the vectors that hold it. The page
// is normative, and what it says never changes: ids and names are never
// reused, and decoding a stored tensor gives the same bits in every release.
// Every product that feeds a sum is rounded to float32 by an explicit
// conversion, so that no machine fuses the two.
//
// Rows of the table, tensors and matrices are immutable and may be used from
// any number of goroutines.
package scheme

import (
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// A Scheme is a row of the table. Its fields must not be changed.
type Scheme struct {
	// ID is written into packages and never reused. 1 to 31 are plain
	// element types, 32 to 95 ggml's blocks, 96 and up other families.
	ID uint16
	// Name is lower case, as packages, plans and commands spell it.
	Name string
	// GGML is the number of the ggml type with the same bytes, or -1.
	GGML int32
	// Block is the number of consecutive weights of a row that are coded
	// together: K must be a multiple of it. 1 where there is no such limit.
	Block int
	// BlockBytes is the size of a block in a scheme whose first part is a
	// run of blocks, 0 elsewhere.
	BlockBytes int
	// DType is the element type of a plain scheme, tensor.Invalid elsewhere.
	DType tensor.DType
	// FileType is the number that llama.cpp's enum llama_ftype (include/llama.h)
	// gives a file of such tensors, 0 for f32 and where it gives none: see
	// [Scheme.GGUFFileType].
	FileType uint32

	// Group is the number of neighbouring weights that share a scale in products
	// with rounded activations, and whose activations share one too: 32, or 16
	// where weights share scales by 16 or are bytes. 0 where no scheme of blocks
	// says it.
	Group int
	// Mins says that a weight is scale*code - minimum; else it is
	// scale*(code - zero).
	Mins bool
	// Scale is how a block's floating-point scales are stored, and ScaleAt where
	// in the block.
	Scale   ScaleKind
	ScaleAt []int
	// Ops is how many vector operations a product spends on a weight: one to
	// multiply it, more to take it out of its block. 0 counts as 1. Blocks take
	// less than trellis codes (a shift, a mask, a multiplication and a dot product
	// of bytes for each), for one operation takes out several.
	Ops int
	// Smaller names the scheme with smaller blocks that comes nearest in bits per
	// weight without being worse, where rows are no whole blocks: 4.5 for 4.5 and
	// less, 5.5 for 5.5, 8.5 for 6.56. "" stands for f16.
	Smaller string

	// Trained says that the codes suit weights that were trained for them, and lose
	// more of others than schemes of the same size: planners do not look at it unasked.
	Trained bool

	layout layout
}

// A ScaleKind is how the floating-point scales of blocks are stored.
type ScaleKind uint8

// Kinds of scales.
const (
	ScaleNone    ScaleKind = iota // no blocks
	ScaleF16                      // two bytes
	ScaleE8M0                     // a byte, a power of two: no sign and nothing that is not finite
	ScaleE4M3                     // a byte without sign: nothing that is not finite
	ScaleNibbles                  // an f16 in the upper nibbles of four 16-bit words
)

// A PartSpec says what one part of a tensor must be.
type PartSpec struct {
	Name  string
	DType tensor.DType
	Shape []int64
	Bytes int64
}

// A layout is what the schemes of one family share: how parts follow from
// shape and parameters, how they decode, and how they are cut by rows.
// Its methods may rely on Check having passed.
type layout interface {
	// parts lists the parts of a tensor of n rows of k weights.
	parts(s *Scheme, g geometry) ([]PartSpec, error)
	// open returns the decoder of checked parts.
	open(s *Scheme, g geometry, data [][]byte) (rowDecoder, error)
	// slice, concat and pick return new parts and parameters.
	slice(t *formats.Tensor, s *Scheme, row, n int64) (pieces, error)
	concat(ts []*formats.Tensor, s *Scheme) (pieces, error)
	pick(t *formats.Tensor, s *Scheme, index []int64) (pieces, error)
}

// A geometry is a checked shape with the parameters that came with it.
type geometry struct {
	shape  []int64
	n, k   int64
	params map[string]int64
}

// pieces are the parts of a tensor in the making.
type pieces struct {
	params map[string]int64
	data   []tensor.Blob
}

// A rowDecoder decodes row into dst, which has k elements.
type rowDecoder interface {
	decodeRow(dst []float32, row int64)
}

// Plain reports whether the scheme stores each element by itself.
func (s *Scheme) Plain() bool { return s.DType != tensor.Invalid }

// Operations returns Ops, at least 1.
func (s *Scheme) Operations() int { return max(s.Ops, 1) }

// GuessedFileType is llama.cpp's mark of a file whose type no number names
// (LLAMA_FTYPE_GUESSED).
const GuessedFileType = 1024

// GGUFFileType is what general.file_type says of a GGUF file whose weights are
// mostly of this scheme.
func (s *Scheme) GGUFFileType() uint32 {
	if s.FileType == 0 && s.DType != tensor.F32 {
		return GuessedFileType
	}
	return s.FileType
}

// Fits reports whether rows of k weights can be stored.
func (s *Scheme) Fits(k int64) bool { return k%int64(s.Block) == 0 }

// Basename is the name without underscores: that of the scheme's page, codec,
// fitter, kernels and vectors.
func (s *Scheme) Basename() string { return strings.ReplaceAll(s.Name, "_", "") }

// String returns the name.
func (s *Scheme) String() string { return s.Name }

// Parts lists the parts of a tensor of this shape, in order. params are the
// scheme's own, nil for the schemes that have none. It fails where the shape
// does not suit the scheme, a parameter is missing, unknown or out of range,
// or a size overflows.
func (s *Scheme) Parts(shape []int64, params map[string]int64) ([]PartSpec, error) {
	g, err := s.geometry("", shape, params)
	if err != nil {
		return nil, err
	}
	return s.layout.parts(s, g)
}

// Size returns the bytes of all parts together.
func (s *Scheme) Size(shape []int64, params map[string]int64) (int64, error) {
	specs, err := s.Parts(shape, params)
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, p := range specs {
		if sum += p.Bytes; sum < 0 {
			return 0, formats.Errorf("", "", "%s %v is larger than 2^63 bytes", s.Name, shape)
		}
	}
	return sum, nil
}

// BPW returns the bits per weight of a whole tensor, scales included, 0 for
// one without weights.
func (s *Scheme) BPW(shape []int64, params map[string]int64) (float64, error) {
	size, err := s.Size(shape, params)
	if err != nil {
		return 0, err
	}
	n, err := tensor.Elements(shape)
	if err != nil || n == 0 {
		return 0, err
	}
	return 8 * float64(size) / float64(n), nil
}

// geometry checks a shape against the scheme's block.
func (s *Scheme) geometry(name string, shape []int64, params map[string]int64) (geometry, error) {
	if _, err := tensor.Elements(shape); err != nil {
		return geometry{}, formats.Errorf("", name, "%v", err)
	}
	t := formats.Tensor{Shape: shape}
	g := geometry{shape: shape, params: params}
	g.n, g.k = t.Rows()
	if !s.Fits(g.k) {
		return geometry{}, formats.Errorf("", name,
			"rows of %d weights are not a multiple of the %d that a block of %s holds", g.k, s.Block, s.Name)
	}
	return g, nil
}

// Check says whether t is what its scheme allows: the parameters are known,
// and the parts have exactly the names, types, shapes and sizes that the page
// gives. Its errors are a *formats.FormatError that names the tensor, or a
// *formats.UnsupportedError for an unknown scheme.
func Check(t *formats.Tensor) error {
	_, _, err := check(t)
	return err
}

func check(t *formats.Tensor) (*Scheme, geometry, error) {
	if t.Form != "" {
		return nil, geometry{}, formats.Unsupportedf("", t.Name, "the form %q where one matrix is wanted", t.Form)
	}
	s, ok := ByName(t.Scheme)
	if !ok {
		return nil, geometry{}, formats.Unsupportedf("", t.Name, "scheme %q", t.Scheme)
	}
	g, err := s.geometry(t.Name, t.Shape, t.Params)
	if err != nil {
		return nil, g, err
	}
	specs, err := s.layout.parts(s, g)
	if err != nil {
		return nil, g, formats.Of(t.Name, err)
	}
	if len(t.Parts) != len(specs) {
		return nil, g, formats.Errorf("", t.Name, "%d parts, but %s has %d here", len(t.Parts), s.Name, len(specs))
	}
	for i, want := range specs {
		if err := checkPart(t.Name, &t.Parts[i], want); err != nil {
			return nil, g, err
		}
	}
	return s, g, nil
}

func checkPart(name string, p *formats.Part, want PartSpec) error {
	switch {
	case p.Name != want.Name:
		return formats.Errorf("", name, "part %q stands where %q belongs", p.Name, want.Name)
	case p.DType != want.DType:
		return formats.Errorf("", name, "part %q is %v instead of %v", p.Name, p.DType, want.DType)
	case !equalShape(p.Shape, want.Shape):
		return formats.Errorf("", name, "part %q has shape %v instead of %v", p.Name, p.Shape, want.Shape)
	case p.Data.Len() != want.Bytes:
		return formats.Errorf("", name, "part %q has %d bytes instead of %d", p.Name, p.Data.Len(), want.Bytes)
	}
	return nil
}

func equalShape(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// noParams refuses parameters, for the schemes that have none.
func noParams(s *Scheme, g geometry) error {
	for key := range g.params {
		return formats.Errorf("", "", "%s has no parameter %q", s.Name, key)
	}
	return nil
}
