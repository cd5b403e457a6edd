package place

import "os"

func (m *Machine) ask() { m.sysfs(os.DirFS("/")) }

// available returns the memory that may be taken without swapping, 0 where the
// system does not say.
func available() int64 { return meminfo(os.DirFS("/"), "MemAvailable") }
