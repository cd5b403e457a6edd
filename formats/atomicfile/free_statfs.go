//go:build linux || darwin || freebsd

package atomicfile

import (
	"math"
	"math/bits"

	"golang.org/x/sys/unix"
)

// available returns the bytes that this user may still write below dir, or
// false where the file system does not say (some report no blocks at all).
func available(dir string) (int64, bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Blocks == 0 {
		return 0, false
	}
	hi, lo := bits.Mul64(uint64(max(int64(st.Bavail), 0)), uint64(st.Bsize))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64, true
	}
	return int64(lo), true
}
