package stats

import (
	"encoding/json"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/pyjson"
)

// UsesVersion is what this program writes of uses, and the newest that it reads.
const UsesVersion = 1

// Uses are how often routers chose each expert of each mixture in a text. A package carries them as
// nstf/experts.json.
type Uses struct {
	Version  int64  `json:"version"`
	Text     string `json:"text"`      // without folders
	TextHash string `json:"text_hash"` // of the tokens of all windows, 64 hexadecimal digits
	Blocks   []Use  `json:"blocks"`    // ascending, those with mixtures
}

// A Use is of one block.
type Use struct {
	Block  int64   `json:"block"`
	Chosen []int64 `json:"chosen"` // tokens of each expert
}

// Uses returns what routers chose in the text that was measured, nil where nothing is known of a model's mixtures.
func (f *File) Uses(g *graph.Graph) *Uses {
	return usesOf(g, f.Source.Text, f.Source.TextHash, func(m *graph.MoE) (chosen []int64) {
		all := f.Experts[m.Up.Input]
		if len(all) != int(m.Experts) {
			return nil
		}
		for _, in := range all {
			chosen = append(chosen, in.Tokens)
		}
		return chosen
	})
}

// ExpectedUses are uses that take no less room than those of a model that is measured will: digits that do not compress;
// nil where it has no mixtures.
func ExpectedUses(g *graph.Graph, text, textHash string) *Uses {
	state := uint64(1)
	return usesOf(g, text, textHash, func(m *graph.MoE) (chosen []int64) {
		for range m.Experts {
			state = state*6364136223846793005 + 1442695040888963407 // Knuth's MMIX
			chosen = append(chosen, 1e7+int64(state>>33)%9e7)
		}
		return chosen
	})
}

// usesOf collects what is known of mixtures, nil where that is nothing.
func usesOf(g *graph.Graph, text, textHash string, chosen func(m *graph.MoE) []int64) *Uses {
	u := &Uses{Text: text, TextHash: textHash}
	for i := range g.Blocks {
		if m := g.Blocks[i].MoE; m != nil {
			if n := chosen(m); n != nil {
				u.Blocks = append(u.Blocks, Use{Block: int64(i), Chosen: n})
			}
		}
	}
	if u.Blocks == nil {
		return nil
	}
	return u
}

// Encode returns the JSON, a block a line.
func (u *Uses) Encode() []byte {
	c := *u
	if c.Version == 0 {
		c.Version = UsesVersion
	}
	raw, err := json.Marshal(&c)
	if err != nil {
		panic(err) // strings and integers
	}
	return append(raw, '\n')
}

// Most blocks and experts that uses may name, and most tokens of one.
const mostBlocks, mostExperts, mostTokens = 1 << 16, 1 << 16, 1 << 48

// ParseUses reads uses; file names them in errors, which are [*formats.FormatError].
func ParseUses(file string, data []byte) (*Uses, error) {
	u := &Uses{}
	r := pyjson.NewScanner(file, 0, data)
	err := r.Record("", []pyjson.Member{
		{Name: "version", Read: r.Version(&u.Version, UsesVersion, "use of experts", "package")},
		{Name: "text", Read: r.Text(&u.Text)},
		{Name: "text_hash", Read: r.Text(&u.TextHash)},
		{Name: "blocks", Read: func() error {
			return r.Array(func() error {
				var b Use
				err := r.Record("blocks", []pyjson.Member{
					{Name: "block", Read: r.Integer("block", &b.Block)},
					{Name: "chosen", Read: r.Integers("chosen", &b.Chosen)},
				})
				u.Blocks = append(u.Blocks, b)
				return err
			})
		}},
	})
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return nil, err
	}
	last := int64(-1)
	for _, b := range u.Blocks {
		if b.Block <= last || b.Block >= mostBlocks || len(b.Chosen) == 0 || len(b.Chosen) > mostExperts || slices.Min(b.Chosen) < 0 || slices.Max(b.Chosen) > mostTokens {
			return nil, formats.Errorf(file, "blocks", "counts of %d experts of block %d, behind block %d", len(b.Chosen), b.Block, last)
		}
		last = b.Block
	}
	return u, nil
}

// Of returns how often each of a block's experts was chosen, nil where that is not known.
func (u *Uses) Of(block, experts int) []int64 {
	if u == nil {
		return nil
	}
	for _, b := range u.Blocks {
		if b.Block == int64(block) && len(b.Chosen) == experts {
			return b.Chosen
		}
	}
	return nil
}
