package bench

import (
	"os"
	"strconv"
	"strings"
)

// peakRSS returns the most memory that this process had resident, 0 where the
// system does not tell. Source: proc_pid_status(5), VmHWM.
func peakRSS() int64 {
	p, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(p)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}
