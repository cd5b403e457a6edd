package gpu

import "github.com/nstf/nstf/kernels/hip"

// A chooser is what the device needs to choose tokens by itself for one
// sequence.
type chooser struct {
	owner   hip.Address // i32 [fewRows], all 0: options and history are of one sequence
	options hip.Address // hip.SampleOptions
	random  hip.Address // u64 [2]
	history hip.Address // i32 [context+1]
	output  hip.Address // i32 [ahead]: tokens that were chosen
	steps   hip.Address // i32: how many were
	token   hip.Address // i32 [fewRows]
	scratch hip.Address // of hip.Sample
}

// ahead is how many steps may be under way: while the host reads a token, the
// device is at the next one.
const ahead = 2

func (c *chooser) place(context int, scratch int64, a *arena) {
	c.owner, c.token, c.output, c.steps = a.ints(fewRows), a.ints(fewRows), a.ints(ahead), a.ints(1)
	c.options, c.random, c.history = a.take(hip.SampleOptionsBytes), a.take(16), a.ints(context+1)
	c.scratch = a.take(scratch)
}
