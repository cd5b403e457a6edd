// Package attention reads and writes policies of attention: what each key-value head of a
// model loses when its steps read fewer pages of keys and values, and what a model lost on
// text that nothing was fitted to.
//
// In: JSON, written by whoever measured it; a package carries it as nstf/attention.json.
// Out: a [Policy], whose [Policy.Shares] says how many pages each head reads where all
// together may read so many. docs/attention.md describes method and fields.
//
// Reading is strict: whatever is unknown, doubled, missing or not finite is a
// [formats.FormatError] with the file, the field and the byte's offset.
//
// Compatibility: fields may be added, never renamed or given another meaning; a policy of a
// newer version is refused by that number.
package attention

import (
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/pyjson"
)

// Version is what this program writes, and the newest that it reads.
const Version = 1

// A Policy is what was measured of a model's heads.
type Policy struct {
	Version int64  `json:"version"`
	Source  Source `json:"source"`
	// Grid are the shares of pages that heads were measured at, ascending, below 1.
	Grid     []float64 `json:"grid"`
	Heads    []Head    `json:"heads"`
	Measured []Point   `json:"measured"`
	// Prompts are what whole prompts lost whose blocks of queries chose pages; none: nobody
	// measured it, and prompts are dense.
	Prompts []Point `json:"prompts,omitempty"`
}

// A Source says what was measured on what.
type Source struct {
	Model    string `json:"model"`     // without folders
	Text     string `json:"text"`      // without folders
	TextHash string `json:"text_hash"` // of the tokens of all windows, 64 hexadecimal digits
	Context  int64  `json:"context"`   // tokens of a window
	Windows  int64  `json:"windows"`   // that heads were measured on
	Held     int64  `json:"held_windows"`
	Steps    int64  `json:"steps"` // of each window
}

// A Head is one key-value head.
type Head struct {
	Block int64 `json:"block"`
	Head  int64 `json:"head"`
	// KLD is the mean KL divergence from dense attention, in nats, where this head alone
	// reads the shares of the grid.
	KLD []float64 `json:"kld"`
	// Prompt is the same where blocks of a prompt's queries choose; none: nobody measured it.
	Prompt []float64 `json:"prompt,omitempty"`
}

// A Point is what all heads together lost with the shares of a policy, on held-out text, in
// steps or in prompts.
type Point struct {
	Pages float64 `json:"pages"` // asked for: the mean share of all heads
	Read  float64 `json:"read"`  // that were read, with steps that read all
	KLD   float64 `json:"kld"`
	SE    float64 `json:"se"`
	Top1  float64 `json:"top1"` // share of steps, or of positions, with the same most likely token
}

// Shares returns what share of its pages each head of so many blocks reads, where the mean
// over all heads is pages, at least the smallest of the grid: the shares whose divergences
// add up to the least, each head's taken as the lower convex hull of what was measured.
// Blocks without heads in the policy have none.
func (p *Policy) Shares(blocks int, pages float64) [][]float64 {
	return p.shares(blocks, pages, func(h *Head) []float64 { return h.KLD })
}

// PromptShares is [Policy.Shares] by what heads lose in prompts.
func (p *Policy) PromptShares(blocks int, pages float64) [][]float64 {
	return p.shares(blocks, pages, func(h *Head) []float64 { return h.Prompt })
}

// MostPromptKLD is the most that prompts may have lost with the shares that they get, in nats.
const MostPromptKLD = 0.01

// ForPrompts returns the shares that prompts are read by where steps read so many pages: those
// of as many or, where prompts lost more than [MostPromptKLD] with these, of the fewest that
// were measured and lost less; nil where none did, or nobody measured.
func (p *Policy) ForPrompts(blocks int, pages float64) [][]float64 {
	for i, m := range p.Prompts {
		last := i == len(p.Prompts)-1
		if (m.Pages >= pages || last) && m.KLD <= MostPromptKLD {
			return p.PromptShares(blocks, max(m.Pages, pages))
		}
	}
	return nil
}

