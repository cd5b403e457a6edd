//go:build amd64 && !noasm

package cpu

import "golang.org/x/sys/unix"

// allowTiles asks the system for the registers of tiles, which a process has to do
// once; asking again does no harm. Source: the kernel's
// Documentation/arch/x86/xstate.rst, ARCH_REQ_XCOMP_PERM of XTILE_DATA.
func allowTiles() bool {
	const requestPermission, tileData = 0x1023, 18
	_, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return errno == 0
}
