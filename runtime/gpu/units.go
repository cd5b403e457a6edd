package gpu

import (
	"fmt"
	"math"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/load"
)

// Units lists the kernels that a model needs on a target that is not here: what
// `nstf doctor --build-kernels` compiles ahead. Of the options only Exact, KV,
// Context and Rows matter; where Rows is 0, all sizes of a pass that New may
// choose are covered.
//
// Nothing is read but the tensors' shapes and schemes.
func Units(g *graph.Graph, tensor func(name string) formats.Tensor, t hip.Target, o Options) ([]hip.Unit, error) {
	e, l, err := unplaced(g, tensor, t, &o)
	if err != nil {
		return nil, err
	}
	units := &unitSet{seen: map[hip.Unit]bool{}}
	units.add(hip.Unit{File: "arrange.hip"}, hip.Unit{File: "sample.hip"}, hip.Unit{File: "advance.hip"})
	for _, rows := range passSizes(o.Rows, e.context) {
		e.plan.Rows = rows
		e.placeScratch(&l.arena, rows)
		units.add(e.units()...)
	}
	for rows := 2; rows <= fewRows; rows++ { // found when they come, where there is a compiler
		for _, from := range []int{0, rows - 1} {
			units.addPass(e, rows, false, from)
		}
	}
	if e.team != nil {
		return units.list, nil
	}
	e.apart = device.Blocks{} // what sums need that the processor has a part in
	for i := range g.Blocks {
		e.apart[i] = g.Blocks[i].MoE != nil
	}
	units.addPass(e, 1, false, 0)
	for i := range e.blocks { // and where some of the experts lie here too
		if m := g.Blocks[e.span.Lo+i].MoE; m != nil && Pins(m, tensor) {
			e.blocks[i].here = pinnedExperts{layer: e.blocks[i].layer, place: 1}
		}
	}
	units.addPass(e, 1, false, 0)
	return units.list, nil
}

// TeamUnits lists what so many ranks need that share a model by its tensors, beside what [Units]
// lists. It fails with an UnsupportedError where the model has something that is not cut.
func TeamUnits(g *graph.Graph, tensor func(name string) formats.Tensor, t hip.Target, o Options, ranks int) ([]hip.Unit, error) {
	if ranks < 2 || ranks > hip.MostRanks {
		return nil, load.Uncut("", "%d GPUs, where 2 to %d are", ranks, hip.MostRanks)
	}
	all := &unitSet{seen: map[hip.Unit]bool{}}
	for rank := range ranks {
		shard, err := load.Cut(g, tensor, rank, ranks)
		if err != nil {
			return nil, err
		}
		o.team = &member{Ranks: hip.Ranks{Rank: rank, Count: ranks}, whole: g, units: shard.Units, unit: shard.Unit}
		o.team.twofold = twofold(g, ranks, tensor, &o)
		o.team.size(math.MaxInt32, math.MaxInt32/int(g.Width), int(g.Width))
		units, err := Units(shard.Graph, shard.Tensor, t, o)
		if err != nil {
			return nil, err
		}
		all.add(units...)
	}
	return all.list, nil
}

// unplaced lays a model out on a target that is not here, but for its work space.
func unplaced(g *graph.Graph, tensor func(name string) formats.Tensor, t hip.Target, o *Options) (*Engine, *layout, error) {
	kept, err := o.formats(len(g.Blocks))
	if err != nil {
		return nil, nil, err
	}
	e := &Engine{g: g, span: device.Whole(g), team: o.team, places: placesOf(o), shape: shapeOf(g, device.Whole(g), &Options{team: o.team}), exact: o.Exact, context: o.Context, m: &machine{target: t}}
	if e.context == 0 {
		e.context = g.Context
	}
	if e.context < 1 {
		return nil, nil, fmt.Errorf("a context of %d positions makes no sense", e.context)
	}
	// Addresses matter only in that they are not 0, which would mean: none.
	l := &layout{exact: o.Exact, arena: arena{base: align}}
	if e.weights, err = l.graph(g, e.span, nil, tensor); err != nil {
		return nil, nil, err
	}
	e.shape.measure(l, &e.weights)
	if e.team != nil {
		e.shape.part = e.head.N
	}
	if e.follow, err = followed(g, e.span, o.Policy); err != nil {
		return nil, nil, err
	}
	e.pool.layers = e.cacheLayers(kept)
	placePages(e.pool.layers, int(pagesOf(e.context)), int(newestPages(e.pool.layers, pagesOf(e.context), 1, maxRows)), &l.arena, 0, &arena{})
	return e, l, nil
}

// passSizes lists the numbers of rows that makePlan may choose.
func passSizes(rows int, context int64) []int {
	if rows > 0 {
		return []int{rows}
	}
	var sizes []int
	for n := maxRows; n >= minRows; n /= 2 {
		sizes = append(sizes, int(min(int64(n), max(context, fewRows))))
	}
	return sizes
}

// A unitSet is units in the order in which they came first.
type unitSet struct {
	seen map[hip.Unit]bool
	list []hip.Unit
}

func (s *unitSet) add(units ...hip.Unit) {
	for _, u := range units {
		if !s.seen[u] {
			s.seen[u] = true
			s.list = append(s.list, u)
		}
	}
}