func (p *Policy) shares(blocks int, pages float64, loss func(h *Head) []float64) [][]float64 {
	out := make([][]float64, blocks)
	var hulls [][]level
	room := pages * float64(len(p.Heads))
	for i := range p.Heads {
		h := &p.Heads[i]
		for int64(len(out[h.Block])) <= h.Head {
			out[h.Block] = append(out[h.Block], 0)
		}
		curve := []level{{cost: 1}}
		for j, x := range p.Grid {
			curve = append(curve, level{cost: x, loss: loss(h)[j]})
		}
		hulls = append(hulls, hull(curve))
		out[h.Block][h.Head] = p.Grid[0]
		room -= p.Grid[0]
	}
	for _, r := range rises(hulls) {
		take := min(r.cost, room)
		if take <= 0 {
			break
		}
		h := &p.Heads[r.curve]
		out[h.Block][h.Head] = min(out[h.Block][h.Head]+take, 1)
		room -= take
	}
	return out
}

// Loss returns what a head loses that reads a share of its pages, on straight lines between
// what was measured.
func (p *Policy) Loss(h *Head, share float64) float64 {
	at, kld := 1., 0.
	for i := len(p.Grid) - 1; i >= 0; i-- {
		if share >= p.Grid[i] {
			return h.KLD[i] + (kld-h.KLD[i])*(min(share, at)-p.Grid[i])/(at-p.Grid[i])
		}
		at, kld = p.Grid[i], h.KLD[i]
	}
	return kld
}

// Encode returns the JSON.
func (p *Policy) Encode() []byte {
	c := *p
	if c.Version == 0 {
		c.Version = Version
	}
	c.Grid, c.Heads, c.Measured = append([]float64{}, p.Grid...), append([]Head{}, p.Heads...), append([]Point{}, p.Measured...)
	c.Prompts = slices.Clone(p.Prompts)
	for i := range c.Heads {
		h := &c.Heads[i]
		h.KLD, h.Prompt = slices.Clone(h.KLD), slices.Clone(h.Prompt)
		for _, figures := range [][]float64{h.KLD, h.Prompt} {
			for j := range figures {
				figures[j] = pyjson.Round(figures[j])
			}
		}
	}
	for _, points := range [][]Point{c.Measured, c.Prompts} {
		for i := range points {
			m := &points[i]
			for _, x := range []*float64{&m.Pages, &m.Read, &m.KLD, &m.SE, &m.Top1} {
				*x = pyjson.Round(*x)
			}
		}
	}
	return pyjson.Lines(&c)
}

// Write writes the policy to a file, which appears when it is whole.
func (p *Policy) Write(out *atomicfile.Output) error { return out.WriteFile(p.Encode()) }

// maxFile is the most that a policy's file holds.
const maxFile = 16 << 20

