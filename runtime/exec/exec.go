package exec

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/runtime/cpu"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu"
	"github.com/nstf/nstf/runtime/place"
)

// Options say how a model is executed.
type Options struct {
	Threads int    // 0: as many as Go runs at once (GOMAXPROCS)
	Context int64  // positions of a sequence; 0: what the model was made for
	Level   string // SIMD level by its name; "": the best this machine runs
	// KV is how keys and values are kept: f32, f16 (relative error 2^-12), q8 (a
	// signed byte each, with scales: see kernels/cpu.KVQ8) or q5, q4 and q3
	// (docs/attention.md), or a list of one for each block, as
	// kernels/cpu.ParseKVFormats reads it; "": f16, or f32 where Exact is set.
	KV string
	// Exact asks for float32 throughout: activations, and keys and values where
	// KV does not say otherwise.
	Exact bool
	// Policy has steps of attention read some pages of keys and values alone; nil: they read
	// all.
	Policy *device.Policy
	// Activations is how they are rounded: "" for what Exact says, or
	// cpu.ActivationsLlamaCPP, which means nothing on a GPU.
	Activations string
	// Verify checks the hashes of weights that the processor maps, which reads all of
	// them first. What is copied to a GPU is checked on the way in any case.
	Verify bool
	// Sequences is how many sequences of Context positions have room at once; 0: one.
	// More and shorter ones may share it.
	Sequences int
	// Positions is how many positions all sequences have together, Context at least,
	// and on a GPU no more than fit; 0: what Sequences says. Places is how many
	// sequences there can be at once on a GPU, of whatever length; 0: what suits
	// Sequences.
	Positions int64
	Places    int
	// Pin keeps each worker thread on a processor of its own. Linux only.
	Pin bool
	// Device is where the model runs. On a GPU, Threads, Level and Pin mean
	// nothing, and a Context of 0 is what fits where the model's does not.
	Device Device
	// On is an opened device that it runs on instead; nil: Device says.
	On *Opened

	uses *stats.Uses // of the model's experts, in text; nil: nobody counted them
	walk bool        // of a [Walker]
}

// An Executor is a model ready to run: one stage, or several in a row.
type Executor struct {
	g       *graph.Graph
	context int64
	stages  []device.Stage
	sites   *sites        // that are opened beside their stages; nil: none are
	layout  *place.Layout // nil: one device has all
	pacer   *pacer        // that holds steps to the layout; nil: nothing keeps what they take
	maxRows int           // of a pass through all stages
	fewRows int           // of one of few
	// recurrent says that states go back to where they were kept alone, a few positions
	// apart; onward, that this is so for what is kept of the newest positions alone.
	recurrent, onward bool
	policy            *device.Policy // of attention, where prompts may go by it; nil: they are dense

	// abreast says that stages have a device of their own each, and so work at once on passes of prompts, of
	// which each has leastAbreast rows at least.
	abreast      bool
	leastAbreast int

	mu      sync.Mutex // one call on the stages at a time
	flight  flight
	flights []*flight // where stages are abreast
	rows    []float32 // logits of several rows
}

// New opens a model's weights: on the processor they are mapped, not read, to
// a GPU they are copied. Errors name the tensor. Close ends what it started; the
// model is the caller's to close, afterwards.
func New(m *model.Model, o Options) (*Executor, error) {
	if o.Device.laid() {
		if err := o.findUses(m); err != nil {
			return nil, err
		}
	}
	return newExecutor(m.Path, m.Graph, m.Tensor, o)
}

// Alone is New with a sequence.
func Alone(m *model.Model, o Options) (*Executor, *Sequence, error) {
	e, err := New(m, o)
	if err != nil {
		return nil, nil, err
	}
	s, err := e.NewSequence()
	if err != nil {
		e.Close()
	}
	return e, s, err
}

