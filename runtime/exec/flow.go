package exec

import "github.com/nstf/nstf/runtime/device"

// A flight is a pass on its way through the stages.
type flight struct {
	batch  device.Batch
	seqs   []*Sequence // of the batch's segments
	pass   device.Pass // of the stage that it went through last
	hidden []float32   // that it takes to the next, where stages are abreast
	err    error
}

// set makes it a pass of nothing yet.
func (f *flight) set(prompt bool) {
	f.batch.Segments, f.batch.Prompt, f.batch.Hidden = f.batch.Segments[:0], prompt, nil
	f.seqs, f.pass, f.err = f.seqs[:0], nil, nil
}

// add adds a segment of a sequence.
func (f *flight) add(s *Sequence, segment device.Segment) {
	f.batch.Segments, f.seqs = append(f.batch.Segments, segment), append(f.seqs, s)
}

// forward runs it through a stage, to which its hidden states came before.
func (f *flight) forward(k int, stage device.Stage) {
	for i, s := range f.seqs {
		f.batch.Segments[i].State = s.states[k]
	}
	f.pass, f.err = stage.Forward(&f.batch)
}

// Rows of a pass of a prompt where stages are abreast: with fewer than the least weights are read too often for
// too little, with more than the most the stages behind wait too long for the first pass. Of a mixture few
// rows choose an expert, and a pass reads nearly all of them: passes stay as large as they may be.
const (
	leastAbreast = 256
	mostAbreast  = 512
	perStage     = 4 // passes that a turn has for each stage, so that one waits for a fifth of the time at most
)

// cut returns how many rows the passes of a prompt of so many rows have. It changes no bit:
// a prompt's rows do not depend on their company.
func (e *Executor) cut(rows int) int {
	if !e.abreast {
		return e.maxRows
	}
	unit := e.leastAbreast / 4 // of which tiles of products are full
	each := rows/(perStage*len(e.stages)) + unit - 1
	return min(max(min(each-each%unit, mostAbreast), e.leastAbreast), e.maxRows)
}

// fly runs a pass, for which there is room, through all stages, one after the other.
func (e *Executor) fly(f *flight) error {
	e.pacer.begin(&f.batch, f.seqs)
	for k, stage := range e.stages {
		if f.pass != nil {
			f.batch.Hidden = f.pass.Hidden()
		}
		if f.forward(k, stage); f.err != nil {
			for _, s := range f.seqs {
				if k > 0 { // what stages before have counted
					s.truncate(len(s.history))
				}
			}
			return f.err
		}
	}
	return nil
}

// flow runs passes of prompts, for all of which there is room: next makes the next one of a flight, and says
// false behind the last; done is called behind each, in order, before the last stage begins another. Where stages
// are abreast those in front are passes ahead meanwhile, so that another goroutine calls next, which looks at
// nothing that done changes. An error ends it; who calls it then takes the sequences back to their histories.
func (e *Executor) flow(next func(f *flight) bool, done func(pass device.Pass) error) error {
	if !e.abreast {
		for next(&e.flight) {
			if err := e.fly(&e.flight); err != nil {
				return err
			}
			if err := done(e.flight.pass); err != nil {
				return err
			}
		}
		return nil
	}
	e.pacer.begin(&device.Batch{Prompt: true}, nil)
	idle := make(chan *flight, len(e.stages)+1) // one in each stage, and one between two
	for len(e.flights) < cap(idle) {
		e.flights = append(e.flights, new(flight))
	}
	for _, f := range e.flights {
		idle <- f
	}
	ended := make(chan struct{})
	last := len(e.stages) - 1
	lane := e.begin(next, idle, ended)
	for k := range last {
		lane = e.carry(k, lane)
	}
	var err error
	for f := range lane {
		if err == nil {
			if err = f.err; err == nil {
				f.forward(last, e.last())
				err = f.err
			}
			if err == nil {
				err = done(f.pass)
			}
			if err != nil {
				close(ended)
			}
		}
		idle <- f
	}
	return err
}

// begin makes idle flights passes until there are no more, or all has ended.
func (e *Executor) begin(next func(f *flight) bool, idle <-chan *flight, ended <-chan struct{}) <-chan *flight {
	out := make(chan *flight)
	go func() {
		defer close(out)
		for {
			select {
			case <-ended:
				return
			case f := <-idle:
				if !next(f) {
					return
				}
				out <- f
			}
		}
	}()
	return out
}

// carry runs flights through a stage and takes what they hide along, for the stage is
// soon busy with the next. Behind one that failed none goes through it.
func (e *Executor) carry(k int, in <-chan *flight) <-chan *flight {
	out := make(chan *flight)
	go func() {
		defer close(out)
		var failed error
		for f := range in {
			if f.err == nil {
				f.err = failed
			}
			if f.err == nil {
				if f.forward(k, e.stages[k]); f.err == nil {
					f.err = f.keep(int(e.g.Width))
				}
			}
			failed = f.err
			out <- f
		}
	}()
	return out
}

// keep copies the hidden states of the pass, which the next stage then begins with.
func (f *flight) keep(width int) error {
	n := f.batch.Rows() * width
	if cap(f.hidden) < n {
		f.hidden = make([]float32, n)
	}
	f.batch.Hidden = device.Host(f.hidden[:n])
	return f.pass.Hidden().Read(f.hidden[:n])
}