// Read reads a policy's file.
func Read(path string) (*Policy, error) {
	data, err := formats.ReadFile(path, maxFile, "a policy of attention")
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// Parse reads a policy's bytes; file names them in errors.
func Parse(file string, data []byte) (*Policy, error) {
	r := reader{pyjson.NewScanner(file, 0, data), &Policy{}}
	if err := r.policy(); err != nil {
		return nil, err
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	return r.p, r.p.check(file)
}

type reader struct {
	*pyjson.Scanner
	p *Policy
}

func (r *reader) policy() error {
	p := r.p
	return r.Record("", []pyjson.Member{
		{Name: "version", Read: r.Version(&p.Version, Version, "policy", "package")},
		{Name: "source", Read: r.source},
		{Name: "grid", Read: func() error { return r.floats("grid", &p.Grid) }},
		{Name: "heads", Read: func() error { return r.Array(r.head) }},
		{Name: "measured", Read: func() error { return r.points("measured", &p.Measured) }},
		{Name: "prompts", Optional: true, Read: func() error { return r.points("prompts", &p.Prompts) }},
	})
}

func (r *reader) source() error {
	s := &r.p.Source
	return r.Record("source", []pyjson.Member{
		{Name: "model", Read: r.Text(&s.Model)},
		{Name: "text", Read: r.Text(&s.Text)},
		{Name: "text_hash", Read: r.Text(&s.TextHash)},
		{Name: "context", Read: r.Integer("context", &s.Context)},
		{Name: "windows", Read: r.Integer("windows", &s.Windows)},
		{Name: "held_windows", Read: r.Integer("held_windows", &s.Held)},
		{Name: "steps", Read: r.Integer("steps", &s.Steps)},
	})
}

func (r *reader) floats(what string, dst *[]float64) error {
	*dst = nil
	return r.Array(func() error {
		var x float64
		err := r.Float(what, &x)()
		*dst = append(*dst, x)
		return err
	})
}

func (r *reader) head() error {
	var h Head
	err := r.Record("heads", []pyjson.Member{
		{Name: "block", Read: r.Integer("block", &h.Block)},
		{Name: "head", Read: r.Integer("head", &h.Head)},
		{Name: "kld", Read: func() error { return r.floats("kld", &h.KLD) }},
		{Name: "prompt", Optional: true, Read: func() error { return r.floats("prompt", &h.Prompt) }},
	})
	r.p.Heads = append(r.p.Heads, h)
	return err
}

func (r *reader) points(what string, dst *[]Point) error {
	return r.Array(func() error {
		var m Point
		err := r.Record(what, []pyjson.Member{
			{Name: "pages", Read: r.Float("pages", &m.Pages)},
			{Name: "read", Read: r.Float("read", &m.Read)},
			{Name: "kld", Read: r.Float("kld", &m.KLD)},
			{Name: "se", Read: r.Float("se", &m.SE)},
			{Name: "top1", Read: r.Float("top1", &m.Top1)},
		})
		*dst = append(*dst, m)
		return err
	})
}

// Most blocks and heads that a policy may name.
const mostBlocks, mostHeads = 1 << 16, 1 << 12

// check says whether the parts fit each other.
func (p *Policy) check(file string) error {
	if len(p.Grid) == 0 || len(p.Grid) > 64 || !(p.Grid[0] > 0) || !(p.Grid[len(p.Grid)-1] < 1) {
		return formats.Errorf(file, "grid", "shares from above 0 to below 1 are needed, not %v", p.Grid)
	}
	for i, x := range p.Grid[1:] {
		if !(x > p.Grid[i]) {
			return formats.Errorf(file, "grid", "%g behind %g does not ascend", x, p.Grid[i])
		}
	}
	if len(p.Heads) == 0 {
		return formats.Errorf(file, "heads", "a policy without heads")
	}
	seen := map[[2]int64]bool{}
	for _, h := range p.Heads {
		at := [2]int64{h.Block, h.Head}
		switch {
		case h.Block < 0 || h.Block >= mostBlocks || h.Head < 0 || h.Head >= mostHeads:
			return formats.Errorf(file, "heads", "head %d of block %d", h.Head, h.Block)
		case seen[at]:
			return formats.Errorf(file, "heads", "head %d of block %d comes twice", h.Head, h.Block)
		case (len(p.Prompts) > 0 || h.Prompt != nil) && len(h.Prompt) != len(p.Grid):
			return formats.Errorf(file, "heads", "head %d of block %d has %d figures of prompts for a grid of %d", h.Head, h.Block, len(h.Prompt), len(p.Grid))
		case len(h.KLD) != len(p.Grid):
			return formats.Errorf(file, "heads", "head %d of block %d has %d figures for a grid of %d", h.Head, h.Block, len(h.KLD), len(p.Grid))
		}
		seen[at] = true
	}
	return nil
}

// Fits says whether the heads are those of a model: heads[i] of block i, 0 where a policy is
// not for it.
func (p *Policy) Fits(file string, heads []int64) error {
	have := make([]int64, len(heads))
	for _, h := range p.Heads {
		if h.Block >= int64(len(heads)) || h.Head >= heads[h.Block] {
			return formats.Errorf(file, "heads", "head %d of block %d is none of the model's", h.Head, h.Block)
		}
		have[h.Block]++
	}
	for i := range heads {
		if have[i] != heads[i] {
			return formats.Errorf(file, "heads", "block %d has %d heads, and the policy %d", i, heads[i], have[i])
		}
	}
	return nil
}