func newExecutor(file string, g *graph.Graph, tensor func(string) formats.Tensor, o Options) (*Executor, error) {
	if err := g.Check(); err != nil {
		return nil, formats.In(file, err)
	}
	if err := o.checkHosted(); err != nil {
		return nil, formats.In(file, err)
	}
	if o.Device.laid() {
		e, err := newLaid(g, tensor, o)
		return e, formats.In(file, err)
	}
	stage, context, err := newStage(g, device.Whole(g), tensor, &o)
	if err != nil {
		return nil, formats.In(file, err)
	}
	e := join(g, context, stage)
	e.follow(o.Policy)
	return e, nil
}

// join makes a model of stages in a row.
func join(g *graph.Graph, context int64, stages ...device.Stage) *Executor {
	e := &Executor{g: g, context: context, stages: stages, maxRows: stages[0].MaxRows(), fewRows: stages[0].FewRows(), recurrent: g.Recurrent(), leastAbreast: leastAbreast}
	for _, s := range stages {
		e.maxRows, e.fewRows = min(e.maxRows, s.MaxRows()), min(e.fewRows, s.FewRows())
		e.onward = e.onward || s.Room().Onward
	}
	e.recurrent = e.recurrent || e.onward
	if slices.ContainsFunc(g.Blocks, func(b graph.Block) bool { return b.MoE != nil }) {
		e.leastAbreast = e.maxRows
	}
	return e
}

// follow has the executor cut prompts as the policy wants it.
func (e *Executor) follow(p *device.Policy) { e.policy = p }

// PromptUnit returns at which multiples of positions a prompt may go on from what was kept of
// another, to the bits that it has as a whole: where blocks of its queries choose pages, a
// page's.
func (e *Executor) PromptUnit() int {
	if e.policy.ForPrompts() {
		return device.PolicyPage
	}
	return 1
}

// last is the stage with the head.
func (e *Executor) last() device.Stage { return e.stages[len(e.stages)-1] }

// Ahead returns how many passes of one sequence may be under way. Where the
// stage that embeds is not the one that chooses, tokens come by way of the host.
func (e *Executor) Ahead() int {
	if len(e.stages) > 1 {
		return 1
	}
	return e.stages[0].Ahead()
}

// Close ends the executor's threads, or gives the GPU's memory back.
func (e *Executor) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for _, s := range e.stages {
		errs = append(errs, s.Close())
	}
	e.pacer.learn()
	errs = append(errs, e.sites.close())
	return errors.Join(errs...)
}

// Layout returns which blocks lie on which device, nil where one has all and no limits
// were given.
func (e *Executor) Layout() *place.Layout { return e.layout }

// Meter returns what measures the device, nil for the processor, and where there are
// several. No pass may be running while it does.
func (e *Executor) Meter() device.Meter {
	if len(e.stages) > 1 {
		return nil
	}
	m, _ := e.last().(device.Meter)
	return m
}

// Activations returns what Options.Activations came to, "" where a GPU takes part.
func (e *Executor) Activations() (how string) {
	for _, s := range e.stages {
		c, ok := s.(*cpu.Engine)
		if !ok {
			return ""
		}
		how = c.Activations()
	}
	return how
}

// PagesRead returns the pages of keys and values that steps by Options.Policy have read, and rows of prompts
// where those go by it, and how many there were, both summed over steps or rows, blocks and key-value heads.
func (e *Executor) PagesRead() (read, held int64) {
	for _, s := range e.stages {
		if c, ok := s.(interface{ PagesRead() (read, held int64) }); ok {
			r, h := c.PagesRead()
			read, held = read+r, held+h
		}
	}
	return read, held
}

// PagesMoved returns how many pages of keys and values came to a GPU from the host's memory (Device.KVHost), and how
// many left it for that.
func (e *Executor) PagesMoved() (in, out int64) {
	for _, s := range e.stages {
		if g, ok := s.(*gpu.Engine); ok {
			i, o := g.PagesMoved()
			in, out = in+i, out+o
		}
	}
	return in, out
}

