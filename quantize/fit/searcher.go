package fit

import (
	"context"
	"encoding/binary"

	"github.com/x448/float16"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/ops"
)

// A Searcher finds trellis codes elsewhere than on this processor: the same bits, so
// that nobody can tell who did. It may serve one matrix at a time.
type Searcher interface {
	// Search fills in the job's Codes; where nothing but the processor can, done is false.
	Search(ctx context.Context, s *ops.TrellisJob) (done bool, err error)
}

// searched has the searcher fill in codes and scales, if it can.
func (q TCQ) searched(ctx context.Context, codes, scales []byte, rotated []float32, n, k int) (done bool, err error) {
	const tile = scheme.TCQTile
	s := ops.TrellisJob{Bits: q.Bits, Codebook: q.Codebook, Deviation: tcqDeviations[q.Codebook], Seam: q.Seam, N: n, K: k, W: rotated,
		Units: make([]float32, n/tile), Codes: codes}
	for i := range s.Units {
		var half float16.Float16
		half, s.Units[i] = q.scale(rotated[i*tile*k : (i+1)*tile*k])
		binary.LittleEndian.PutUint16(scales[2*i:], uint16(half))
	}
	if f := q.Feedback; f != nil {
		s.Panel = func(p int) (behind, within []float32) { return f.behind[p], f.within[p] }
	}
	if done, err = q.Searcher.Search(ctx, &s); err != nil || !done {
		return false, err
	}
	for i, u := range s.Units {
		if u == 0 {
			clear(codes[i*len(codes)/len(s.Units) : (i+1)*len(codes)/len(s.Units)])
		}
	}
	return true, nil
}
