// Package static compiles the table of GPU kernels for AMD targets without a GPU
// and holds what the compiler makes of them to the table's budgets: no register
// is spilled, no scratch is used, and no more registers and LDS are taken than
// each row allows. With the emulator behind the library it also counts what
// products execute for a weight, and it writes docs/perf/amd-static.md from all
// that; docs/perf/amd-static.sh has the commands.
package static

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

var (
	targetsFlag = flag.String("targets", "", "architectures to compile for, with commas; hiprtc must be found")
	allFlag     = flag.Bool("all", false, "every row of the table, not only the usual ones")
	rowsFlag    = flag.String("rows", "", "rows of the table whose names match, whatever else is asked for")
	outFlag     = flag.String("out", "", "folder for what was measured")
)

// usual are the rows that are compiled in every run of the tests: each
// operation, products in the forms and schemes that most models take, and what
// is closest to its limits. Rows of other schemes differ in how weights are
// decoded.
var usual = regexp.MustCompile(`^(\w+|attend/.*|delta/.*|shortconv/.*|trellis/3|thin/(q8_0|tcq2)/.*|(embed|matmul|decode)/(q4_k|tcq)(/.*)?|matrows/(q4_k|q6_k)/.*|matvec/(` +
	`q4_k/(T=1|T=8|norm|gated|gated T=8|experts|corrected gated)|q8_0/(norm|gated)|q6_k/T=1|tcq/T=1))$`)

// chosen says whether a row of the table is looked at.
func chosen(k *hip.Kernel) bool {
	if *rowsFlag != "" {
		return regexp.MustCompile(*rowsFlag).MatchString(k.Name)
	}
	return *allFlag || usual.MatchString(k.Name)
}

// units is the compute units, or on RDNA pairs of them, of the largest card of
// an architecture, which shapes of launches depend on. Those of gfx1170 and gfx1250
// are guesses: AMD has not told them.
var units = map[string]int{"gfx908": 120, "gfx90a": 110, "gfx942": 304, "gfx950": 256, "gfx1030": 40, "gfx1100": 48, "gfx1170": 8, "gfx1201": 32, "gfx1250": 256}

func target(t testing.TB, arch string) hip.Target {
	t.Helper()
	target, err := hip.ParseTarget(arch)
	if err != nil {
		t.Fatal(err)
	}
	if units[arch] == 0 {
		t.Fatalf("%s is not in the list of cards", arch)
	}
	target.Units = units[arch]
	return target
}

// A measured is what one kernel of the table takes on one target.
type measured struct {
	Name, Unit, Symbol string
	Threads, Dynamic   int // of a block; bytes of dynamic LDS
	Kernel             kernel
	Budget             hip.Budget
}

// lds is what a block takes.
func (m *measured) lds() int { return m.Kernel.LDS + m.Dynamic }

// faults lists what exceeds a limit.
func (m *measured) faults() []string {
	var list []string
	k := &m.Kernel
	if k.Spills > 0 {
		list = append(list, fmt.Sprintf("%d registers spilled", k.Spills))
	}
	if k.Scratch > 0 || k.DynamicScratch {
		list = append(list, fmt.Sprintf("%d bytes of scratch", k.Scratch))
	}
	if k.registers() > m.Budget.Registers {
		list = append(list, fmt.Sprintf("%d vector registers, budget %d", k.registers(), m.Budget.Registers))
	}
	if m.lds() > m.Budget.LDS {
		list = append(list, fmt.Sprintf("%d bytes of LDS, budget %d", m.lds(), m.Budget.LDS))
	}
	if m.Threads > k.MaxThreads {
		list = append(list, fmt.Sprintf("%d threads, compiled for %d", m.Threads, k.MaxThreads))
	}
	return list
}

// TestResources compiles and measures.
func TestResources(t *testing.T) {
	if *targetsFlag == "" {
		t.Skip("no -targets")
	}
	c, tried, err := driver.FindCompiler(driver.Options{API: hip.HIP})
	if err != nil {
		t.Fatalf("%v\n%v", err, tried)
	}
	for _, arch := range strings.Split(*targetsFlag, ",") {
		list := measure(t, c, target(t, arch))
		for i := range list {
			for _, fault := range list[i].faults() {
				t.Errorf("%s: %s: %s: %s\n\t%s", arch, list[i].Name, list[i].Symbol, fault, list[i].Unit)
			}
		}
		t.Logf("%s: %d kernels", arch, len(list))
		write(t, "resources-"+arch, list)
	}
}

// measure compiles every unit of the table once.
func measure(t *testing.T, c *driver.Compiler, target hip.Target) []measured {
	rows := slices.DeleteFunc(hip.Kernels(target), func(k hip.Kernel) bool { return !chosen(&k) })
	compiled := compile(t, c, target, rows)
	var list []measured
	for i := range rows {
		call := &rows[i].Call
		m := measured{Name: rows[i].Name, Unit: call.Unit.File + " " + call.Unit.Defines, Symbol: call.Symbol,
			Threads: int(call.Block[0] * call.Block[1] * call.Block[2]), Dynamic: int(call.LDS), Budget: rows[i].Budget}
		if slices.ContainsFunc(list, func(o measured) bool { return o.Unit == m.Unit && o.Symbol == m.Symbol }) {
			continue // a launch that another operation has too
		}
		at := slices.IndexFunc(compiled[call.Unit], func(k kernel) bool { return k.Name == call.Symbol })
		if at < 0 {
			t.Errorf("%s: %s: no kernel %s in %s", target.Arch, m.Name, m.Symbol, m.Unit)
			continue
		}
		m.Kernel = compiled[call.Unit][at]
		list = append(list, m)
	}
	return list
}

// compile makes the rows' units, on all processors.
func compile(t *testing.T, c *driver.Compiler, target hip.Target, rows []hip.Kernel) map[hip.Unit][]kernel {
	queue := make(chan hip.Unit)
	compiled := map[hip.Unit][]kernel{}
	var lock sync.Mutex
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for u := range queue {
				code, log, err := c.Compile(u, target)
				var list []kernel
				if err == nil {
					list, err = kernels(code)
				}
				if err != nil {
					t.Errorf("%s: %v: %v\n%s", target.Arch, u, err, log)
				}
				lock.Lock()
				compiled[u] = list
				lock.Unlock()
			}
		})
	}
	asked := map[hip.Unit]bool{}
	for i := range rows {
		if u := rows[i].Call.Unit; !asked[u] {
			asked[u] = true
			queue <- u
		}
	}
	close(queue)
	group.Wait()
	return compiled
}

// write keeps a measurement, where a folder is given.
func write(t *testing.T, name string, v any) {
	t.Helper()
	if *outFlag == "" {
		return
	}
	b, err := json.MarshalIndent(v, "", "\t")
	if err == nil {
		err = os.WriteFile(filepath.Join(*outFlag, name+".json"), b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
