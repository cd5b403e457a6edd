package eval

import (
	"context"
	"errors"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/runtime/exec"
)

// CompareOptions are how to measure on windows.
type CompareOptions struct {
	Threads int // 0: as many as Go runs at once
	// On is the opened device that computes what has room there; nil: the processor.
	On *exec.Opened
	// Exact computes the model in float32 throughout; the reference always is.
	Exact bool
	// Progress is called with tokens done and their total; nil: nobody.
	Progress func(done, total int64)
}

// Compare measures m on windows of token ids, all of one length of which the
// first token is not predicted, and its distance from ref. It is Run for those
// who have cut their text already; the result has no names. The models may share
// tensors. Errors are those of Run.
func Compare(ctx context.Context, m, ref *model.Model, list [][]int32, o CompareOptions) (*Result, error) {
	w := &windows{protocol: ProtocolNSTF, list: list}
	for _, ids := range list {
		if w.tokens += len(ids); w.size != 0 && len(ids) != w.size || len(ids) < 2 {
			return nil, formats.Errorf("", "", "windows to measure on have %d and %d tokens: one length from 2 on is possible", w.size, len(ids))
		}
		w.size = len(ids)
	}
	if len(list) == 0 {
		return nil, formats.Errorf("", "", "no windows to measure on")
	}
	vocab := int(m.Graph.Vocab)
	if err := checkVocab(ref.Path, int(ref.Graph.Vocab), vocab); err != nil {
		return nil, err
	}
	ex, err := o.open(m, w.size, o.Exact)
	if err != nil {
		return nil, err
	}
	defer ex.Close()
	rex, err := o.open(ref, w.size, true)
	if err != nil {
		return nil, err
	}
	defer rex.Close()
	seq, err := rex.NewSequence()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	s := newScorer(m.Path, w, vocab, &modelReference{ex: rex, w: w, seq: seq}, nil)
	if err := s.run(ctx, ex, o.Progress); err != nil {
		return nil, err
	}
	r := s.result()
	r.Activations = ActivationsNSTF
	if o.Exact {
		r.Activations = activationsExact
	}
	r.Seconds = time.Since(start).Seconds()
	r.TokensPerS = float64(len(list)*w.size) / r.Seconds
	return r, nil
}

// open opens a model on the device, or where that has no room or lacks what the model
// needs, on the processor.
func (o *CompareOptions) open(m *model.Model, context int, exact bool) (*exec.Executor, error) {
	options := exec.Options{Threads: o.Threads, Context: int64(context), Exact: exact, On: o.On}
	options.Device.Rows = compareRows
	ex, err := exec.New(m, options)
	if _, lacks := errors.AsType[*formats.UnsupportedError](err); o.On != nil && (exec.Full(err) || lacks) {
		options.On = nil
		return exec.New(m, options)
	}
	return ex, err
}

// compareRows are of a pass on a GPU, however much memory is free: bits depend on it.
const compareRows = 2048
