package cpu

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// pin keeps the calling goroutine on one thread and that thread on one of the
// processors that it may run on, the number-th. The thread ends with the
// goroutine.
func pin(number int) error {
	runtime.LockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	number %= max(all.Count(), 1)
	for i := 0; ; i++ {
		if all.IsSet(i) {
			if number == 0 {
				one.Set(i)
				return unix.SchedSetaffinity(0, &one)
			}
			number--
		}
		if i >= 8*len(all)*8 {
			return unix.EINVAL // no processor at all
		}
	}
}
