package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A Card is an AMD GPU as Linux's amdgpu driver lists it, runtime or not.
type Card struct {
	Node   string `json:"node"` // of /sys/class/kfd/kfd/topology/nodes
	Arch   string `json:"arch"`
	Name   string `json:"name,omitempty"` // the driver's: navi31
	Units  int    `json:"units"`
	Memory int64  `json:"memory"`                  // bytes of its own
	Hidden int64  `json:"hidden_memory,omitempty"` // of those, what the processor and other cards do not see
	PCI    string `json:"pci,omitempty"`           // address: 0000:03:00.0
	IOMMU  string `json:"iommu,omitempty"`         // type of its group: identity, DMA, DMA-FQ
	// Redirected are bridges above it that send what it writes to other cards to the processor
	// (ACS), parted by blanks; Unread: there are some of which only root learns that.
	Redirected string `json:"acs,omitempty"`
	Unread     bool   `json:"acs_unread,omitempty"`
}

const (
	vendorAMD    = "0x1002"
	vendorNVIDIA = "0x10de"
)

// cards reads the topology that the kernel gives to ROCm. Its node 0 is the
// processor, which has no SIMD units.
func cards(root string) []Card {
	paths, _ := filepath.Glob(filepath.Join(root, "sys/class/kfd/kfd/topology/nodes/*"))
	var list []Card
	for _, path := range paths {
		p := properties(filepath.Join(path, "properties"))
		version := p["gfx_target_version"]
		if p["simd_count"] == 0 || version == 0 {
			continue
		}
		name, _ := os.ReadFile(filepath.Join(path, "name"))
		c := Card{Node: filepath.Base(path), Arch: archOf(version), Name: strings.TrimSpace(string(name))}
		c.Memory, c.Hidden = memory(path)
		c.place(root, p)
		if per := p["simd_per_cu"]; per > 0 {
			c.Units = int(p["simd_count"] / per)
		}
		list = append(list, c)
	}
	return list
}

// archOf writes a version of the kernel's (110000, 90010) as the compiler does
// (gfx1100, gfx90a): two decimal digits each for major, minor and stepping.
func archOf(version int64) string {
	return fmt.Sprintf("gfx%d%x%x", version/10000, version/100%100, version%100)
}

// memory adds up the memory banks of a node that are the card's own, and of them those that nobody
// else sees.
func memory(node string) (all, hidden int64) {
	banks, _ := filepath.Glob(filepath.Join(node, "mem_banks/*/properties"))
	for _, b := range banks {
		switch p := properties(b); p["heap_type"] {
		case 1: // frame buffer that the processor sees
			all += p["size_in_bytes"]
		case 2:
			all, hidden = all+p["size_in_bytes"], hidden+p["size_in_bytes"]
		}
	}
	return all, hidden
}

// properties reads lines of a name and a number.
func properties(path string) map[string]int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	p := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			if n, err := strconv.ParseInt(value, 10, 64); err == nil {
				p[name] = n
			}
		}
	}
	return p
}

// hasPCI reports whether a graphics card or accelerator of a vendor is plugged in.
func hasPCI(root, vendor string) bool {
	paths, _ := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices/*"))
	for _, path := range paths {
		v, _ := os.ReadFile(filepath.Join(path, "vendor"))
		class, _ := os.ReadFile(filepath.Join(path, "class"))
		// 03 is a display controller, 12 a processing accelerator
		if strings.TrimSpace(string(v)) == vendor && (strings.HasPrefix(string(class), "0x03") || strings.HasPrefix(string(class), "0x12")) {
			return true
		}
	}
	return false
}
