package static

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
)

var reportFlag = flag.String("report", "", "page that TestReport writes, from what lies in -out")

// A card is what bounds a product: turns of a vector lane, and bytes, a second.
type card struct {
	arch, name    string
	units         float64
	gigahertz, gb float64
}

// lanes is how many lanes of a unit begin an instruction each cycle: two SIMDs of
// 32 (RDNA), four of 16 (CDNA).
const lanes = 64

func (c *card) rate() float64 { return c.units * lanes * c.gigahertz * 1e9 }

// share is the part of the bandwidth that the arithmetic of a product leaves
// reachable, 1 at most.
func (c *card) share(e *executed) float64 {
	return min(1, c.allowed(e)/e.cost())
}

// allowed is how many turns a weight may cost while memory decides.
func (c *card) allowed(e *executed) float64 { return c.rate() * e.BytesPerWeight / (c.gb * 1e9) }

// cards are the two that the report is about: AMD's figures of the Radeon RX 7900
// XTX and of the Instinct MI300X.
var cards = []card{
	{"gfx1100", "Radeon RX 7900 XTX", 96, 2.5, 960},
	{"gfx942", "Instinct MI300X", 304, 2.1, 5300},
}

// A registerFile is how a SIMD's registers are given to waves (LLVM's
// AMDGPUBaseInfo.cpp: total, granule, most waves), and what LDS a unit has for
// its four SIMDs: on RDNA the unit is a pair of CUs.
type registerFile struct{ total, granule, waves, lds int }

var registerFiles = map[string]registerFile{
	"gfx908": {256, 4, 10, 64 << 10}, "gfx90a": {512, 8, 8, 64 << 10}, "gfx942": {512, 8, 8, 64 << 10}, "gfx950": {512, 8, 8, 160 << 10},
	"gfx1030": {1024, 16, 16, 128 << 10}, "gfx1100": {1536, 24, 16, 128 << 10}, "gfx1201": {1536, 24, 16, 128 << 10},
}

// occupancy is the waves of the kernel that a SIMD holds.
func occupancy(arch string, m *measured) int {
	f := registerFiles[arch]
	take := (max(m.Kernel.registers(), 1) + f.granule - 1) / f.granule * f.granule
	waves := min(f.waves, f.total/take)
	perBlock := (m.Threads + m.Kernel.Wave - 1) / m.Kernel.Wave
	if m.lds() > 0 {
		waves = min(waves, f.lds/m.lds()*perBlock/4)
	}
	return waves
}

