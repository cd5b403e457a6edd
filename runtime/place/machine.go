package place

import (
	"fmt"
	goruntime "runtime"

	"github.com/klauspost/cpuid/v2"

	"github.com/nstf/nstf/kernels/cpu"
)

// A Machine is what the system says about itself. Zero is "it does not say".
type Machine struct {
	CPU     string  `json:"cpu"`     // the maker's name of the processor
	System  string  `json:"system"`  // operating system and architecture
	Level   string  `json:"level"`   // of the kernels, see cpu.Level
	Cores   int     `json:"cores"`   // physical
	Threads int     `json:"threads"` // logical processors that this process may use
	Nodes   int     `json:"nodes"`   // of memory (NUMA)
	Caches  []Cache `json:"caches"`  // of data, the smallest first
	Memory  int64   `json:"memory"`  // bytes
}

// A Cache is one level of the hierarchy, as seen from a core.
type Cache struct {
	Level   int   `json:"level"`
	Bytes   int64 `json:"bytes"`
	Sharing int   `json:"sharing"` // logical processors that share it
}

// Discover describes the machine that this process runs on, with the level of
// the kernels in use.
func Discover(set *cpu.Set) Machine {
	m := Machine{
		CPU: cpuid.CPU.BrandName, System: goruntime.GOOS + "/" + goruntime.GOARCH, Level: set.Level().String(),
		Cores: cpuid.CPU.PhysicalCores, Threads: goruntime.NumCPU(),
	}
	m.ask()
	if len(m.Caches) == 0 {
		m.Caches = cpuidCaches()
	}
	return m
}

// cpuidCaches is what the processor itself says; who shares, it does not.
func cpuidCaches() []Cache {
	var cs []Cache
	for i, n := range []int{cpuid.CPU.Cache.L1D, cpuid.CPU.Cache.L2, cpuid.CPU.Cache.L3} {
		if n > 0 {
			cs = append(cs, Cache{Level: i + 1, Bytes: int64(n)})
		}
	}
	return cs
}

// SMT returns the hardware threads of a core, 0 where the system does not say.
func (m *Machine) SMT() int {
	if m.Cores == 0 {
		return 0
	}
	return max(m.Threads/m.Cores, 1)
}

// LastCache returns the size of the largest cache.
func (m *Machine) LastCache() int64 {
	var n int64
	for _, c := range m.Caches {
		n = max(n, c.Bytes)
	}
	return n
}

// Key says which measurements are those of this machine: they depend on the
// processor, the kernels and the cores that may be used.
func (m *Machine) Key() string {
	return fmt.Sprintf("%s|%s|%s|%d|%d", m.CPU, m.System, m.Level, m.Cores, m.Threads)
}
