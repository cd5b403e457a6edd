package driver

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"github.com/nstf/nstf/kernels/hip"
)

// Graphics that share the processor's memory are given a small part of it by the
// firmware, which is all that their runtime calls the device's memory (ROCm issue
// HIP 3892: 15.5 of 96 GiB). What else they may map is the size of their table of
// host pages, GTT, which Linux's driver tells beside the card's other files:
// mem_info_vram_total, mem_info_gtt_total and mem_info_gtt_used, in bytes
// (drivers/gpu/drm/amd/amdgpu/amdgpu_vram_mgr.c, amdgpu_gtt_mgr.c).

// hostNonCoherent has a device cache what it maps of the host's memory, which the host
// then leaves alone while kernels run (hipHostMallocNonCoherent).
const hostNonCoherent = 0x80000000

// hostMapped has a device of CUDA map what it allocates of the host's memory (CU_MEMHOSTALLOC_DEVICEMAP).
const hostMapped = 2

// Shared returns how many bytes of the host's memory an integrated device may map
// beside its own, and how many of them are free: no more than seven eighths of what
// the host has available. Both are 0 for other devices, where the driver does not
// tell, and where the runtime counts such memory as the device's.
func (d *Device) Shared() (free, total int64) {
	p := &d.properties
	if !p.Integrated || d.lib.dialect.api != hip.HIP || p.BusID == "" {
		return 0, 0
	}
	read := func(name string) int64 {
		return readNumber(filepath.Join(d.lib.root, "sys/bus/pci/devices", strings.ToLower(p.BusID), name))
	}
	total = read("mem_info_gtt_total")
	own := read("mem_info_vram_total")
	if own == 0 || p.Memory > own+own/64 {
		return 0, 0
	}
	free = min(total-read("mem_info_gtt_used"), available(d.lib.root)/8*7)
	return max(free, 0), total
}

// readNumber returns the number in a file, 0 where there is none.
func readNumber(path string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// available is the memory that the host can give without swapping, in bytes.
func available(root string) int64 {
	text, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemAvailable:" && f[2] == "kB" {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n << 10
		}
	}
	return 0
}

// HostFree returns the bytes that the host can give without swapping, 0 where it does not say.
func (d *Device) HostFree() int64 { return available(d.lib.root) }

// AllocShared returns n bytes of the host's memory, pinned, that the device maps, aligned to
// at least 256. Kernels use it as what Alloc returns, over the link where the device has
// memory of its own; the host leaves it alone. ErrMemory is why it fails where there is no room.
func (d *Device) AllocShared(n int64) (Buffer, error) {
	return d.allocate("AllocShared", n, func(address *uint64) error {
		p := &d.lib.procs
		var host uintptr
		flags := uintptr(hostNonCoherent)
		if d.lib.dialect.api == hip.CUDA {
			flags = hostMapped
		}
		if code := call(&p.pinnedAlloc, uintptr(unsafe.Pointer(&host)), uintptr(n), flags); code != 0 {
			return d.check(&p.pinnedAlloc, aboutBytes(n, d), code)
		}
		*address = uint64(host)
		if p.mapped.ok() {
			if code := call(&p.mapped, uintptr(unsafe.Pointer(address)), host, 0); code != 0 {
				call(&p.pinnedFree, host)
				return d.check(&p.mapped, aboutBytes(n, d), code)
			}
		}
		d.mu.Lock()
		d.shared[hip.Address(*address)] = host
		d.mu.Unlock()
		return nil
	})
}
