package cpu_test

import (
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nstf/nstf/kernels/cpu"
)

// An idle pool takes no processor time: its threads spin for a moment only.
func TestIdlePoolSleeps(t *testing.T) {
	used := func() time.Duration {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			t.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	p := cpu.NewPool(runtime.GOMAXPROCS(0))
	defer p.Close()
	for range 100 {
		p.Run(8, func(int) {})
	}
	runtime.GC()
	time.Sleep(20 * time.Millisecond)
	before := used()
	const wait = 300 * time.Millisecond
	time.Sleep(wait)
	if d := used() - before; d > wait/5 {
		t.Errorf("%v of processor time in %v", d, wait)
	}
}

// Each goroutine of a pinned pool, the caller's aside, runs on one processor.
func TestPinnedPool(t *testing.T) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	p, err := cpu.NewPinnedPool(3)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var mu sync.Mutex
	seen := map[int]bool{}
	for len(seen) < 2 {
		p.RunWorkers(64, func(worker, _ int) {
			var set unix.CPUSet
			if err := unix.SchedGetaffinity(0, &set); err != nil {
				t.Error(err)
			}
			time.Sleep(100 * time.Microsecond)
			mu.Lock()
			defer mu.Unlock()
			if worker > 0 {
				seen[worker] = true
				if set.Count() != 1 {
					t.Errorf("worker %d may run on %d processors", worker, set.Count())
				}
			}
		})
	}
	var now unix.CPUSet
	if err := unix.SchedGetaffinity(0, &now); err != nil || now != all {
		t.Errorf("the caller may run on %d processors, before on %d (%v)", now.Count(), all.Count(), err)
	}
}
