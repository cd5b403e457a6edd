//go:build !nogpu && (linux || darwin) && (amd64 || arm64)

package driver

import (
	"os"
	"strconv"
	"strings"

	"github.com/ebitengine/purego"
)

// openLibrary loads a library by name or path.
func openLibrary(name string) (uintptr, error) {
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// lookup returns a symbol's address, 0 where there is none.
func lookup(handle uintptr, symbol string) uintptr {
	a, err := purego.Dlsym(handle, symbol)
	if err != nil {
		return 0
	}
	return a
}

// libraryPath returns the file that a name was found as: the one that is mapped where its function lies, where the
// system has a list of that. Another library of the same name may be loaded too.
func libraryPath(handle uintptr, name, function string) string {
	if strings.Contains(name, "/") {
		return name
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return ""
	}
	address := uint64(lookup(handle, function))
	for line := range strings.Lines(string(maps)) { // 7f00-7f10 r-xp 00000000 08:01 42   /usr/lib/libhiprtc.so.6
		extent, _, _ := strings.Cut(line, " ")
		from, to, _ := strings.Cut(extent, "-")
		lo, loErr := strconv.ParseUint(from, 16, 64)
		hi, hiErr := strconv.ParseUint(to, 16, 64)
		if loErr != nil || hiErr != nil || address < lo || address >= hi {
			continue
		}
		if i := strings.IndexByte(line, '/'); i >= 0 {
			return strings.TrimSpace(line[i:])
		}
	}
	return ""
}
