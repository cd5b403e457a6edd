package cpu_test

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstf/nstf/kernels/cpu"
)

func TestPoolRunsEachPartOnce(t *testing.T) {
	for _, threads := range []int{-1, 1, 2, 3, 8} {
		p := cpu.NewPool(threads)
		if want := max(threads, 1); p.Threads() != want {
			t.Errorf("NewPool(%d) has %d threads, want %d", threads, p.Threads(), want)
		}
		for parts := range 20 {
			counts := make([]atomic.Int32, parts)
			p.Run(parts, func(part int) { counts[part].Add(1) })
			p.RunWorkers(parts, func(_, part int) { counts[part].Add(1) })
			p.RunApart(parts, func(_, part int) { counts[part].Add(1) })
			for i := range counts {
				if n := counts[i].Load(); n != 3 {
					t.Fatalf("%d threads, %d parts: part %d ran %d times, want 3", threads, parts, i, n)
				}
			}
		}
		p.Close()
		p.Close()
	}
}

func TestPoolWorkersAreExclusive(t *testing.T) {
	p := cpu.NewPool(4)
	defer p.Close()
	busy := make([]atomic.Bool, p.Threads())
	p.RunWorkers(64, func(worker, _ int) {
		if busy[worker].Swap(true) {
			t.Errorf("two parts at once on worker %d", worker)
		}
		time.Sleep(100 * time.Microsecond)
		busy[worker].Store(false)
	})
}

// A worker of RunApart goes on from where it is, and takes what is behind another when
// it is done: worker 1 waits until all parts but its first have gone to worker 0.
func TestPoolRunsApart(t *testing.T) {
	const parts = 10
	p := cpu.NewPool(2)
	defer p.Close()
	begun, done := make(chan bool), make(chan bool)
	var order []int // of worker 0
	p.RunApart(parts, func(worker, part int) {
		if worker == 1 {
			if part != 5 {
				t.Errorf("worker 1 ran part %d", part)
				return
			}
			close(begun)
			<-done
			return
		}
		if part == 0 {
			<-begun
		}
		if order = append(order, part); len(order) == parts-1 {
			close(done)
		}
	})
	if want := []int{0, 1, 2, 3, 4, 9, 8, 7, 6}; !slices.Equal(order, want) {
		t.Errorf("worker 0 ran %v, want %v", order, want)
	}
}

func TestPoolTakesTurns(t *testing.T) {
	p := cpu.NewPool(3)
	defer p.Close()
	var total atomic.Int64
	done := make(chan bool)
	for range 8 {
		go func() {
			for range 50 {
				p.Run(7, func(part int) { total.Add(int64(part)) })
			}
			done <- true
		}()
	}
	for range 8 {
		<-done
	}
	if got := total.Load(); got != 8*50*21 {
		t.Errorf("parts add up to %d, want %d", got, 8*50*21)
	}
}

func TestPoolRaisesPanic(t *testing.T) {
	p := cpu.NewPool(3)
	defer p.Close()
	for i := range 10 {
		bad := i / 2
		func() {
			defer func() {
				if v := recover(); v != "broken" {
					t.Errorf("recovered %v, want the panic of part %d", v, bad)
				}
			}()
			broken := func(_, part int) {
				if part == bad {
					panic("broken")
				}
			}
			if i%2 == 0 {
				p.RunWorkers(5, broken)
			} else {
				p.RunApart(5, broken)
			}
		}()
	}
	n := atomic.Int32{}
	p.Run(5, func(int) { n.Add(1) })
	if n.Load() != 5 {
		t.Errorf("after panics %d of 5 parts ran", n.Load())
	}
}

func TestPoolEndsGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		p := cpu.NewPool(8)
		p.Run(8, func(int) {})
		p.Close()
	}
	for i := 0; runtime.NumGoroutine() > before; i++ {
		if i == 100 {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestClosedPoolPanics(t *testing.T) {
	p := cpu.NewPool(2)
	p.Close()
	defer func() {
		if recover() == nil {
			t.Error("Run on a closed pool did not panic")
		}
	}()
	p.Run(1, func(int) {})
}

func TestPoolAllocatesNothing(t *testing.T) {
	p := cpu.NewPool(2)
	defer p.Close()
	f, g := func(int) {}, func(int, int) {}
	if n := testing.AllocsPerRun(200, func() { p.Run(4, f); p.RunWorkers(4, g); p.RunApart(4, g) }); n != 0 {
		t.Errorf("%g allocations a call, want none", n)
	}
}

func TestSpan(t *testing.T) {
	for _, n := range []int{0, 1, 31, 32, 33, 1000} {
		for _, align := range []int{1, 8, 32} {
			for parts := 1; parts < 9; parts++ {
				next := 0
				for i := range parts {
					lo, hi := cpu.Span(n, align, parts, i)
					if lo != next || hi < lo || hi < n && hi%align != 0 {
						t.Fatalf("Span(%d, %d, %d, %d) = %d, %d after %d", n, align, parts, i, lo, hi, next)
					}
					next = hi
				}
				if next != n {
					t.Fatalf("Span(%d, %d, %d) ends at %d", n, align, parts, next)
				}
			}
		}
	}
}

func BenchmarkPoolRun(b *testing.B) {
	p := cpu.NewPool(2)
	defer p.Close()
	f := func(int) {}
	b.ReportAllocs()
	for b.Loop() {
		p.Run(2, f)
	}
}