// TestReport writes the page.
func TestReport(t *testing.T) {
	if *reportFlag == "" {
		t.Skip("no -report")
	}
	var b strings.Builder
	b.WriteString(introduction)
	bounds(t, &b)
	var archs []string
	for arch := range registerFiles {
		if _, err := os.Stat(filepath.Join(*outFlag, "resources-"+arch+".json")); err == nil {
			archs = append(archs, arch)
		}
	}
	slices.SortFunc(archs, func(a, b string) int { return len(a)*1000 + strings.Compare(a, b) - len(b)*1000 })
	resources(t, &b, archs)
	if err := os.WriteFile(*reportFlag, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

const introduction = `# What do AMD's targets make of the kernels?

We have no AMD card. This page is what can be said without one: every kernel of the table (` + "`kernels/hip/table.go`" + `) is compiled by clang-19, and for gfx950 by clang-22, for the targets that have a column below, and what a product executes is counted in the emulator, instruction by instruction. Nothing here is a time that was measured. All of it is written by one command:

    docs/perf/amd-static.sh

` + "`.ci/gpu resources`" + ` compiles the usual rows again in every run of CI, ` + "`.ci/gpu long resources`" + ` all of them, and both fail where a kernel spills a register, uses scratch, or takes more registers or LDS than its row allows. Why a row may take what it may stands beside it in the table.

## Does arithmetic leave products bound by memory?

A product with one row of activations reads each weight once. It is bound by memory while the vector instructions of a weight take less time than its bytes. Counted are all instructions of the launch for the matrix 14336 x 4096 (loop, first loads, sums and stores), as turns of one lane of a vector unit: an instruction of a wave of 32 counts 32, and those at a quarter of the rate (32-bit integer products, reciprocals) four times that. Scalar instructions, loads and LDS have units of their own.

`

// bounds writes the products of the cards.
func bounds(t *testing.T, b *strings.Builder) {
	for _, c := range cards {
		var list []executed
		read(t, "executed-"+c.arch, &list)
		fmt.Fprintf(b, "**%s, %s**: %.0f CUs x %d lanes x %.1f GHz = %.1f million million turns a second, for %.0f GB/s. ", c.arch, c.name, c.units, lanes, c.gigahertz, c.rate()/1e12, c.gb)
		e := &list[slices.IndexFunc(list, func(e executed) bool { return strings.Contains(e.Name, "/q4_k/") })]
		fmt.Fprintf(b, "So a weight of q4_k, %.4f bytes, may cost %.4f x %.1f / %.2f = %.1f turns; it costs %.2f.\n\n", e.BytesPerWeight, e.BytesPerWeight, c.rate()/1e12, c.gb/1e3, c.allowed(e), e.cost())
		b.WriteString("| scheme | bytes a weight | vector instructions a weight | turns | allowed | LDS bytes | share of bandwidth that is left |\n|---|---|---|---|---|---|---|\n")
		for i := range list {
			e := &list[i]
			fmt.Fprintf(b, "| %s | %.4f | %.2f | %.2f | %.1f | %.2f | %.0f %% |\n", strings.Split(e.Name, "/")[1], e.BytesPerWeight, e.Vector, e.cost(), c.allowed(e), e.LDS, 100*math.Floor(c.share(e)*100)/100)
		}
		b.WriteString("\n")
	}
	b.WriteString("At 100 % memory decides, if enough loads are under way (see occupancy). Clocks are those that AMD states for the boost; a slower clock lowers both columns' rate. Waves that issue two instructions at once (RDNA 3) are counted once, as the compiler wrote them.\n\n")
}

// resources writes what kernels take on every target.
func resources(t *testing.T, b *strings.Builder, archs []string) {
	all := map[string]map[string]*measured{}
	var names []string
	for _, arch := range archs {
		var list []measured
		read(t, "resources-"+arch, &list)
		all[arch] = map[string]*measured{}
		for i := range list {
			m := &list[i]
			if all[arch][m.Name] = m; !slices.Contains(names, m.Name) {
				names = append(names, m.Name)
			}
		}
	}
	b.WriteString("## What do kernels take?\n\nVector registers of a lane / KiB of LDS of a block / waves that a SIMD holds (at most 10 on gfx908, 8 on other CDNA, 16 on RDNA). A row that exceeds its budget, spills or uses scratch is marked **!**. A launch that another row has too is not repeated.\n\n| kernel |")
	for _, arch := range archs {
		fmt.Fprintf(b, " %s |", arch)
	}
	b.WriteString(" budget |\n|---|" + strings.Repeat("---|", len(archs)+1) + "\n")
	for _, name := range names {
		fmt.Fprintf(b, "| %s |", name)
		var budget hip.Budget // of the target that is allowed most
		for _, arch := range archs {
			m := all[arch][name]
			if m == nil {
				b.WriteString(" |")
				continue
			}
			fmt.Fprintf(b, " %s%d / %.3g / %d |", mark(m), m.Kernel.registers(), float64(m.lds())/1024, occupancy(arch, m))
			budget = hip.Budget{Registers: max(budget.Registers, m.Budget.Registers), LDS: max(budget.LDS, m.Budget.LDS)}
		}
		fmt.Fprintf(b, " %d / %d |\n", budget.Registers, budget.LDS>>10)
	}
}

func read(t *testing.T, name string, v any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(*outFlag, name+".json"))
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// mark shows a row that is not as it has to be.
func mark(m *measured) string {
	if len(m.faults()) > 0 {
		return "**!** "
	}
	return ""
}
