//go:build !nogpu && (linux || darwin) && (amd64 || arm64)

package driver

import (
	"os"
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

// libraryPath returns the file that a name was found as: from the list of
// what is mapped, where the system has one.
func libraryPath(_ uintptr, name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return ""
	}
	stem, _, _ := strings.Cut(name, ".so")
	for line := range strings.Lines(string(maps)) {
		i := strings.IndexByte(line, '/')
		if i < 0 {
			continue
		}
		path := strings.TrimSpace(line[i:])
		if strings.HasPrefix(path[strings.LastIndexByte(path, '/')+1:], stem+".so") {
			return path
		}
	}
	return ""
}
