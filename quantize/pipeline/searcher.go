package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/kernels/ops"
	"github.com/nstf/nstf/quantize/fit"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/gpu"
	"github.com/nstf/nstf/runtime/gpu/driver"
	"github.com/nstf/nstf/runtime/gpu/kernelcache"
	"github.com/nstf/nstf/runtime/place"
)

// A Searcher finds trellis codes on a GPU. It is safe for concurrent use.
type Searcher struct {
	device exec.Device
	search sync.Mutex // held while the device searches
	mu     sync.Mutex // of what follows
	opened bool
	gpu    *gpu.TrellisSearcher        // nil: the processor searches
	ready  [scheme.TCQMaxBits + 1]bool // by bits: see Prepare
}

// NewSearcher returns who finds trellis codes on a device; nil for the processor. It
// takes one that is opened already, if any, which is closed later. A GPU
// that is asked for by name is opened now, with place.Auto one that is worth it is
// looked for when something is to be searched. What is found is told to the device's
// Notice.
func NewSearcher(d exec.Device, on *exec.Opened) (*Searcher, error) {
	s := &Searcher{device: d}
	if g := on.GPU(); g != nil {
		s.gpu, s.opened = g.NewSearcher(), true
		s.notice("trellis codes are searched on %v", s.gpu)
		return s, nil
	}
	switch d.Kind {
	case place.HIP, place.CUDA:
		return s, s.open(hip.API(d.Kind))
	case place.Auto:
		return s, nil
	}
	return nil, nil
}

// Close gives the device back.
func (s *Searcher) Close() error {
	if s == nil {
		return nil
	}
	s.search.Lock()
	defer s.search.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gpu == nil {
		return nil
	}
	return s.gpu.Close()
}

func (s *Searcher) notice(format string, args ...any) {
	if s.device.Notice != nil {
		s.device.Notice(fmt.Sprintf(format, args...))
	}
}

func (s *Searcher) open(api hip.API) (err error) {
	if s.gpu, err = gpu.NewTrellisSearcher(gpu.Options{API: api, Ordinal: s.device.Ordinal, Libraries: s.device.Libraries, Kernels: s.device.Kernels}); err != nil {
		return err
	}
	s.opened = true
	if s.device.Kind == place.Auto && !s.gpu.Worthwhile() {
		s.notice("trellis codes are searched on the processor: %v is not worth it", s.gpu)
		err = s.gpu.Close()
		s.gpu = nil
		return err
	}
	s.notice("trellis codes are searched on %v", s.gpu)
	return nil
}

// look opens the first GPU that is worth it.
func (s *Searcher) look() {
	s.opened = true
	for _, api := range []hip.API{hip.HIP, hip.CUDA} {
		err := s.open(api)
		if s.gpu != nil {
			return
		}
		if _, none := errors.AsType[*gpu.MissingError](err); err != nil && !none {
			s.notice("trellis codes are searched on the processor, for %s cannot be used: %v", api, err)
		}
	}
}

// Found reports whether a GPU searches; it looks for one where none was named.
func (s *Searcher) Found() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.found()
}

func (s *Searcher) found() bool {
	if !s.opened {
		s.look()
	}
	return s.gpu != nil
}

// Search implements [fit.Searcher]. Where the device was not asked for by name and has
// no room or no compiler, it is the processor's.
func (s *Searcher) Search(ctx context.Context, j *ops.TrellisJob) (done bool, err error) {
	s.search.Lock()
	defer s.search.Unlock()
	if !s.Found() {
		return false, nil
	}
	err = s.gpu.Search(ctx, j) // which nothing else closes meanwhile
	if err == nil || s.device.Kind != place.Auto || !unready(err) {
		return err == nil, err
	}
	s.notice("trellis codes are searched on the processor: %v", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	err = s.gpu.Close()
	s.gpu = nil
	return false, err
}

// Prepare has a device that was opened search codes of some bits, one number after the
// other, while the caller does something else: a compiler takes some 8 seconds for kernels
// that are not kept from an earlier run. Nothing else may use the device until the caller
// has called what it returns, which waits for what was begun; the rest is made when it is
// needed. Each number is prepared once. An error comes again, and is told, when something is
// searched.
func (s *Searcher) Prepare(ctx context.Context, bits []int) (wait func()) {
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, b := range bits {
			if ctx.Err() != nil || s.begins(b) && s.warm(ctx, b) != nil {
				return
			}
		}
	}()
	return func() { stop(); <-done }
}

// begins reports whether a device is open, and takes down that some bits are prepared.
func (s *Searcher) begins(bits int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	begins := s.gpu != nil && !s.ready[bits]
	s.ready[bits] = s.gpu != nil
	return begins
}

// warm searches a matrix of zeros of the least size that is a device's.
func (s *Searcher) warm(ctx context.Context, bits int) error {
	const n, k = 2 * scheme.TCQTile, scheme.TCQTile
	q := fit.TCQ{TCQ: scheme.TCQ{Bits: bits, Codebook: scheme.TCQCodebookFor(bits), RotateIn: 1, RotateOut: 1}, Seam: 1, Threads: 1, Searcher: s}
	_, err := q.Fit(ctx, make([]float32, n*k), n, k)
	return err
}

// unready reports whether a device cannot search from the start.
func unready(err error) bool {
	return errors.Is(err, driver.ErrMemory) || errors.Is(err, driver.ErrCompile) || errors.Is(err, driver.ErrMissing) || errors.Is(err, kernelcache.ErrNoCompiler)
}
