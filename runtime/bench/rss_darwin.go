package bench

import "golang.org/x/sys/unix"

// peakRSS returns the most memory that this process had resident: getrusage(2)
// counts it in bytes on this system.
func peakRSS() int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Maxrss
}
