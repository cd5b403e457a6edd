package tensor

import "golang.org/x/sys/unix"

// inLargePages asks for pages of 2 MiB where the file system has them (ext4 since Linux
// 6.16, XFS, tmpfs), for what is not in the page cache yet. Weights are read once a
// token, and a virtual machine reads memory in small pages at half to three quarters of
// the rate: docs/perf/cpu.md. It is a wish: where it is not granted nothing changes.
func inLargePages(p []byte) { _ = unix.Madvise(p, unix.MADV_HUGEPAGE) }
