package attention

import (
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/pyjson"
)

// KeptVersion is what this program writes of a Kept, and the newest that it reads.
const KeptVersion = 1

// A Kept is how the blocks of a model keep keys and values, chosen by what each loses in
// each format. A package carries it as nstf/kv.json.
type Kept struct {
	Version int64  `json:"version"`
	Source  Source `json:"source"`
	// Formats are those that blocks were measured in, that of the most bits first; the first
	// is what divergences are measured from.
	Formats []string    `json:"formats"`
	Blocks  []KeptBlock `json:"blocks"` // those that keep keys and values
	// Chosen names the format of every block of the model, in the order of blocks: of those
	// that keep nothing the first of Formats.
	Chosen   []string  `json:"chosen"`
	Measured KeptPoint `json:"measured"`
}

// A KeptBlock is one block.
type KeptBlock struct {
	Block   int64 `json:"block"`
	Numbers int64 `json:"numbers"` // of a position's keys and values
	// Bits are those of a number in each format, scales included, and KLD the mean KL
	// divergence, in nats, where this block alone is kept so.
	Bits []float64 `json:"bits"`
	KLD  []float64 `json:"kld"`
}

// A KeptPoint is what all blocks as chosen lose together, on held-out text.
type KeptPoint struct {
	Bits float64 `json:"bits"` // of a number, in the mean of all blocks
	KLD  float64 `json:"kld"`
	SE   float64 `json:"se"`
	Top1 float64 `json:"top1"` // share of positions with the same most likely token
}

// Choose returns the format of each block of Blocks, as an index of Formats, of which the
// divergences add up to the least, each block's curve taken as its lower convex hull, where a
// number takes bits in the mean: as many as there are at most, or as few as the formats
// allow. It returns those bits and the sum of the divergences.
func (k *Kept) Choose(bits float64) (chosen []int, mean, kld float64) {
	var hulls [][]level
	var have, numbers float64
	at := make([]level, len(k.Blocks))
	for i := range k.Blocks {
		b := &k.Blocks[i]
		n := float64(b.Numbers)
		curve := []level{{cost: b.Bits[0] * n}}
		for f := 1; f < len(b.Bits); f++ {
			if b.Bits[f] < b.Bits[0] {
				curve = append(curve, level{f, b.Bits[f] * n, b.KLD[f]})
			}
		}
		hulls = append(hulls, hull(curve))
		at[i] = hulls[i][0]
		numbers += n
		have += at[i].cost
	}
	for _, r := range rises(hulls) {
		if have+r.cost > bits*numbers*(1+1e-12) {
			break
		}
		have += r.cost
		at[r.curve] = r.to
	}
	for _, l := range at {
		chosen = append(chosen, l.of)
		kld += l.loss
	}
	return chosen, have / max(numbers, 1), kld
}

// Set takes over what was chosen for a model of so many blocks.
func (k *Kept) Set(blocks int, chosen []int) {
	k.Chosen = slices.Repeat([]string{k.Formats[0]}, blocks)
	for i, f := range chosen {
		k.Chosen[k.Blocks[i].Block] = k.Formats[f]
	}
}

// List returns what was chosen as --kv takes it.
func (k *Kept) List() string { return strings.Join(k.Chosen, ",") }

// Encode returns the JSON.
func (k *Kept) Encode() []byte {
	c := *k
	if c.Version == 0 {
		c.Version = KeptVersion
	}
	c.Formats, c.Chosen, c.Blocks = append([]string{}, k.Formats...), append([]string{}, k.Chosen...), append([]KeptBlock{}, k.Blocks...)
	for i := range c.Blocks {
		b := &c.Blocks[i]
		b.Bits, b.KLD = slices.Clone(b.Bits), slices.Clone(b.KLD)
		for j := range b.KLD {
			b.Bits[j], b.KLD[j] = pyjson.Round(b.Bits[j]), pyjson.Round(b.KLD[j])
		}
	}
	for _, x := range []*float64{&c.Measured.Bits, &c.Measured.KLD, &c.Measured.SE, &c.Measured.Top1} {
		*x = pyjson.Round(*x)
	}
	return pyjson.Lines(&c)
}

// Write writes a file, which appears when it is whole.
func (k *Kept) Write(out *atomicfile.Output) error { return out.WriteFile(k.Encode()) }

// ReadKept reads a file.
func ReadKept(path string) (*Kept, error) {
	data, err := formats.ReadFile(path, maxFile, "a choice of bits for keys and values")
	if err != nil {
		return nil, err
	}
	return ParseKept(path, data)
}

// ParseKept reads a file's bytes; file names them in errors.
func ParseKept(file string, data []byte) (*Kept, error) {
	k := &Kept{}
	r := reader{pyjson.NewScanner(file, 0, data), &Policy{}}
	if err := r.kept(k); err != nil {
		return nil, err
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	k.Source = r.p.Source
	return k, k.check(file)
}

func (r *reader) kept(k *Kept) error {
	return r.Record("", []pyjson.Member{
		{Name: "version", Read: r.Version(&k.Version, KeptVersion, "choice of bits", "package")},
		{Name: "source", Read: r.source},
		{Name: "formats", Read: r.Texts(&k.Formats)},
		{Name: "blocks", Read: func() error {
			return r.Array(func() error {
				var b KeptBlock
				err := r.Record("blocks", []pyjson.Member{
					{Name: "block", Read: r.Integer("block", &b.Block)},
					{Name: "numbers", Read: r.Integer("numbers", &b.Numbers)},
					{Name: "bits", Read: func() error { return r.floats("bits", &b.Bits) }},
					{Name: "kld", Read: func() error { return r.floats("kld", &b.KLD) }},
				})
				k.Blocks = append(k.Blocks, b)
				return err
			})
		}},
		{Name: "chosen", Read: r.Texts(&k.Chosen)},
		{Name: "measured", Read: func() error {
			m := &k.Measured
			return r.Record("measured", []pyjson.Member{
				{Name: "bits", Read: r.Float("bits", &m.Bits)},
				{Name: "kld", Read: r.Float("kld", &m.KLD)},
				{Name: "se", Read: r.Float("se", &m.SE)},
				{Name: "top1", Read: r.Float("top1", &m.Top1)},
			})
		}},
	})
}

// check says whether the parts fit each other.
func (k *Kept) check(file string) error {
	if len(k.Formats) == 0 || len(k.Formats) > 64 {
		return formats.Errorf(file, "formats", "%d of them", len(k.Formats))
	}
	last := int64(-1)
	for _, b := range k.Blocks {
		switch {
		case b.Block <= last || b.Block >= int64(len(k.Chosen)):
			return formats.Errorf(file, "blocks", "block %d behind %d, of %d", b.Block, last, len(k.Chosen))
		case b.Numbers < 1 || len(b.Bits) != len(k.Formats) || len(b.KLD) != len(k.Formats):
			return formats.Errorf(file, "blocks", "block %d has %d numbers, %d and %d figures for %d formats", b.Block, b.Numbers, len(b.Bits), len(b.KLD), len(k.Formats))
		}
		last = b.Block
	}
	for i, f := range k.Chosen {
		if !slices.Contains(k.Formats, f) {
			return formats.Errorf(file, "chosen", "%q, of block %d, is none of %s", f, i, strings.Join(k.Formats, ", "))
		}
	}
	return nil
}

// Fits says whether it is of a model of so many blocks.
func (k *Kept) Fits(file string, blocks int) error {
	if len(k.Chosen) != blocks {
		return formats.Errorf(file, "chosen", "%d blocks are named, the model has %d", len(k.Chosen), blocks)
	}
	return nil
}
