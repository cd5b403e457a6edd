package gpu

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu/driver"
	"github.com/nstf/nstf/runtime/place"
)

// Count returns how many devices there are of the API that the options name: none is no
// error, nor is a library that is missing.
func Count(o Options) (int, error) {
	lib, err := driver.Load(driver.Options{API: o.API, Paths: o.Libraries, Root: o.Root})
	if err != nil {
		if missing(err) {
			return 0, nil
		}
		return 0, err
	}
	n, err := lib.Count()
	if missing(err) {
		return 0, nil
	}
	return n, err
}

// LoadingBytes are placed beside a plan while weights are copied.
const LoadingBytes = lanes * chunkBytes

// Name returns the device's name by its maker.
func (d *Device) Name() string { return d.m.device.Properties().Name }

// Plan returns what New would place for a span, whether it has room or not.
func (d *Device) Plan(g *graph.Graph, span device.Span, tensor func(name string) formats.Tensor, o Options) (Plan, error) {
	e, err := newEngine(g, span, tensor, &o)
	if err != nil {
		return Plan{}, err
	}
	e.m, e.tuning = d.m, d.m.loadTuning()
	kept, err := o.formats(len(g.Blocks))
	if err != nil {
		return Plan{}, err
	}
	e.pool.layers = e.cacheLayers(kept)
	err = e.makePlan(&o, e.counted)
	if _, large := err.(*TooLargeError); large {
		err = nil
	}
	return e.plan, err
}

const (
	// launches is how many kernels of a block a token waits for, counted as the small ones
	// that Speed times: what those of a block take beside reading. On an H200 an 8 B model
	// then takes 1.47 ms of the 1.50 that are measured (docs/devices.md).
	launches = 8
	// timedLaunches is how many Speed times at once, each behind the one before.
	timedLaunches = 200
	normWidth     = 4096
)

// speeds and streamRates are what this process measured, by the devices' properties.
var speeds, streamRates sync.Map

// measuredOnce returns what is known of a device, or else measures it.
func measuredOnce[T any](known *sync.Map, d *Device, measure func() (T, error)) (T, error) {
	key := d.m.device.Properties()
	if x, ok := known.Load(key); ok {
		return x.(T), nil
	}
	x, err := measure()
	if err == nil {
		known.Store(key, x)
	}
	return x, err
}

// Speed returns what the time of a token is predicted from. The first of a process measures it: some
// milliseconds, and the compiling of one kernel where that is not kept.
func (d *Device) Speed() (place.Speed, error) { return measuredOnce(&speeds, d, d.measureSpeed) }

func (d *Device) measureSpeed() (s place.Speed, err error) {
	if s.Read, err = d.m.copyRate(); err != nil {
		return s, err
	}
	b, err := d.m.alloc(12 * normWidth)
	if err != nil {
		return s, err
	}
	defer d.m.free(b)
	if err := d.m.stream.Fill(b, 0); err != nil {
		return s, err
	}
	launch, err := d.m.launchSeconds(b)
	if err != nil {
		return s, err
	}
	s.Block = launches * launch
	if s.Copy, err = d.m.copySeconds(b.At(0, 4)); err != nil {
		return s, err
	}
	large, err := d.m.alloc(linkBytes)
	if err != nil {
		return s, err
	}
	defer d.m.free(large)
	t, err := d.m.copySeconds(large)
	s.Link = linkBytes / max(t-s.Copy, 1e-6)
	return s, err
}

// linkBytes is how much is copied to see how fast a link is.
const linkBytes = 8 << 20

// streamedBytes is how much is sent to see how fast weights come, more than caches hold.
const streamedBytes = 256 << 20

// StreamRate returns how many bytes of the processor's memory a second come to the device the
// way experts do: through pinned chunks, by all lanes at once. The first of a process measures it, which takes
// streamedBytes of memory for as long.
func (d *Device) StreamRate() (float64, error) {
	return measuredOnce(&streamRates, d, d.measureStreamRate)
}

func (d *Device) measureStreamRate() (float64, error) {
	source, least := make([]byte, streamedBytes), math.Inf(1)
	for i := 0; i < len(source); i += 1 << 10 { // else all pages were one of zeros
		source[i] = byte(i >> 10)
	}
	for range 3 {
		start := time.Now()
		next := atomic.Int64{}
		var group errgroup.Group
		for range lanes {
			group.Go(func() error { return d.m.sendAll(source, &next) })
		}
		if err := group.Wait(); err != nil {
			return 0, err
		}
		least = min(least, time.Since(start).Seconds())
	}
	return streamedBytes / least, nil
}

// sendAll takes chunks of a source to a lane's place until there are no more.
func (m *machine) sendAll(source []byte, next *atomic.Int64) (err error) {
	l, err := m.lane()
	if err != nil {
		return err
	}
	for err == nil {
		at := next.Add(chunkBytes) - chunkBytes
		if at >= int64(len(source)) {
			break
		}
		var b []byte
		if b, err = l.half(); err == nil {
			copy(b, source[at:])
			if err = l.stream.Upload(l.device, b); err == nil {
				err = l.queued()
			}
		}
	}
	return errors.Join(err, l.wait(), m.giveBack(l))
}

// launchSeconds returns what one launch of a small kernel takes among others that are
// captured.
func (m *machine) launchSeconds(b driver.Buffer) (float64, error) {
	norm := hip.Norm{T: 1, D: normWidth, X: b.Address, Next: hip.Normal{Weight: at(b.Address, 1, normWidth), Eps: 1e-5}, Out: at(b.Address, 2, normWidth)}
	calls := norm.Calls(m.target)
	if err := m.prepare(calls); err != nil {
		return 0, err
	}
	g, err := m.stream.Capture(func() error {
		for range timedLaunches {
			if err := m.launch(calls); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	defer g.Free()
	if err := m.stream.Replay(g); err != nil { // the first is slower
		return 0, err
	}
	ms, err := m.timed(func() error { return m.stream.Replay(g) })
	return ms / 1e3 / timedLaunches, err
}

// copySeconds returns the median of what bringing bytes to the host takes, waited for.
func (m *machine) copySeconds(b driver.Buffer) (float64, error) {
	var times []float64
	for range 9 {
		start := time.Now()
		if _, err := m.fetch(b); err != nil {
			return 0, err
		}
		times = append(times, time.Since(start).Seconds())
	}
	return place.NewRate(times).Median, nil
}
