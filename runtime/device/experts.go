package device

// Blocks is a set of a graph's blocks.
type Blocks map[int]bool

// Experts computes what the routed experts of blocks give, whose matrices lie in the
// processor's memory, while a [Stage] of another device computes the rest of those blocks. Why:
// docs/decisions/0026-experts-by-the-processor.md.
//
// It is used by one goroutine at a time.
type Experts interface {
	// Sum computes r.Sum for a block of the graph.
	Sum(block int, r *Routed) error

	// FewRows returns the most rows that are few, as [Stage.FewRows] does.
	FewRows() int

	// Memory returns the bytes of the weights and of the work space.
	Memory() Memory

	Close() error
}

// Routed are rows whose experts are chosen: L is what an expert reads and gives of a row.
type Routed struct {
	Prompt bool      // the rows are in the order of prompts: see [Batch.Few]
	X      []float32 // [T][L]: what experts read
	Chosen []int32   // [T][TopK]: experts
	Share  []float32 // [T][TopK]: factors on what they give, or read
	Sum    []float32 // [T][L]: what all of a row's experts give together
	// Elsewhere are experts [Experts] that somebody else computes: they add nothing to Sum. nil: none.
	Elsewhere []bool
}
