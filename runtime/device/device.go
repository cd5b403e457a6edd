// Package device says what runtime/exec asks of a device: run the rows of a
// [Batch] through a span of a graph's blocks, remember what sequences need of
// them, and give logits, or tokens chosen by them.
//
// A [Stage] holds one span of one model. It sees whole passes, not single
// operations, so that each device fuses, captures and orders them as suits it.
// Why passes: docs/decisions/0005-a-backend-runs-passes.md. Stages in a row are
// a model: hidden states go from one to the next as [Hidden] handles.
//
// Invariants: for one graph all stages give the same logits within the tolerance
// that their tests state, and one stage gives the same bits whatever its number
// of threads and, for up to [Stage.FewRows] rows, their company. A Stage is used by one goroutine
// at a time; only [Pass.Tokens] may be waited for beside that.
//
// Compatibility: experimental.
package device

import (
	"context"

	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/runtime/sample"
)

// A Span says which part of a model a stage holds: blocks Lo to Hi, with the
// embedding before them and the last norm and head behind them, or without.
type Span struct {
	Lo, Hi      int
	Embed, Head bool
}

// Whole is the span of a whole model.
func Whole(g *graph.Graph) Span { return Span{Hi: len(g.Blocks), Embed: true, Head: true} }

// Embedding is what stands before the blocks, Block the i-th of them alone, Head
// what stands behind them.
func Embedding() Span          { return Span{Embed: true} }
func Block(i int) Span         { return Span{Lo: i, Hi: i + 1} }
func Head(g *graph.Graph) Span { return Span{Lo: len(g.Blocks), Hi: len(g.Blocks), Head: true} }

// A Stage executes a span of one model on one device.
type Stage interface {
	Span() Span

	// NewState returns what an empty sequence of up to capacity positions
	// remembers. It reserves nothing but a place, and fails with a
	// cache.PlacesError where none is idle; the caller releases it.
	NewState(capacity int64) (State, error)

	// Forward begins a pass of all rows of the batch. Every state has room for
	// its segment ([State.Reserve]), and counts it from now on. Where Forward
	// fails (the device is lost) no state has changed.
	Forward(b *Batch) (Pass, error)

	// MaxRows returns the most rows that a batch may have. It bounds the work
	// space; weights are read once per pass.
	MaxRows() int

	// FewRows returns the most rows of a batch that are few, [FewRows] at least, unless
	// [Batch.Prompt] says otherwise. What is computed of such a row has the bits that it
	// has alone: it depends on the row's token, its position and what its sequence
	// holds, and not on how many rows travel with it or whose they are. A prompt's rows
	// have bits of their own, which do not depend on their company either. What it costs:
	// docs/decisions/0014-width-independence.md.
	FewRows() int

	// Ahead returns how many passes may be under way before the tokens of the
	// first are asked for: 1 where Forward returns when all is done.
	Ahead() int

	// Room returns what the stage's pools have room for.
	Room() Room

	// Memory returns the bytes of the weights and of the work space.
	Memory() Memory

	// StateBytes returns what a sequence of the given number of positions takes,
	// or an error where that number of bytes does not fit an int64.
	StateBytes(positions int64) (int64, error)

	Close() error
}

// A State is what one sequence remembers in the blocks of a stage. Its memory
// comes from a pool of fixed size.
type State interface {
	Len() int64   // positions held
	Bytes() int64 // memory held, shared or not

	// Reserve makes room for n positions in all, Len or more. It fails with a
	// cache.FullError where the pool has none; nothing has changed then. It
	// panics beyond the capacity.
	Reserve(n int64) error

	// Rewind forgets the positions from n on, and returns how many are left: n,
	// or fewer where the state cannot go back exactly there.
	Rewind(n int64) int64

	// Snapshot returns the state as it is now, which Restore goes back to as often
	// as wanted. It shares memory with the sequence until that goes on.
	Snapshot() (Snapshot, error)
	Restore(s Snapshot) error

	// Fork returns another sequence that begins as this one.
	Fork() (State, error)

	// Release gives all memory back. The state is not used afterwards.
	Release()
}

// A Snapshot is a state that was kept. Release gives its memory back.
type Snapshot interface {
	Len() int64
	Release()
}

// A Batch is the rows of one pass: new positions of one or more sequences, one
// segment after the other.
type Batch struct {
	Segments []Segment
	// Prompt says that the rows are a prompt's, however few they are; more than
	// [Stage.FewRows] are in any case. It decides which bits a row gets, and is to follow
	// from what the row is, not from what else there is to do.
	Prompt bool
	// Hidden is the hidden states of all rows, from the stage before; nil where
	// the stage embeds.
	Hidden Hidden
}

// Few reports whether the rows are computed in the order of few by a stage whose
// FewRows are so many.
func (b *Batch) Few(most int) bool { return !b.Prompt && b.Rows() <= most }

