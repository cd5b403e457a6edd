package exec

import (
	"errors"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu"
	"github.com/nstf/nstf/runtime/load"
	"github.com/nstf/nstf/runtime/place"
)

// errLayers is why devices have whole blocks each where nobody asked for more.
var errLayers = errors.New("the model is shared by layers")

// meet finds out whether the devices may compute tokens together, and how fast they add up
// a row. Where that is asked for and cannot be, it is an error.
func (s *sites) meet(g *graph.Graph, tensor func(string) formats.Tensor, o *Options) (err error) {
	split := o.Device.Split
	wanted := split == place.Tensors
	switch {
	case split == place.Layers, !wanted && (len(o.Device.Ranges) > 0 || len(s.opened) < 2):
		s.apart = errLayers
		return nil
	case slices.Contains(s.opened, nil) && !wanted:
		s.apart = errLayers
		return nil
	case slices.Contains(s.opened, nil):
		s.apart = formats.Unsupportedf("", "", "tensors cut over the processor and GPUs")
	default:
		s.apart = gpu.CheckTeam(s.opened, g, tensor)
	}
	if s.apart == nil {
		s.exchange, s.apart = gpu.ExchangeSeconds(s.opened, int(g.Width))
	}
	if wanted {
		return s.apart
	}
	return nil // by layers, whatever is in the way: the layout says it
}

// together lays a model out on devices that compute tokens together, for one context and as
// many rows a pass as have room.
func (s *sites) together(g *graph.Graph, tensor func(string) formats.Tensor, o *Options, p *place.Pieces) (l *place.Layout, err error) {
	most, least := mostRows, leastRows
	if o.Device.Rows > 0 {
		most, least = o.Device.Rows, o.Device.Rows
	}
	team := &place.Team{Exchanges: gpu.Exchanges(g, len(s.opened)), Exchange: s.exchange}
	if team.Read, err = s.reads(g, tensor, o); err != nil {
		return nil, err
	}
	for rows := most; rows >= least; rows /= 2 {
		options := o.gpu()
		options.Rows = rows
		if team.Memory, err = gpu.TeamNeed(s.opened, g, tensor, options); err != nil {
			return nil, err
		}
		if l, err = place.Together(p, s.paced(place.Tensors), team); err == nil || rows == least {
			if err == nil {
				l.Rows = rows
			}
			return l, err
		}
	}
	return l, err
}

// reads counts what each rank reads of each block for a token, and of the head.
func (s *sites) reads(g *graph.Graph, tensor func(string) formats.Tensor, o *Options) (all [][]float64, err error) {
	whole, err := o.cost(g, tensor)
	if err != nil {
		return nil, err
	}
	for rank := range s.opened {
		shard, err := load.Cut(g, tensor, rank, len(s.opened))
		if err != nil {
			return nil, err
		}
		cost, own := whole.Of(shard.Graph, shard.Tensor), []float64(nil)
		for i := range shard.Graph.Blocks {
			weights, cache := cost.Block(i, usualDepth)
			own = append(own, weights+cache)
		}
		_, head := cost.Ends()
		all = append(all, append(own, head))
	}
	return all, nil
}

// team opens a model on all sites together.
func (s *sites) team(g *graph.Graph, tensor func(string) formats.Tensor, o *Options) (device.Stage, error) {
	options := o.gpu()
	options.Warm, options.Progress = o.Device.Warm, o.Device.Progress
	for i := range s.all {
		if m := s.all[i].Memory; i == 0 || m < options.Most {
			options.Most = m
		}
	}
	return gpu.NewTeam(s.opened, g, tensor, options)
}
