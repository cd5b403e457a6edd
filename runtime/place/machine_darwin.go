package place

import "golang.org/x/sys/unix"

// ask reads sysctl's names. On a processor with two kinds of cores, perflevel0
// are the fast ones. Source: Apple, "Determining system capabilities".
func (m *Machine) ask() {
	number := func(names ...string) int64 {
		for _, name := range names {
			if n, err := unix.SysctlUint64(name); err == nil && n > 0 && n < 1<<60 {
				return int64(n)
			}
			if n, err := unix.SysctlUint32(name); err == nil && n > 0 {
				return int64(n)
			}
		}
		return 0
	}
	if name, err := unix.Sysctl("machdep.cpu.brand_string"); err == nil && m.CPU == "" {
		m.CPU = name
	}
	if n := number("hw.physicalcpu"); n > 0 {
		m.Cores = int(n)
	}
	m.Nodes, m.Memory = 1, number("hw.memsize")
	for i, n := range []int64{
		number("hw.perflevel0.l1dcachesize", "hw.l1dcachesize"),
		number("hw.perflevel0.l2cachesize", "hw.l2cachesize"),
		number("hw.perflevel0.l3cachesize", "hw.l3cachesize"),
	} {
		if n > 0 {
			m.Caches = append(m.Caches, Cache{Level: i + 1, Bytes: n})
		}
	}
}

// Available returns 0: the system has no single number for it.
func Available() int64 { return 0 }
