package tensor

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

func openFile(path string) (*os.File, error) { return os.Open(path) }

func mapFile(f *os.File, size int64) ([]byte, error) {
	h, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READONLY, 0, 0, nil)
	if err != nil {
		return nil, os.NewSyscallError("CreateFileMapping", err)
	}
	addr, err := windows.MapViewOfFile(h, windows.FILE_MAP_READ, 0, 0, uintptr(size))
	if cerr := windows.CloseHandle(h); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, os.NewSyscallError("MapViewOfFile", err)
	}
	// The address is memory of the system's, not of Go's collector.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), size), nil
}

func unmapFile(p []byte) error {
	return windows.UnmapViewOfFile(uintptr(unsafe.Pointer(unsafe.SliceData(p))))
}
