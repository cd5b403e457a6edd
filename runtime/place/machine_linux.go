package place

import "os"

func (m *Machine) ask() { m.sysfs(os.DirFS("/")) }

// Available returns the memory that may be taken without swapping, 0 where the
// system does not say.
func Available() int64 { return available(os.DirFS("/")) }
