package hip

import (
	"encoding/binary"
	"math"
)

// Sample picks a token for each row from its logits, by the rules of
// runtime/sample: repetition penalty, temperature, top-k, top-p, min-p, draw.
// Weights exp((logit-max)/temperature) are whole multiples of 2^-45, which sum
// exactly in any order: tokens less probable than 2^-46 of the best are never
// drawn, and otherwise a seed gives runtime/sample's tokens unless the random
// number falls within some 1e-11 of a border.
//
// The penalty changes the logits in place. Rows whose position is negative are
// left alone.
type Sample struct {
	Rows
	Vocab  int     // under MostVocab
	Logits Address // f32[T][Vocab]
	Token  Address // i32[T]: the result
	// Greedy says that every row takes its most probable token, the lowest id
	// among equals, without penalty: then nothing below is read.
	Greedy bool
	// Options holds a SampleOptions for each sequence, Seeds the key of its random
	// numbers, u64 [sequences]: a row's is runtime/sample's Random of the key and
	// the position behind the row's own.
	Options, Seeds Address
	// History holds the tokens i32[sequences][Stride] of each sequence by
	// position; those up to the row's own count for the penalty.
	History Address
	Stride  int
	// Masks, where given, holds MaskWords of u32 for each sequence: whether it has a mask,
	// then a bit for each token that may be picked, token i being bit i%32 of word 1+i/32.
	// Other logits are made NaN.
	Masks Address
	// Scratch is ScratchBytes of memory whose first CounterBytes were zero before
	// its first use, as for [Attend].
	Scratch Address
}

// SampleOptions are runtime/sample's options in the form that the device reads.
type SampleOptions struct {
	Temperature, TopP, MinP float64
	RepetitionPenalty       float64
	TopK, RepetitionWindow  int
}

// MostVocab is beyond what Sample tells apart: an id has 20 bits of its keys, and an
// LDS sum for each 2048 logits.
const MostVocab = 1 << 20

// SampleOptionsBytes is the size of an encoded SampleOptions.
const SampleOptionsBytes = 40

// Append encodes the options.
func (s SampleOptions) Append(b []byte) []byte {
	le := binary.LittleEndian
	for _, v := range []float64{s.Temperature, s.TopP, s.MinP, s.RepetitionPenalty} {
		b = le.AppendUint64(b, math.Float64bits(v))
	}
	b = le.AppendUint32(b, uint32(s.TopK))
	return le.AppendUint32(b, uint32(s.RepetitionWindow))
}

// Advance turns the tokens that were picked into the next step's input: for
// every row whose position is not negative
//
//	Output[(*Steps % Ring)*Outputs + Owner[t]] = Next[t] = Token[t]
//	History[Owner[t]][++Position[t]] = Token[t]
//
// then *Steps grows by one.
type Advance struct {
	Rows
	Token, Next Address // i32[T]; they may be one
	History     Address // i32[sequences][Stride]; 0: none
	Stride      int
	Output      Address // i32[Ring][Outputs]; 0: none
	Outputs     int     // sequences
	Steps       Address // i32[1]
	Ring        int
}

// Calls returns the launch.
func (o *Advance) Calls(Target) []Call {
	return []Call{{
		Early: true, Unit: Unit{File: "advance.hip"}, Symbol: "nstf_advance", Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{64, 1, 1},
		Args: []Arg{I32(o.T), Ptr(o.Position), Ptr(o.Owner), Ptr(o.Token), Ptr(o.Next), Ptr(o.History), I32(o.Stride), Ptr(o.Output), I32(o.Outputs), Ptr(o.Steps), I32(o.Ring)},
	}}
}

// Resume takes the tokens of rows that have none, which are negative, from where
// [Advance] has put them:
//
//	Token[t] = History[Owner[t]][Position[t]]
type Resume struct {
	Rows
	Token   Address // i32[T]
	History Address // i32[sequences][Stride]
	Stride  int
}

// Calls returns the launch.
func (o *Resume) Calls(Target) []Call {
	return []Call{{
		Early: true, Unit: Unit{File: "advance.hip"}, Symbol: "nstf_resume", Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{64, 1, 1},
		Args: []Arg{I32(o.T), Ptr(o.Position), Ptr(o.Owner), Ptr(o.Token), Ptr(o.History), I32(o.Stride)},
	}}
}

const (
	sampleThreads = 1024 // of a block that applies a row's penalty
	sliceThreads  = 256
	sampleSlice   = 2048 // logits of a block
	sampleBins    = 512  // of the histogram of weights
)

// MaskWords is how many words the mask of a sequence takes.
func MaskWords(vocab int) int { return 1 + ceil(vocab, 32) }

func (o *Sample) slices() int { return ceil(o.Vocab, sampleSlice) }

// sampleRecord is the bytes of a row's scratch: see sample.hip.
func (o *Sample) sampleRecord() int64 {
	return 64 + 16*int64(o.slices()) + 16*sampleBins + 24*int64(o.Vocab)
}

// ScratchBytes returns the size of the scratch.
func (o *Sample) ScratchBytes() int64 { return CounterBytes + int64(o.T)*o.sampleRecord() }

// Calls returns the launches.
func (o *Sample) Calls(Target) []Call {
	unit := Unit{File: "sample.hip"}
	slices, rows := uint32(o.slices()), uint32(o.T)
	space := Ptr(o.Scratch + CounterBytes)
	logits := []Arg{Ptr(o.Logits), I32(o.Vocab), Ptr(o.Position), Ptr(o.Owner)}
	slice := func(symbol string, args ...Arg) Call {
		return Call{Early: true, Unit: unit, Symbol: symbol, Grid: [3]uint32{slices, rows, 1}, Block: [3]uint32{sliceThreads, 1, 1}, Args: args}
	}
	whole := func(symbol string, threads, lds uint32, args ...Arg) Call {
		return Call{Early: true, Unit: unit, Symbol: symbol, Grid: [3]uint32{rows, 1, 1}, Block: [3]uint32{threads, 1, 1}, LDS: lds, Args: args}
	}
	with := func(args ...Arg) []Arg { return append(logits[:len(logits):len(logits)], args...) }
	options := o.Options
	if o.Greedy {
		options = 0
	}
	var calls []Call
	if o.Masks != 0 {
		calls = append(calls, slice("nstf_sample_mask", with(Ptr(o.Masks))...))
	}
	top := slice("nstf_sample_top", with(Ptr(options), Ptr(o.Token), Ptr(o.Scratch), space)...)
	if o.Greedy {
		return append(calls, top)
	}
	return append(calls,
		whole("nstf_sample_penalize", sampleThreads, uint32(4*ceil(o.Vocab, 32)), with(Ptr(options), Ptr(o.History), I32(o.Stride))...),
		top,
		slice("nstf_sample_weigh", with(Ptr(options), Ptr(o.Scratch), space)...),
		slice("nstf_sample_gather", with(Ptr(options), Ptr(o.Scratch), space)...),
		slice("nstf_sample_pick", with(Ptr(o.Seeds), Ptr(o.Token), Ptr(o.Scratch), space)...),
	)
}
