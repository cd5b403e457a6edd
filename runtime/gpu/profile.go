package gpu

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// Profile implements device.Meter: the launches of a pass, at the positions of
// the last one of that size, are put into groups of one kernel and grid, and each
// group is captured and timed by itself. The weights of all blocks go by, so that
// caches help no more than in the pass; what a launch waits for the one before it
// is a part of its time.
func (e *Engine) Profile(rows int) ([]device.KernelTime, error) {
	from := rows - 1
	if rows <= fewRows { // each is a sequence's
		from = 0
	}
	w := e.newWalk(rows, rows > fewRows, from)
	if p := e.pass; p != nil && p.rows == rows && !p.many {
		w.reading = p.reading // some pages, where the last pass did
	}
	exchanges := 0
	list := func(w *walk) {
		w.forward()
		w.head(from, rows)
		exchanges = w.exchanges
		w.end()
	}
	list(w)
	whole, err := e.timeCalls(w.calls)
	if err != nil {
		return nil, err
	}
	times := []device.KernelTime{{Name: fmt.Sprintf("pass of %d", rows), Calls: len(w.calls), Microseconds: whole}}
	if e.inTandem(rows, w.many) {
		t, err := e.timeTandem(w)
		if err != nil {
			return nil, err
		}
		times = append(times, t)
	}
	if e.team != nil { // launches by themselves do not wait for what other ranks send
		w = &walk{e: e, s: &e.s, t: w.t, many: w.many, from: w.from, state: w.state, reaches: w.reaches, reading: w.reading}
		patience := e.team.Patience
		e.team.Patience = 0
		list(w)
		e.team.Patience = patience
	}
	first := len(times)
	type group struct {
		kernel kernel
		grid   [3]uint32
	}
	var order []group
	calls := map[group][]hip.Call{}
	for _, c := range w.calls {
		g := group{kernel{c.Unit, c.Symbol}, c.Grid}
		if calls[g] == nil {
			order = append(order, g)
		}
		calls[g] = append(calls[g], c)
	}
	if err := e.ready(w.calls); err != nil { // once: ranks need not have the same groups
		return nil, err
	}
	for _, g := range order {
		us, err := e.timeReady(calls[g])
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("%s %dx%dx%d %s", strings.TrimPrefix(g.kernel.symbol, "nstf_"), g.grid[0], g.grid[1], g.grid[2], g.kernel.unit.Defines)
		times = append(times, device.KernelTime{Name: name, Calls: len(calls[g]), Microseconds: us})
	}
	if e.team != nil { // their marks are no later pass's
		end := &hip.EndExchanges{Ranks: &e.team.Ranks, Exchanges: exchanges}
		if err := e.m.launch(end.Calls(e.m.target)); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(times[first:], func(a, b device.KernelTime) int { return int(b.Microseconds) - int(a.Microseconds) })
	return times, nil
}

// timeTandem times the blocks of a pass in two parts.
func (e *Engine) timeTandem(whole *walk) (t device.KernelTime, err error) {
	t = device.KernelTime{Name: fmt.Sprintf("blocks of %d in two parts", whole.t), Calls: 1}
	if err := e.forwardInTandem(whole); err != nil {
		return t, err
	}
	const times = 20
	ms, err := e.m.timed(func() (err error) {
		for range times {
			err = errors.Join(err, e.playTandem(whole))
		}
		return err
	})
	t.Microseconds = ms * 1e3 / times
	return t, err
}

// timeCalls returns the microseconds that calls take, one after another.
func (e *Engine) timeCalls(calls []hip.Call) (float64, error) {
	if err := e.ready(calls); err != nil {
		return 0, err
	}
	return e.timeReady(calls)
}

// timeReady is timeCalls of what is ready.
func (e *Engine) timeReady(calls []hip.Call) (float64, error) {
	g, err := e.m.stream.Capture(func() error { return e.m.launch(calls) })
	if err != nil {
		return 0, err
	}
	defer g.Free()
	const times = 20
	ms, err := e.repeated(g, times)
	return ms * 1e3 / times, err
}

// repeated replays a graph some times, once more in front of the clock.
func (e *Engine) repeated(g *driver.Graph, times int) (float64, error) {
	if err := e.m.stream.Replay(g); err != nil {
		return 0, err
	}
	return e.m.timed(func() error {
		for range times {
			if err := e.m.stream.Replay(g); err != nil {
				return err
			}
		}
		return nil
	})
}
