package exec

import (
	"fmt"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/runtime/device"
)

// A Stage is a span of a model that takes hidden states and gives hidden states,
// so that a model can be walked block by block with the work space of one: for
// calibration, and for measuring behind blocks that have been compressed already.
// It serves one goroutine at a time.
//
// Hidden states are those of windows, one behind the other: rows x[T][D], in the
// memory of the stage's device or in the processor's. Where blocks read keys and values
// of blocks before the span, a row has those behind its hidden state, as
// [graph.Graph.RowWidth] says.
type Stage struct {
	g      *graph.Graph
	on     *Opened
	span   device.Span
	stage  device.Stage
	beside int // windows that a pass takes
	row    []float32
}

// NewStage opens a span. tensor returns the stored tensors by the names that the
// graph gives them; those of other spans are not asked for. Of the options, Context is
// the longest window (0: as long as it may be; a GPU wants to know), Sequences has no
// meaning here. Errors are those of [New].
func NewStage(file string, g *graph.Graph, tensor func(string) formats.Tensor, span device.Span, o Options) (*Stage, error) {
	if err := g.Check(); err != nil {
		return nil, formats.In(file, err)
	}
	o = stageOptions(o)
	stage, _, err := newStage(g, span, tensor, &o)
	if err != nil {
		return nil, formats.In(file, err)
	}
	return &Stage{g: g, on: o.On, span: span, stage: stage, beside: o.Sequences}, nil
}

// stageOptions are those of a stage of a walk. On a GPU short windows share passes.
func stageOptions(o Options) Options {
	o.Sequences, o.Verify = 1, true
	switch {
	case o.On == nil && o.Device.Kind != "" && o.Device.Kind != "cpu":
	case o.On == nil:
		o.Context = longest
	case o.Context > 0:
		if o.Device.Rows == 0 {
			o.Device.Rows = rowsTogether // whatever is free: bits depend on it
		}
		o.Context = max(o.Context, device.FewRows)
		o.Sequences = int(min(max(rowsTogether/o.Context, 1), windowsTogether))
	}
	return o
}

const (
	// longest is the most positions of a sequence that the processor walks.
	longest = 1 << 24
	// rowsTogether and windowsTogether bound the windows that a GPU's pass takes.
	rowsTogether, windowsTogether = 2048, 64
)

// Close ends the stage's threads, or gives the GPU's memory back.
func (s *Stage) Close() error { return s.stage.Close() }

// A Part is rows from one on.
type Part struct {
	Rows device.Rows // nil: none
	At   int
	// Width is the numbers of a row of Rows, of which the first ones count. 0: as many
	// as go into the stage, or come out of it.
	Width int
}

// taken returns n rows from row at of a part on, as they go into the stage.
func (s *Stage) taken(from Part, at, n int) (device.Hidden, error) {
	h := from.Rows.Slice(from.At+at, from.At+at+n)
	width := int(s.g.RowWidth(s.span.Lo))
	if from.Width == 0 || from.Width == width {
		return h, nil
	}
	if need := n * from.Width; cap(s.row) < need {
		s.row = make([]float32, need)
	}
	x := s.row[:n*from.Width]
	if err := h.Read(x); err != nil {
		return nil, err
	}
	for i := range n {
		copy(x[i*width:(i+1)*width], x[i*from.Width:])
	}
	return device.Host(x[:n*width]), nil
}

// given puts n rows that came out of the stage into a part, from row at on.
func (s *Stage) given(to Part, at, n int, h device.Hidden) error {
	width := int(s.g.RowWidth(s.span.Hi))
	if to.Width == 0 || to.Width == width {
		return to.Rows.Store(to.At+at, n, h)
	}
	x := make([]float32, n*to.Width)
	if err := h.Read(x[:n*width]); err != nil {
		return err
	}
	for i := n - 1; i > 0; i-- { // the rows behind are out of the way
		copy(x[i*to.Width:i*to.Width+width], x[i*width:(i+1)*width])
		clear(x[i*to.Width+width : (i+1)*to.Width])
	}
	clear(x[min(width, len(x)):min(to.Width, len(x))])
	return to.Rows.Store(to.At+at, n, device.Host(x))
}

// Embed writes the hidden states before the first block of the model, for the tokens of
// windows. The span embeds.
func (s *Stage) Embed(to Part, windows [][]int32) error {
	for _, tokens := range windows {
		for i, id := range tokens {
			if id < 0 || int64(id) >= s.g.Vocab {
				return formats.Errorf("", "", "token %d at position %d is not below the vocabulary of %d", id, i, s.g.Vocab)
			}
		}
	}
	return s.walk(Part{}, to, windows)
}

