package cpu

import (
	kernels "github.com/nstf/nstf/kernels/cpu"
)

// A headCache is the keys and values of one head of a sequence: all positions, and where
// those are codes the first and the newest in half precision too.
type headCache struct{ all, newest []kernels.KVBlock }

func (s *state) head(layer, head int) headCache {
	return headCache{s.Blocks(layer, head), s.Newest(layer, head)}
}

// A spans is the memory to attend in over several kinds of positions.
type spans struct {
	reach   []kernels.Reach
	partial []float32
	kernels.AttendScratch
}

func (l *spans) bytes() int64 {
	return 4*int64(cap(l.partial)) + 16*int64(cap(l.reach)) + l.AttendScratch.Bytes()
}

// attendTo is [kernels.Set.Attend] over what the rows that see reach have of each position:
// of the first pages, and of those from [kernels.NewestFrom] on, halves, of those between
// codes. What is summed up of a row depends on its reach, from and to alone.
func (e *Engine) attendTo(out kernels.Partial, a *kernels.Attention, c headCache, q []float32, reach []kernels.Reach, from, to int, l *spans) {
	if c.newest == nil {
		e.set.Attend(out, a, c.all, q, reach, from, to, &l.AttendScratch)
		return
	}
	const first = kernels.KVFirst * kernels.KVPositions
	halves := *a
	halves.Format = kernels.KVF16
	newest := func(r kernels.Reach) int { return max(int(kernels.NewestFrom(int64(r.Hi-1))), first) }
	out.Clear()
	l.partial = fit(l.partial, a.PartialFloats(len(out.Top)))
	part := a.Partial(l.partial, len(out.Top))
	for _, s := range [...]struct {
		a      *kernels.Attention
		blocks []kernels.KVBlock
		of     func(r kernels.Reach) kernels.Reach
	}{
		{&halves, c.newest, func(r kernels.Reach) kernels.Reach { return kernels.Reach{Lo: r.Lo, Hi: min(r.Hi, first)} }},
		{a, c.all, func(r kernels.Reach) kernels.Reach {
			return kernels.Reach{Lo: max(r.Lo, first), Hi: min(r.Hi, newest(r))}
		}},
		{&halves, c.newest, func(r kernels.Reach) kernels.Reach { return kernels.Reach{Lo: max(r.Lo, newest(r)), Hi: r.Hi} }},
	} {
		l.reach = l.reach[:0]
		some := false
		for _, r := range reach {
			r = s.of(r)
			some = some || max(r.Lo, from) < min(r.Hi, to)
			l.reach = append(l.reach, r)
		}
		if !some {
			continue
		}
		e.set.Attend(part, s.a, s.blocks, q, l.reach, from, to, &l.AttendScratch)
		width := len(out.Acc) / len(out.Top)
		for i := range out.Top {
			if out.Sum[i] == 0 { // as it is, whatever other rows see
				out.Top[i], out.Sum[i], part.Sum[i] = part.Top[i], part.Sum[i], 0
				copy(out.Acc[i*width:(i+1)*width], part.Acc[i*width:])
			}
		}
		e.set.Merge(out, a, part)
	}
}