// MaxRows returns the most tokens of prompts that one turn takes, for which there has to be room at once: those of
// a pass, or of several where stages are abreast. Where the newest positions are kept otherwise than those
// behind, there is room for no more of them than a pass has.
func (e *Executor) MaxRows() int {
	if !e.abreast || e.onward {
		return e.maxRows
	}
	return perStage * len(e.stages) * min(mostAbreast, e.maxRows)
}

// Graph returns the graph that is executed.
func (e *Executor) Graph() *graph.Graph { return e.g }

// Context returns the positions of a sequence.
func (e *Executor) Context() int64 { return e.context }

// Memory returns the bytes of weights and work space.
func (e *Executor) Memory() device.Memory {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := device.Memory{Scratch: int64(cap(e.rows)) * 4}
	for _, f := range e.flights {
		all.Scratch += int64(cap(f.hidden)) * 4
	}
	add := func(m device.Memory) {
		all.Mapped, all.Resident, all.Scratch = all.Mapped+m.Mapped, all.Resident+m.Resident, all.Scratch+m.Scratch
	}
	for _, s := range e.stages {
		add(s.Memory())
	}
	if e.sites != nil && e.sites.experts != nil {
		add(e.sites.experts.Memory())
	}
	return all
}

// StateBytes returns what a sequence of so many positions takes, or an error
// where the number overflows.
func (e *Executor) StateBytes(positions int64) (sum int64, err error) {
	for _, s := range e.stages {
		n, err := s.StateBytes(positions)
		if err != nil {
			return 0, err
		}
		if sum += n; sum < 0 {
			return 0, fmt.Errorf("a sequence of %d positions is larger than 2^63 bytes", positions)
		}
	}
	return sum, nil
}

// NewSequence returns an empty sequence of up to [Executor.Context] positions.
// Its memory grows with its length; Close gives it back.
func (e *Executor) NewSequence() (*Sequence, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &Sequence{e: e, logits: make([]float32, e.g.Vocab)}
	for _, stage := range e.stages {
		state, err := stage.NewState(e.context)
		if err != nil {
			s.release()
			return nil, err
		}
		s.states = append(s.states, state)
	}
	return s, nil
}

// forward makes room for a pass and runs it through all stages. No sequence has changed where there is
// no room for one.
func (e *Executor) forward(f *flight) error {
	for i, s := range f.seqs {
		if err := s.reserve(f.batch.Segments[i].Rows()); err != nil {
			for _, s := range f.seqs[:i+1] {
				s.giveBack()
			}
			return err
		}
	}
	return e.fly(f)
}

// headFloats bounds the logits that are held at once.
const headFloats = 8 << 20

// eachLogits computes the logits of wanted rows lo to hi of a pass and calls f with each.
func (e *Executor) eachLogits(pass device.Pass, lo, hi int, f func(row int, logits []float32) error) error {
	vocab := int(e.g.Vocab)
	return e.logits(pass, lo, hi, func(row int, logits []float32) error {
		for ; len(logits) > 0; row, logits = row+1, logits[vocab:] {
			if err := f(row, logits[:vocab]); err != nil {
				return err
			}
		}
		return nil
	})
}

// logits computes the logits of wanted rows lo to hi of a pass, some rows at a time, and
// calls f with those [n][Vocab] of the rows from one on.
func (e *Executor) logits(pass device.Pass, lo, hi int, f func(row int, logits []float32) error) error {
	vocab := int(e.g.Vocab)
	step := min(max(headFloats/vocab, 8), hi-lo)
	if cap(e.rows) < step*vocab {
		e.rows = make([]float32, step*vocab)
	}
	for ; lo < hi; lo += step {
		n := min(step, hi-lo)
		if err := pass.Logits(lo, lo+n, e.rows[:n*vocab]); err != nil {
			return err
		}
		if err := f(lo, e.rows[:n*vocab]); err != nil {
			return err
		}
	}
	return nil
}
