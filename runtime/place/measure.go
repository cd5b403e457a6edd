package place

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nstf/nstf/kernels/cpu"
)

// readPart is the bytes that a thread reads at once: enough that handing them out
// costs nothing, few enough that all threads end together.
const readPart = 1 << 20

// A Reader reads the same memory again and again.
type Reader struct {
	pool  *cpu.Pool
	parts [][]byte
	bytes int64
	part  func(worker, i int)
	next  int           // part, of Next
	sum   atomic.Uint64 // of what was read: it has to go somewhere
}

// NewReader prepares to read the given memory with all threads of a pool, with
// the instructions of a level.
func NewReader(set *cpu.Set, pool *cpu.Pool, memory ...[]byte) *Reader {
	r := &Reader{pool: pool}
	for _, p := range memory {
		r.bytes += int64(len(p))
		for len(p) > 0 {
			n := min(len(p), readPart)
			r.parts = append(r.parts, p[:n])
			p = p[n:]
		}
	}
	r.part = func(_, i int) { r.sum.Add(set.ReadWords(r.parts[i])) }
	return r
}

// Read reads everything once and returns bytes per second.
func (r *Reader) Read() float64 {
	start := time.Now()
	r.pool.RunApart(len(r.parts), r.part)
	return float64(r.bytes) / time.Since(start).Seconds()
}

// Next reads at least n bytes, of the parts behind those that were read before, and tells
// how many they were and how long it took.
func (r *Reader) Next(n int64) (bytes int64, took time.Duration) {
	first, count := r.next, 0
	for ; bytes < n && count < len(r.parts); count++ {
		bytes += int64(len(r.parts[r.next]))
		r.next = (r.next + 1) % len(r.parts)
	}
	start := time.Now()
	r.pool.RunApart(count, func(worker, i int) { r.part(worker, (first+i)%len(r.parts)) })
	return bytes, time.Since(start)
}

// pageBytes is the smallest page of any system here.
const pageBytes = 4096

// NewBuffer returns memory to measure bandwidth on: four times the largest cache,
// at least 256 MiB and at most a quarter of the memory that is free. Every page
// has been written, or all would be the same page of zeros, and lies in pages of 2 MiB
// where the system has them.
func NewBuffer(m *Machine) []byte {
	size := max(4*m.LastCache(), 256<<20)
	if free := Available(); free > 0 {
		size = min(size, free/4)
	}
	p := make([]byte, size)
	inLargePages(p)
	for i := 0; i < len(p); i += pageBytes {
		p[i] = 1
	}
	return p
}

// PeakRate multiplies on all threads of a pool for about d and returns operations
// per second.
func PeakRate(pool *cpu.Pool, p cpu.Peak, d time.Duration) float64 {
	const piece = 200 * time.Microsecond
	rounds := 100
	for rounds < 1<<24 { // until a piece is long enough to be timed
		start := time.Now()
		p.Run(rounds)
		if time.Since(start) >= piece {
			break
		}
		rounds *= 2
	}
	parts := pool.Threads() * max(int(d/piece), 1)
	start := time.Now()
	pool.Run(parts, func(int) { p.Run(rounds) })
	return float64(p.Ops()) * float64(rounds) * float64(parts) / time.Since(start).Seconds()
}

const (
	readSamples = 7
	peakSamples = 7
	peakTime    = 10 * time.Millisecond
)

// Measure times the machine: some seconds, and the memory of [NewBuffer]. Threads
// is the number to measure with, beside one alone. It ends early with the error
// of ctx.
func Measure(ctx context.Context, set *cpu.Set, threads int) (*Profile, error) {
	m := Discover(set)
	return measure(ctx, set, &m, threads, NewBuffer(&m))
}

// bandwidths are what this process measured, by threads: [Bandwidth] holds it while it measures.
var bandwidths struct {
	sync.Mutex
	of map[int]float64
}

// Bandwidth returns the bytes of memory that so many threads read in a second: what a
// folder keeps of the machine ([Load]), or what is measured, in about a second, once by
// each process.
func Bandwidth(dir string, set *cpu.Set, threads int) float64 {
	m := Discover(set)
	if p, err := Load(dir, &m, threads); err == nil {
		return p.ReadAll.Median * 1e9
	}
	bandwidths.Lock()
	defer bandwidths.Unlock()
	if b := bandwidths.of[threads]; b > 0 {
		return b
	}
	pool := cpu.NewPool(threads)
	defer pool.Close()
	r := NewReader(set, pool, NewBuffer(&m))
	r.Read()
	if bandwidths.of == nil {
		bandwidths.of = map[int]float64{}
	}
	b := NewRate([]float64{r.Read(), r.Read(), r.Read()}).Median
	bandwidths.of[threads] = b
	return b
}

func measure(ctx context.Context, set *cpu.Set, m *Machine, threads int, buffer []byte) (*Profile, error) {
	one, all := cpu.NewPool(1), cpu.NewPool(threads)
	defer one.Close()
	defer all.Close()
	p := &Profile{Version: profileVersion, Key: m.Key(), Machine: *m, Measured: time.Now().UTC().Truncate(time.Second),
		Threads: threads, Buffer: int64(len(buffer))}
	var err error
	sample := func(n int, f func() float64) Rate {
		samples := make([]float64, 0, n)
		for range n {
			if err = ctx.Err(); err != nil {
				return Rate{}
			}
			samples = append(samples, f()/1e9)
		}
		return NewRate(samples)
	}
	p.ReadOne = sample(readSamples, NewReader(set, one, buffer).Read)
	if err == nil {
		p.ReadAll = sample(readSamples, NewReader(set, all, buffer).Read)
	}
	for _, k := range set.Peaks() {
		if err != nil {
			return nil, err
		}
		p.Peaks = append(p.Peaks, Peak{Kind: k.Kind(),
			One: sample(peakSamples, func() float64 { return PeakRate(one, k, peakTime) })})
		if err == nil {
			p.Peaks[len(p.Peaks)-1].All = sample(peakSamples, func() float64 { return PeakRate(all, k, peakTime) })
		}
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}
