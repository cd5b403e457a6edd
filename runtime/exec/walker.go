package exec

import (
	"fmt"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/runtime/device"
)

// A Walker runs texts through a span of a model, hidden states in and hidden states out,
// so that a model can be walked block by block with the work space of one: for
// calibration, and for measuring behind blocks that have been compressed already.
// It serves one goroutine at a time.
//
// Hidden states are those of windows, one behind the other: rows x[T][D], in the
// memory of its device or in the processor's. Where blocks read keys and values
// of blocks before the span, a row has those behind its hidden state, as
// [graph.Graph.RowWidth] says.
type Walker struct {
	g      *graph.Graph
	on     *Opened
	span   device.Span
	stage  device.Stage
	beside int // windows that a pass takes
	row    []float32
}

// NewWalker opens a span. tensor returns the stored tensors by the names that the
// graph gives them; those of other spans are not asked for. Of the options, Context is
// the longest window (0: as long as it may be; a GPU wants to know), Sequences has no
// meaning here. Errors are those of [New].
func NewWalker(file string, g *graph.Graph, tensor func(string) formats.Tensor, span device.Span, o Options) (*Walker, error) {
	if err := g.Check(); err != nil {
		return nil, formats.In(file, err)
	}
	o = walkOptions(o)
	stage, _, err := newStage(g, span, tensor, &o)
	if err != nil {
		return nil, formats.In(file, err)
	}
	return &Walker{g: g, on: o.On, span: span, stage: stage, beside: o.Sequences}, nil
}

// walkOptions are those of the stage of a walk. Short windows share passes.
func walkOptions(o Options) Options {
	o.Sequences, o.Verify, o.walk = 1, true, true
	switch {
	case o.On == nil && o.Device.Kind != "" && o.Device.Kind != "cpu":
	case o.On == nil:
		if o.Context > 0 {
			o.Sequences = windowsBeside(o.Context)
		}
		o.Context = longest
	case o.Context > 0:
		if o.Device.Rows == 0 {
			o.Device.Rows = rowsTogether // whatever is free: bits depend on it
		}
		o.Context = max(o.Context, device.FewRows)
		o.Sequences = windowsBeside(o.Context)
	}
	return o
}

// windowsBeside is how many windows of so many positions share a pass.
func windowsBeside(context int64) int { return int(min(max(rowsTogether/context, 1), windowsTogether)) }

const (
	// longest is the most positions of a sequence that the processor walks.
	longest = 1 << 24
	// rowsTogether and windowsTogether bound the windows that a pass takes.
	rowsTogether, windowsTogether = 2048, 64
)

// Close ends its threads, or gives the GPU's memory back.
func (walk *Walker) Close() error { return walk.stage.Close() }

// A Part is rows from one on.
type Part struct {
	Rows device.Rows // nil: none
	At   int
	// Width is the numbers of a row of Rows, of which the first ones count. 0: as many
	// as go into the span, or come out of it.
	Width int
}

// taken returns n rows from row at of a part on, as they go into the span.
func (walk *Walker) taken(from Part, at, n int) (device.Hidden, error) {
	h := from.Rows.Slice(from.At+at, from.At+at+n)
	width := int(walk.g.RowWidth(walk.span.Lo))
	if from.Width == 0 || from.Width == width {
		return h, nil
	}
	if need := n * from.Width; cap(walk.row) < need {
		walk.row = make([]float32, need)
	}
	x := walk.row[:n*from.Width]
	if err := h.Read(x); err != nil {
		return nil, err
	}
	for i := range n {
		copy(x[i*width:(i+1)*width], x[i*from.Width:])
	}
	return device.Host(x[:n*width]), nil
}

// given puts n rows that came out of the span into a part, from row at on.
func (walk *Walker) given(to Part, at, n int, h device.Hidden) error {
	width := int(walk.g.RowWidth(walk.span.Hi))
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
func (walk *Walker) Embed(to Part, windows [][]int32) error {
	for _, tokens := range windows {
		for i, id := range tokens {
			if id < 0 || int64(id) >= walk.g.Vocab {
				return formats.Errorf("", "", "token %d at position %d is not below the vocabulary of %d", id, i, walk.g.Vocab)
			}
		}
	}
	return walk.walk(Part{}, to, windows)
}

// Transform runs the span's blocks over windows. What comes out may go where they were,
// or nowhere.
func (walk *Walker) Transform(to, from Part, windows [][]int32) error {
	return walk.walk(from, to, windows)
}

// walk runs windows through the span.
func (walk *Walker) walk(from, to Part, windows [][]int32) error {
	return walk.passes(from, windows, false, func(pass device.Pass, at, n int) error {
		if to.Rows == nil {
			return nil
		}
		return walk.given(to, at, n, pass.Hidden())
	})
}

// passes runs windows through the span and calls f after each pass with the rows that
// it was of, counted from the first.
func (walk *Walker) passes(from Part, windows [][]int32, wanted bool, f func(pass device.Pass, at, n int) error) error {
	for lo := 0; len(windows) > 0; {
		n, rows := 1, len(windows[0])
		for n < min(len(windows), walk.beside) && rows+len(windows[n]) <= walk.stage.MaxRows() {
			rows += len(windows[n])
			n++
		}
		if err := walk.together(from, lo, windows[:n], wanted, f); err != nil {
			return err
		}
		lo, windows = lo+rows, windows[n:]
	}
	return nil
}

// together runs windows through passes: several through one, or one through as many as
// it takes.
func (walk *Walker) together(from Part, lo int, windows [][]int32, wanted bool, f func(pass device.Pass, at, n int) error) (err error) {
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
		st, err := walk.stage.NewState(int64(len(w)))
		if err != nil {
			return err
		}
		states, total = append(states, st), total+len(w)
	}
	for at := 0; at < total; {
		n := min(total-at, walk.stage.MaxRows())
		batch, err := walk.batch(states, windows, at, n, wanted)
		if err != nil {
			return err
		}
		if !walk.span.Embed {
			if batch.Hidden, err = walk.taken(from, lo+at, n); err != nil {
				return err
			}
		}
		pass, err := walk.stage.Forward(batch)
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
func (walk *Walker) batch(states []device.State, windows [][]int32, at, n int, wanted bool) (*device.Batch, error) {
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
func (walk *Walker) Show(from Part, windows [][]int32) error {
	return walk.passes(from, windows, true, func(device.Pass, int, int) error { return nil })
}

// Gather has run, which walks all windows, walked with what the span's linears read
// being summed up, and calls f with the sums, input by input. Where a device has no room
// for the sums of all inputs at once it walks several times, last being said of the last.
func (walk *Walker) Gather(run func(last bool) error, f func(*device.Sums) error) error {
	g, ok := walk.stage.(device.Gatherer)
	if !ok {
		return fmt.Errorf("exec: a %T gathers no sums", walk.stage)
	}
	groups, err := walk.on.together(device.Inputs(walk.g, walk.span))
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
func (walk *Walker) Logits(dst, x []float32) error {
	width, vocab := int(walk.g.Width), int(walk.g.Vocab)
	windows := slices.Collect(slices.Chunk(make([]int32, len(x)/width), walk.stage.MaxRows())) // of tokens that nobody looks at
	return walk.passes(Part{Rows: device.HostRows{X: x, Width: width}}, windows, true, func(pass device.Pass, at, n int) error {
		return pass.Logits(0, n, dst[at*vocab:(at+n)*vocab])
	})
}
