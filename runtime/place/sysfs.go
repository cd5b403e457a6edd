package place

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// sysfs fills in what Linux shows as files below a root: caches, cores and
// nodes under sys, the memory under proc. Source: the kernel's
// Documentation/ABI/testing/sysfs-devices-system-cpu.
func (m *Machine) sysfs(root fs.FS) {
	const cpus = "sys/devices/system/cpu"
	seen := map[string]bool{}
	for _, cpu := range list(text(root, cpus+"/online")) {
		topology := fmt.Sprintf("%s/cpu%d/topology/", cpus, cpu)
		core, pack := text(root, topology+"core_id"), text(root, topology+"physical_package_id")
		if core != "" {
			seen[pack+":"+core] = true
		}
	}
	if len(seen) > 0 {
		m.Cores = len(seen)
	}
	if m.CPU == "" { // arm64: the register that names implementer, part and revision
		if midr := text(root, cpus+"/cpu0/regs/identification/midr_el1"); midr != "" {
			m.CPU = "MIDR " + midr
		}
	}
	m.Nodes = len(list(text(root, "sys/devices/system/node/online")))
	m.Memory = meminfo(root, "MemTotal")
	for i := range 10 {
		if c, ok := sysfsCache(root, fmt.Sprintf("%s/cpu0/cache/index%d", cpus, i)); ok {
			m.Caches = append(m.Caches, c)
		}
	}
}

// sysfsCache reads one cache of data.
func sysfsCache(root fs.FS, dir string) (Cache, bool) {
	kind := text(root, path.Join(dir, "type"))
	level, err := strconv.Atoi(text(root, path.Join(dir, "level")))
	size := sizeOf(text(root, path.Join(dir, "size")))
	if err != nil || level < 1 || size == 0 || kind != "Data" && kind != "Unified" {
		return Cache{}, false
	}
	return Cache{Level: level, Bytes: size, Sharing: len(list(text(root, path.Join(dir, "shared_cpu_list"))))}, true
}

// meminfo returns a line of proc/meminfo in bytes, 0 where there is none.
func meminfo(root fs.FS, key string) int64 {
	for line := range strings.Lines(text(root, "proc/meminfo")) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			return sizeOf(strings.ReplaceAll(strings.TrimSpace(rest), " kB", "K"))
		}
	}
	return 0
}

// available returns the memory that may be taken: what the machine has, or less where a control
// group that the process is in allows less.
func available(root fs.FS) int64 {
	free := meminfo(root, "MemAvailable")
	for line := range strings.Lines(text(root, "proc/self/cgroup")) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		dir, limit, used := "sys/fs/cgroup", "memory.max", []string{"anon", "shmem"}
		switch {
		case len(fields) < 3 || fields[1] != "" && fields[1] != "memory":
			continue
		case fields[1] == "memory": // the first version of control groups
			dir, limit, used = "sys/fs/cgroup/memory", "memory.limit_in_bytes", []string{"total_rss", "total_shmem"}
		}
		for at := path.Join(dir, fields[2]); ; at = path.Dir(at) { // those around it limit it too
			if most := sizeOf(text(root, path.Join(at, limit))); most > 0 {
				for line := range strings.Lines(text(root, path.Join(at, "memory.stat"))) {
					if key, n, ok := strings.Cut(line, " "); ok && slices.Contains(used, key) {
						most -= sizeOf(strings.TrimSpace(n)) // what files on disks hold can be given up
					}
				}
				free = min(free, max(most, 1))
			}
			if at == dir || !strings.HasPrefix(at, dir) {
				break
			}
		}
	}
	return free
}

// text returns a file's content without spaces around it, "" where there is none.
func text(root fs.FS, name string) string {
	p, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(p))
}

// sizeOf reads a size such as 48K or 2M; 0 for anything else.
func sizeOf(s string) int64 {
	unit := int64(1)
	if len(s) > 0 {
		switch s[len(s)-1] {
		case 'K':
			unit = 1 << 10
		case 'M':
			unit = 1 << 20
		case 'G':
			unit = 1 << 30
		}
		if unit > 1 {
			s = s[:len(s)-1]
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > 1<<60/unit {
		return 0
	}
	return n * unit
}

// maxProcessors bounds the numbers in a list of processors.
const maxProcessors = 1 << 16

// list reads numbers and ranges such as 0-3,8; nil for anything else.
func list(s string) []int {
	var all []int
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(lo)
		b := a
		if isRange && err == nil {
			b, err = strconv.Atoi(hi)
		}
		if err != nil || a < 0 || b < a || b >= maxProcessors {
			return nil
		}
		for i := a; i <= b; i++ {
			all = append(all, i)
		}
	}
	return all
}
