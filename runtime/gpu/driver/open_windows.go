//go:build !nogpu && (amd64 || arm64)

package driver

import (
	"errors"
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"
)

// openLibrary loads a DLL by name or path. A name is searched for in the system's
// folder alone, where drivers put theirs: whoever may write to the folder of this
// program, to the current one or to one in PATH gets nothing loaded. What a DLL of
// a path needs itself is searched for beside it, too.
func openLibrary(name string) (uintptr, error) {
	flags := uintptr(windows.LOAD_LIBRARY_SEARCH_SYSTEM32)
	if strings.ContainsAny(name, `\/`) {
		path, err := filepath.Abs(name) // a relative one is refused with that flag
		if err != nil {
			return 0, err
		}
		name, flags = path, flags|windows.LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR
	}
	h, err := windows.LoadLibraryEx(name, 0, flags)
	if errors.Is(err, windows.ERROR_MOD_NOT_FOUND) && flags&windows.LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR == 0 {
		err = errors.New(noSuchFile) // or one that it needs: Windows does not tell
	}
	return uintptr(h), err
}

// lookup returns a symbol's address, 0 where there is none.
func lookup(handle uintptr, symbol string) uintptr {
	a, err := windows.GetProcAddress(windows.Handle(handle), symbol)
	if err != nil {
		return 0
	}
	return a
}

// libraryPath returns the file of a loaded DLL.
func libraryPath(handle uintptr, name, _ string) string {
	b := make([]uint16, windows.MAX_PATH)
	n, err := windows.GetModuleFileName(windows.Handle(handle), &b[0], uint32(len(b)))
	if err != nil {
		return name
	}
	return windows.UTF16ToString(b[:n])
}
