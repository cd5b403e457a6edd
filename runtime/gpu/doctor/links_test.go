package doctor

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const nodes = "sys/class/kfd/kfd/topology/nodes/"

// machine is a processor, node 0, and so many cards with 16 GiB that everybody sees.
func machine(gpus int, version int) map[string]string {
	files := map[string]string{nodes + "0/properties": "cpu_cores_count 16\nsimd_count 0\ngfx_target_version 0\n"}
	for i := 1; i <= gpus; i++ {
		dir := fmt.Sprint(nodes, i, "/")
		files[dir+"properties"] = fmt.Sprintf("simd_count 192\nsimd_per_cu 2\ngfx_target_version %d\nlocation_id %d\ndomain 0\n", version, (2+i)<<8)
		files[dir+"mem_banks/0/properties"] = "heap_type 1\nsize_in_bytes 17179869184\n"
		files[dir+"io_links/0/properties"] = way(i, 0, 2, 20, 0, 0)
	}
	return files
}

func way(from, to, kind, weight, rate, flags int) string {
	return fmt.Sprintf("type %d\nversion_major 0\nnode_from %d\nnode_to %d\nweight %d\nmax_bandwidth %d\nflags %d\n", kind, from, to, weight, rate, flags)
}

// plug puts cards behind a bridge each, whose registers are given, with groups of an IOMMU.
func plug(t *testing.T, root string, gpus int, bridge []byte, iommu string) {
	t.Helper()
	for i := 1; i <= gpus; i++ {
		up := fmt.Sprintf("sys/devices/pci0000:00/0000:00:%02x.0", i)
		at := fmt.Sprintf("0000:%02x:00.0", 2+i)
		for name, text := range map[string]string{up + "/config": string(bridge), up + "/" + at + "/iommu_group/type": iommu + "\n"} {
			if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		list := filepath.Join(root, "sys/bus/pci/devices")
		if err := os.MkdirAll(list, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(root, up, at), filepath.Join(list, at)); err != nil {
			t.Fatal(err)
		}
	}
}

// registers are a bridge's, with Access Control Services behind another capability.
func registers(control uint16) []byte {
	b := make([]byte, 4096)
	binary.LittleEndian.PutUint32(b[256:], 0x0001|0x140<<20)
	binary.LittleEndian.PutUint32(b[0x140:], 0x000d)
	binary.LittleEndian.PutUint16(b[0x146:], control)
	return b
}

func examined(root string) *Report {
	r := &Report{Cards: cards(root), Links: links(root)}
	return r
}

// Eight cards that Infinity Fabric joins, and two of a ring that two hops part: nothing is in the way.
func TestFabric(t *testing.T) {
	files := machine(8, 90402)
	for i := 1; i <= 8; i++ {
		for j := 1; j <= 8; j++ {
			hops := 1 + (i+j)%2
			if i != j {
				files[fmt.Sprint(nodes, i, "/io_links/", j, "/properties")] = way(i, j, 11, 15*hops, 64000, 1)
			}
		}
	}
	r := examined(system(t, files))
	if len(r.Links) != 64 || len(linkFindings(r)) > 0 {
		t.Fatalf("%d links, %+v", len(r.Links), linkFindings(r))
	}
	if l := r.peers(&r.Cards[0], &r.Cards[1]); l == nil || *l != (Link{From: "1", To: "2", Kind: "xgmi", Hops: 2, Weight: 30, Rate: 64000}) {
		t.Errorf("%+v", l)
	}
	if r.Cards[7].PCI != "0000:0a:00.0" || r.Cards[7].Hidden != 0 {
		t.Errorf("%+v", r.Cards[7])
	}
}

// Two Radeons: what keeps them apart is found, each thing by itself, and nothing where the kernel
// lists a way between them.
func TestApart(t *testing.T) {
	joined := map[string]string{nodes + "1/p2p_links/0/properties": way(1, 2, 2, 40, 0, 1), nodes + "2/p2p_links/0/properties": way(2, 1, 2, 40, 0, 1)}
	for name, c := range map[string]struct {
		files    map[string]string
		bridge   []byte
		iommu    string
		problems []string
	}{
		"joined":         {joined, registers(4), "DMA-FQ", nil},
		"beside another": {map[string]string{nodes + "2/properties": "simd_count 4\nsimd_per_cu 2\ngfx_target_version 100306\n"}, registers(4), "DMA-FQ", nil},
		"one way":        {map[string]string{nodes + "1/p2p_links/0/properties": joined[nodes+"1/p2p_links/0/properties"]}, registers(0), "identity", []string{"cards 1 and 2 do not reach"}},
		"closed":         {map[string]string{nodes + "1/p2p_links/0/properties": way(1, 2, 2, 40, 0, 17), nodes + "2/p2p_links/0/properties": way(2, 1, 2, 40, 0, 17)}, registers(0), "identity", []string{"no IOMMU translates"}},
		"no large BAR":   {map[string]string{nodes + "2/mem_banks/0/properties": "heap_type 1\nsize_in_bytes 268435456\n", nodes + "2/mem_banks/1/properties": "heap_type 2\nsize_in_bytes 16911433728\n"}, registers(0), "identity", []string{"card 2 shows 0.2 of its 16.0 GiB"}},
		"IOMMU":          {nil, registers(0), "DMA-FQ", []string{"IOMMU translates what they write (DMA-FQ)"}},
		"ACS":            {nil, registers(4), "identity", []string{"ACS of 0000:00:01.0, 0000:00:02.0"}},
		"IOMMU and ACS":  {nil, registers(0x1d), "DMA", []string{"IOMMU", "ACS of"}},
		"not root":       {nil, registers(4)[:64], "identity", []string{"no large BAR is missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := machine(2, 110000)
			maps.Copy(files, c.files)
			root := system(t, files)
			plug(t, root, 2, c.bridge, c.iommu)
			r := examined(root)
			got := linkFindings(r)
			if len(got) != len(c.problems) {
				t.Fatalf("%+v, want %q", got, c.problems)
			}
			for i, want := range c.problems {
				if !strings.Contains(got[i].Problem, want) || got[i].Remedy == "" {
					t.Errorf("%+v, want %q", got[i], want)
				}
			}
			if asRoot := strings.Contains(fmt.Sprint(got), "as root"); asRoot != (name == "not root") {
				t.Errorf("%+v", got)
			}
		})
	}
}

// A runtime that says that its cards are apart is believed where the kernel lists no ways, as
// NVIDIA's.
func TestApartByRuntime(t *testing.T) {
	r := &Report{APIs: []API{{Devices: []Device{{Reaches: []int{1}}, {}}}}}
	if got := linkFindings(r); len(got) != 1 || !strings.Contains(got[0].Problem, ":0 and :1 do not reach") {
		t.Errorf("%+v", got)
	}
	r.APIs[0].Devices[1].Reaches = []int{0}
	if got := linkFindings(r); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}
