package pipeline

import "github.com/nstf/nstf/quantize/fit"

// A crew fits matrices, several at once: while the rows of one are read, turned and compared,
// by few threads, codes of another are searched, and a device that searches is not waited for.
// Only fitting leaves the goroutine that the crew belongs to: that one finds moments and keeps
// what was made. Threads are shared.
type crew struct {
	most  int // at once
	turns *fit.Turns
	under int // way
	ended chan ending
}

// An ending is a fit that has ended, and what is to be done then.
type ending struct {
	err  error
	then func(err error) error
}

func newCrew(most, threads int) *crew {
	return &crew{most: most, turns: fit.NewTurns(threads), ended: make(chan ending, most)}
}

// begin has do run beside what is under way. When it has ended, then is called with its error,
// in the goroutine that asks for it; begin first waits for room.
func (c *crew) begin(do func(turn *fit.Turn) error, then func(err error) error) error {
	if err := c.room(); err != nil {
		return err
	}
	c.under++
	turn := c.turns.Next()
	go func() { c.ended <- ending{do(turn), then} }()
	return nil
}

// room waits until fewer than most are under way.
func (c *crew) room() error {
	if c.under < c.most {
		return nil
	}
	return c.next()
}

// next waits for a fit under way.
func (c *crew) next() error {
	e := <-c.ended
	c.under--
	return e.then(e.err)
}

// all waits for all of them, and returns the first error.
func (c *crew) all() (err error) {
	for c.under > 0 {
		if e := c.next(); err == nil {
			err = e
		}
	}
	return err
}