// Transform runs the span's blocks over windows. What comes out may go where they were,
// or nowhere.
func (s *Stage) Transform(to, from Part, windows [][]int32) error {
	return s.walk(from, to, windows)
}

// walk runs windows through the stage.
func (s *Stage) walk(from, to Part, windows [][]int32) error {
	return s.passes(from, windows, false, func(pass device.Pass, at, n int) error {
		if to.Rows == nil {
			return nil
		}
		return s.given(to, at, n, pass.Hidden())
	})
}

// passes runs windows through the stage and calls f after each pass with the rows that
// it was of, counted from the first.
func (s *Stage) passes(from Part, windows [][]int32, wanted bool, f func(pass device.Pass, at, n int) error) error {
	for lo := 0; len(windows) > 0; {
		n, rows := 1, len(windows[0])
		for n < min(len(windows), s.beside) && rows+len(windows[n]) <= s.stage.MaxRows() {
			rows += len(windows[n])
			n++
		}
		if err := s.together(from, lo, windows[:n], wanted, f); err != nil {
			return err
		}
		lo, windows = lo+rows, windows[n:]
	}
	return nil
}

// together runs windows through passes: several through one, or one through as many as
// it takes.
func (s *Stage) together(from Part, lo int, windows [][]int32, wanted bool, f func(pass device.Pass, at, n int) error) (err error) {
	states := make([]device.State, 0, len(windows))
	defer func() {
		for _, st := range states {
			st.Release()
		}
	}()
	total := 0
	for _, w := range windows {
		if len(w) == 0 {
			continue
		}
		st, err := s.stage.NewState(int64(len(w)))
		if err != nil {
			return err
		}
		states, total = append(states, st), total+len(w)
	}
	for at := 0; at < total; {
		n := min(total-at, s.stage.MaxRows())
		batch, err := s.batch(states, windows, at, n, wanted)
		if err != nil {
			return err
		}
		if !s.span.Embed {
			if batch.Hidden, err = s.taken(from, lo+at, n); err != nil {
				return err
			}
		}
		pass, err := s.stage.Forward(batch)
		if err == nil {
			err = f(pass, lo+at, n)
		}
		if err != nil {
			return err
		}
		at += n
	}
	return nil
}

// batch is that of n rows from row at on of windows: all of several, or a part of one.
func (s *Stage) batch(states []device.State, windows [][]int32, at, n int, wanted bool) (*device.Batch, error) {
	b := &device.Batch{Prompt: true}
	for _, w := range windows {
		if len(w) == 0 {
			continue
		}
		st := states[len(b.Segments)]
		tokens := w
		if len(states) == 1 {
			tokens = w[at : at+n]
		}
		if err := st.Reserve(st.Len() + int64(len(tokens))); err != nil {
			return nil, err
		}
		segment := device.Segment{State: st, Tokens: tokens, Length: int64(len(w))}
		if wanted {
			segment.Wanted = len(tokens)
		}
		b.Segments = append(b.Segments, segment)
	}
	return b, nil
}

// Show has windows seen by the head, of which the span is that alone: nothing is
// computed but what it reads.
func (s *Stage) Show(from Part, windows [][]int32) error {
	return s.passes(from, windows, true, func(device.Pass, int, int) error { return nil })
}

// Gather has run, which walks all windows, walked with what the span's linears read
// being summed up, and calls f with the sums, input by input. Where a device has no room
// for the sums of all inputs at once it walks several times, last being said of the last.
func (s *Stage) Gather(run func(last bool) error, f func(*device.Sums) error) error {
	g, ok := s.stage.(device.Gatherer)
	if !ok {
		return fmt.Errorf("exec: a %T gathers no sums", s.stage)
	}
	groups, err := s.on.together(device.Inputs(s.g, s.span))
	if err != nil {
		return err
	}
	for i, inputs := range groups {
		if err := g.Gather(inputs); err != nil {
			return err
		}
		if err := run(i == len(groups)-1); err != nil {
			return err
		}
		if err := g.Sums(f); err != nil {
			return err
		}
	}
	return nil
}

// Logits writes the logits of hidden states x[T][D] behind the last block to
// dst[T][Vocab]. The span is the head alone.
func (s *Stage) Logits(dst, x []float32) error {
	width, vocab := int(s.g.Width), int(s.g.Vocab)
	windows := slices.Collect(slices.Chunk(make([]int32, len(x)/width), s.stage.MaxRows())) // of tokens that nobody looks at
	return s.passes(Part{Rows: device.HostRows{X: x, Width: width}}, windows, true, func(pass device.Pass, at, n int) error {
		return pass.Logits(0, n, dst[at*vocab:(at+n)*vocab])
	})
}
