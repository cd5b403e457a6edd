package doctor

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Link is a way from a node of the kernel's topology to another, as its driver lists it: GPUs are
// nodes, and so are processors. Source: Linux, drivers/gpu/drm/amd/amdkfd/kfd_crat.h and
// kfd_topology.c.
type Link struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Kind   string `json:"kind"`           // xgmi, pcie, or the kernel's number
	Hops   int    `json:"hops,omitempty"` // of Infinity Fabric
	Weight int64  `json:"weight"`
	Rate   int64  `json:"megabytes_s,omitempty"` // at most; 0: the driver does not say
	Closed bool   `json:"no_peers,omitempty"`    // no device reads the other's memory by it
}

// Kinds of links, and what is of interest of their flags.
const (
	linkPCIe  = 2
	linkXGMI  = 11
	noPeers   = 1 << 4 // CRAT_IOLINK_FLAGS_NO_PEER_TO_PEER_DMA
	hopWeight = 15     // of one of XGMI; PCIe's is 20, others have the distance of their NUMA nodes
)

// links reads the ways of all nodes: what is built in, and where GPUs reach one another by way of
// the processor's bridges.
func links(root string) (list []Link) {
	paths, _ := filepath.Glob(filepath.Join(root, "sys/class/kfd/kfd/topology/nodes/*/*_links/*/properties"))
	for _, path := range paths {
		p := properties(path)
		if p == nil {
			continue
		}
		l := Link{From: fmt.Sprint(p["node_from"]), To: fmt.Sprint(p["node_to"]), Kind: fmt.Sprint("kind ", p["type"]), Weight: p["weight"], Rate: p["max_bandwidth"], Closed: p["flags"]&noPeers != 0}
		switch p["type"] {
		case linkPCIe:
			l.Kind = "pcie"
		case linkXGMI:
			l.Kind, l.Hops = "xgmi", int(l.Weight/hopWeight)
		}
		list = append(list, l)
	}
	return list
}

// peers returns how a card reaches another's memory, nil where it does not.
func (r *Report) peers(from, to *Card) *Link {
	for i := range r.Links {
		if l := &r.Links[i]; l.From == from.Node && l.To == to.Node && !l.Closed {
			return l
		}
	}
	return nil
}

// place fills in where a card is plugged in, and what stands between it and others there.
func (c *Card) place(root string, p map[string]int64) {
	if _, ok := p["location_id"]; !ok {
		return
	}
	at := p["location_id"] // bus, device and function, as PCI numbers them
	c.PCI = fmt.Sprintf("%04x:%02x:%02x.%x", p["domain"], at>>8&0xff, at>>3&0x1f, at&7)
	dir := filepath.Join(root, "sys/bus/pci/devices", c.PCI)
	kind, _ := os.ReadFile(filepath.Join(dir, "iommu_group/type"))
	c.IOMMU = strings.TrimSpace(string(kind))
	way, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return
	}
	for up := filepath.Dir(way); strings.Count(filepath.Base(up), ":") == 2; up = filepath.Dir(up) { // 0000:00:01.1; the root is pci0000:00
		switch on, known := redirects(filepath.Join(up, "config")); {
		case on:
			c.Redirected = strings.TrimSpace(filepath.Base(up) + " " + c.Redirected)
		case !known:
			c.Unread = true
		}
	}
}

// redirects reports whether a bridge sends what devices below it write to one another up to the
// processor: of Access Control Services (PCI Express Base Specification, 7.7.8) the redirection of
// requests. known is false where the system shows the first bytes of the registers alone, as it
// does to all but root.
func redirects(path string) (on, known bool) {
	const (
		plain    = 256 // bytes in front of the extended capabilities
		idACS    = 0x0d
		control  = 6 // behind the capability's header
		requests = 1 << 2
	)
	b, err := os.ReadFile(path)
	if err != nil || len(b) <= plain {
		return false, false
	}
	for at, left := plain, 64; at >= plain && at+control+2 <= len(b) && left > 0; left-- {
		head := binary.LittleEndian.Uint32(b[at:])
		if head&0xffff == idACS {
			return binary.LittleEndian.Uint16(b[at+control:])&requests != 0, true
		}
		at = int(head >> 20)
	}
	return false, true
}

// linkFindings: what is in the way of GPUs that do not reach one another's memory.
func linkFindings(r *Report) (list []Finding) {
	var apart []string
	cards := map[int]bool{}
	for i := range r.Cards {
		for j := range i {
			if a, b := &r.Cards[j], &r.Cards[i]; a.Arch == b.Arch && (r.peers(a, b) == nil || r.peers(b, a) == nil) { // others share no model by tensors
				apart = append(apart, a.Node+" and "+b.Node)
				cards[i], cards[j] = true, true
			}
		}
	}
	if len(apart) == 0 || len(r.Links) == 0 {
		return runtimeFindings(r)
	}
	problem := fmt.Sprintf("cards %s do not reach one another's memory, so that they cannot share a model by tensors: ", strings.Join(apart, ", "))
	add := func(remedy, format string, args ...any) {
		list = append(list, Finding{problem + fmt.Sprintf(format, args...), remedy})
	}
	iommu, unread := "", false
	var bridges []string
	for i := range r.Cards {
		c := &r.Cards[i]
		if !cards[i] {
			continue
		}
		if c.Hidden > 0 {
			add("turn on Above 4G Decoding and Resizable BAR in the BIOS", "card %s shows %.1f of its %.1f GiB to others (no large BAR)", c.Node, gib(c.Memory-c.Hidden), gib(c.Memory))
		}
		if strings.HasPrefix(c.IOMMU, "DMA") {
			iommu = c.IOMMU
		}
		unread = unread || c.Unread
		for b := range strings.FieldsSeq(c.Redirected) {
			if !slices.Contains(bridges, b) {
				bridges = append(bridges, b)
			}
		}
	}
	if iommu != "" {
		add("boot Linux with iommu=pt, or turn the IOMMU off in the BIOS", "an IOMMU translates what they write (%s)", iommu)
	}
	if len(bridges) > 0 {
		add("turn ACS off in the BIOS, or in these bridges by setpci: virtual machines that have a card each need it", "bridges send that up to the processor (ACS of %s)", strings.Join(bridges, ", "))
	}
	if len(list) == 0 {
		remedy := "Linux wants CONFIG_HSA_AMD_P2P (6.0 and later), and bridges that let it pass"
		if unread {
			remedy += "; as root, nstf doctor reads their ACS too"
		}
		add(remedy, "no large BAR is missing, and no IOMMU translates")
	}
	return list
}

// runtimeFindings: the same by what a runtime says, where the kernel says nothing.
func runtimeFindings(r *Report) (list []Finding) {
	for i := range r.APIs {
		a := &r.APIs[i]
		var apart []string
		for k := range a.Devices {
			for j := range k {
				one, other := &a.Devices[j], &a.Devices[k]
				if one.Target.Arch == other.Target.Arch && (!slices.Contains(one.Reaches, k) || !slices.Contains(other.Reaches, j)) {
					apart = append(apart, fmt.Sprintf("%s:%d and %s:%d", a.API, j, a.API, k))
				}
			}
		}
		if len(apart) > 0 && len(r.Links) == 0 {
			list = append(list, Finding{strings.Join(apart, ", ") + " do not reach one another's memory, so that they cannot share a model by tensors",
				"what may be in the way: an IOMMU that isolates the cards (iommu=pt), ACS of a PCIe switch, a BIOS without large BARs, a driver that keeps consumers' cards apart"})
		}
	}
	return list
}

func gib(n int64) float64 { return float64(n) / (1 << 30) }