// A Segment is new tokens of one sequence. They follow the positions that the
// state holds.
type Segment struct {
	State State
	// Tokens are the new ones; nil: the one that was chosen for the state in the
	// pass before, which has not come back yet. Where [Stage.Ahead] is 1 it has.
	Tokens []int32
	// Length chooses the frequencies of rotary embeddings that depend on the
	// length of the sequence (see graph.Rope.Frequencies): that of the pass
	// which the tokens are a part of, the last position plus one.
	Length int64
	// Wanted is how many rows at the segment's end give logits, of a stage with a
	// head.
	Wanted int
	// Choose has the token behind the segment chosen by a stage with a head; nil:
	// nobody does. The last row is wanted then.
	Choose *Choice
}

// Rows returns the rows of a segment.
func (s *Segment) Rows() int {
	if s.Tokens == nil {
		return 1
	}
	return len(s.Tokens)
}

// A Choice says how a token is chosen.
type Choice struct {
	Sampler *sample.Sampler // of one segment of a batch alone
	// History is the sequence's tokens, the segment's included: what a repetition
	// penalty looks at. Where the segment has none, the device knows.
	History []int32
	// Mask has a bit for each token that may be chosen, token i being bit i%32 of
	// Mask[i/32], one at least; nil: all may. The segment has its tokens then, and its
	// device is not ahead of who reads.
	Mask []uint32
}

// UsualPlaces is how many states a GPU has places for where room is asked for so many sequences, of which none asked
// is one: there are forks, and sequences that begin before others end.
func UsualPlaces(sequences int) int { return 2*max(sequences, 1) + 6 }

// FewRows is the most new tokens of one sequence that are computed as few where nobody
// says which they are.
const FewRows = 16

// A Room is what the pools of a stage have room for.
type Room struct {
	PageSize    int   // positions of a page
	Pages, Free int64 // of all sequences and what is kept of them
	Places      int   // for states; 0: as many as are wanted
	Idle        int   // of those, the ones that no state has
	// Onward says that states go back a few positions, to none or to where they were kept:
	// they remember something of their newest positions alone.
	Onward bool
}

// Rows returns the number of rows.
func (b *Batch) Rows() int {
	n := 0
	for i := range b.Segments {
		n += b.Segments[i].Rows()
	}
	return n
}

// Wanted returns the number of rows that are wanted.
func (b *Batch) Wanted() int {
	n := 0
	for i := range b.Segments {
		n += b.Segments[i].Wanted
	}
	return n
}

// A Pass is what Forward began.
type Pass interface {
	// Logits computes the logits of the wanted rows lo to hi, counted through all
	// segments, into dst[hi-lo][Vocab]. It is asked before the stage's next
	// Forward; it panics for rows that nobody wanted.
	Logits(lo, hi int, dst []float32) error

	// Normed copies the hidden states of wanted rows lo to hi behind the last norm, as the
	// head reads them, to dst[hi-lo][D]; as Logits is asked for.
	Normed(lo, hi int, dst []float32) error

	// Tokens waits for the pass and returns the tokens that were chosen, one for each
	// segment with a Choice, in order.
	Tokens() ([]int32, error)

	// Hidden returns the hidden states of all rows behind the stage's last block,
	// of a stage without a head. They are valid until its next Forward.
	Hidden() Hidden
}

// Hidden is hidden states [T][D] in the memory of some device.
type Hidden interface {
	// Read copies them to dst[T][D].
	Read(dst []float32) error
}

// Host is hidden states in the processor's memory.
type Host []float32

// Read implements Hidden.
func (h Host) Read(dst []float32) error {
	copy(dst, h)
	return nil
}

// A Meter is a Stage that measures what its device can do: the processor's
// limits are runtime/place's to measure.
type Meter interface {
	Name() string // of the device
	// CopyRate copies device memory far beyond its caches once and returns the
	// bytes read and written in a second.
	CopyRate() (float64, error)
	// Profile times the kernels of a pass of so many rows, up to the last row's
	// logits: one such pass, or a step that chooses for one row, has been made
	// before. The whole pass comes first, then the largest.
	Profile(rows int) ([]KernelTime, error)
}

// A KernelTime is what the launches of one kernel take in a pass.
type KernelTime struct {
	Name         string  `json:"name"`
	Calls        int     `json:"calls"`
	Microseconds float64 `json:"us"` // of all calls
}

// A Tuner is a Stage that looks for the divisions of its work that are fastest
// on its device.
type Tuner interface {
	// Tune tries them on the model's weights, tells done about each operation, and
	// keeps what it found for all later stages on such a device; the file is
	// returned, "" where there is no place. A pass, and a step that chooses, have
	// been made before.
	Tune(ctx context.Context, done func(Tuned)) (file string, err error)
}

// A Tuned is what was found for one operation of a pass. Times are in
// microseconds, of all calls.
type Tuned struct {
	Operation string  `json:"operation"`
	Rows      int     `json:"rows"` // of the pass
	Calls     int     `json:"calls"`
	Usual     float64 `json:"usual_us"`
	Best      float64 `json:"best_us"`
	Choice    string  `json:"choice"`
}

// Memory says how many bytes a stage uses, states aside.
type Memory struct {
	Mapped   int64 // weights read from the mapped file, shared with the page cache
	Resident int64 // weights and tables copied into memory
	Scratch  int64 // work space, at its largest so far
}
