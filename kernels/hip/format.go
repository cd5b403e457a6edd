package hip

import (
	"fmt"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// A Format says how kernels read a matrix: its scheme and what they are
// compiled for. Formats are comparable; matrices of one format share kernels.
type Format struct {
	Scheme string // the scheme's name
	// defines are those of the scheme's file, NSTF_SCHEME first.
	defines string
	unit    int  // weights that a lane takes at once
	integer bool // products with rounded activations are offered
	fine    bool // 16 of those share a scale
	mins    bool // a weight is scale*code - minimum
	// narrow says that scales have at most 22 bits, as those of blocks do: halves times
	// whole numbers of a few bits. Those of bytes are multiplied with a float32.
	narrow bool
	// codes says that the first part is rows of codes that are arranged although
	// the scheme has no blocks.
	codes bool
	Hadamard
}

// A Weight is a matrix W[N][K] in device memory, laid out as its Format's Parts
// say. Data is at a multiple of 256 bytes.
type Weight struct {
	Format Format
	N, K   int
	Data   Address
}

// FormatOf returns how rows of k weights are read. It fails with an
// UnsupportedError for what no kernel reads.
func FormatOf(s *scheme.Scheme, params map[string]int64, k int64) (Format, error) {
	f := Format{Scheme: s.Name, defines: "NSTF_SCHEME=" + s.Basename()}
	switch {
	case s.DType == tensor.C64:
		return f, formats.Unsupportedf("", "", "weights of scheme %q on a GPU", s.Name)
	case s.Plain():
		f.plain(s, k)
	case s.BlockBytes > 0:
		f.unit, f.integer, f.fine, f.mins, f.narrow = 32, true, s.Group == 16, s.Mins, s.Scale != scheme.ScaleE4M3
		if s.BlockBytes > s.Block { // codes are bytes: 16 of them are a lane's load
			f.unit = 16
		}
		if s.Name == "nvfp4" {
			f.define("NVFP4_ROWS=%d", short(params["rows"]))
		}
	case s.Name == "affine":
		f.affine(params, k)
	case s.Name == "fp8":
		rows, cols := params["rows"], params["cols"]
		f.unit = unitOf(16, k, cols)
		f.define("FP8_ROWS=%d FP8_COLS=%d FP8_SCALE=%d FP8_UNIT=%d", short(rows), short(cols), params["scale"], f.unit)
	case s.Name == "nf4":
		f.unit = unitOf(32, k, params["block"])
		f.define("NF4_BLOCK=%d NF4_NESTED=%d NF4_UNIT=%d", params["block"], params["nested"], f.unit)
	case s.Name == "tcq":
		f.tcq(params)
	default:
		return f, formats.Unsupportedf("", "", "weights of scheme %q on a GPU", s.Name)
	}
	if f.unit > 1 && k%int64(f.unit) != 0 {
		return f, formats.Errorf("", "", "rows of %d weights of %s are not whole units of %d", k, s.Name, f.unit)
	}
	return f, nil
}

func (f *Format) define(format string, args ...any) {
	f.defines += " " + fmt.Sprintf(format, args...)
}

// unitOf is the unit, where rows and groups are whole ones, and otherwise 1.
func unitOf(unit int, sizes ...int64) int {
	for _, n := range sizes {
		if n%int64(unit) != 0 {
			return 1
		}
	}
	return unit
}

// short keeps a number that divides indices below 2^31 within an int.
func short(n int64) int64 { return min(n, 1<<31-1) }

func (f *Format) plain(s *scheme.Scheme, k int64) {
	f.defines = "NSTF_SCHEME=plain"
	f.unit = 1
	switch s.DType {
	case tensor.F32:
		f.unit = unitOf(4, k)
	case tensor.F16, tensor.BF16:
		f.unit = unitOf(8, k)
	}
	f.define("PLAIN_TYPE=%d PLAIN_UNIT=%d", s.ID, f.unit)
}

func (f *Format) affine(params map[string]int64, k int64) {
	bits, group := params["bits"], params["group"]
	whole := 0
	f.unit, f.mins = 1, params["zero"] != 0
	if (bits == 4 || bits == 8) && params["index"] == 0 && k%32 == 0 && (group%32 == 0 || group >= k) {
		whole, f.unit, f.integer, f.codes, f.fine = 1, int(128/bits), true, bits == 4, bits == 8
	}
	f.define("AFFINE_BITS=%d AFFINE_GROUP=%d AFFINE_SCALE=%d AFFINE_ZERO=%d AFFINE_INDEX=%d AFFINE_WHOLE=%d",
		bits, short(group), params["scale"], params["zero"], short(params["index"]), whole)
}

// Integer reports whether products with activations rounded to bytes are
// offered. Where not, activations stay float32 in the default mode too.
func (f Format) Integer() bool { return f.integer }

// Fine reports whether 16 of those activations share a scale, as on the processor,
// rather than 32 (docs/decisions/0010-finer-activations.md).
func (f Format) Fine() bool { return f.fine }

// Name names the format in kernels' symbols: the basename of its scheme's file.
func (f Format) Name() string {
	name, _, _ := strings.Cut(strings.TrimPrefix(f.defines, "NSTF_SCHEME="), " ")
	return name
}

// A Part is where a part of a stored tensor lies in the matrix's buffer.
type Part struct {
	Offset, Bytes int64
	// Arranged says that the part goes through [Arrange] on its way there.
	Arranged bool
}

// partAlign is what every part's offset is a multiple of.
const partAlign = 16

// Parts lays out the parts of a tensor of this shape, in the order of the
// scheme's page, and returns the bytes of the buffer.
func (f Format) Parts(shape []int64, params map[string]int64) (parts []Part, bytes int64, err error) {
	s, ok := scheme.ByName(f.Scheme)
	if !ok {
		return nil, 0, formats.Unsupportedf("", "", "scheme %q", f.Scheme)
	}
	specs, err := s.Parts(shape, params)
	if err != nil {
		return nil, 0, err
	}
	for i, p := range specs {
		parts = append(parts, Part{Offset: bytes, Bytes: p.Bytes, Arranged: i == 0 && f.arrangement() != nil})
		bytes += (p.Bytes + partAlign - 1) / partAlign * partAlign
	}
	return parts, bytes, nil
}

// arrangement returns how blocks are arranged, nil where they lie as stored.
func (f Format) arrangement() *arrangement {
	if f.codes {
		return arrangedCodes()
	}
	if f.Rotated() {
		return arrangedTiles(f.bits())
	}
	return arranged(f.Scheme)
}
