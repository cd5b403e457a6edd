package static

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

var profileFlag = flag.String("profile", "", "file that AMDEMU_PROFILE names: what products execute is counted")

// An executed is what a product executes, for each weight that it reads.
type executed struct {
	Name           string
	BytesPerWeight float64
	// Vector instructions count for each lane of a wave; Slow are those among
	// them that take four turns. Scalar ones count for the wave.
	Vector, Slow, Scalar float64
	Loads, LDS           float64 // bytes read of memory and of LDS
}

// cost is in turns of a lane.
func (e *executed) cost() float64 { return e.Vector + 3*e.Slow }

// TestExecuted runs products with one row of activations at the size of a layer
// of 8 billion weights, on an emulated device that keeps a profile. What weights
// are does not change what is executed, so there are none.
func TestExecuted(t *testing.T) {
	if *profileFlag == "" {
		t.Skip("no -profile")
	}
	l, err := driver.Load(driver.Options{API: hip.HIP})
	if err != nil {
		t.Fatal(err)
	}
	d, err := l.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	target := d.Properties().Target
	target.Units = units[target.Arch]
	var list []executed
	for _, k := range hip.Kernels(target) {
		if k.Product != nil && strings.HasSuffix(k.Name, "/T=1") {
			list = append(list, count(t, d, target, &k))
		}
	}
	write(t, "executed-"+target.Arch, list)
}

// count launches a row of the table and reads the profile.
func count(t *testing.T, d *driver.Device, target hip.Target, k *hip.Kernel) executed {
	t.Helper()
	op := *k.Product
	w := op.Products[0].W
	weights := float64(w.N) * float64(w.K)
	buffer := func(bytes float64) hip.Address {
		b, err := d.Alloc(int64(bytes) + 1<<16)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Free(b) })
		return b.Address
	}
	w.Data = buffer(weights * k.BytesPerWeight)
	op.Products = []hip.Product{{W: w, Y: buffer(float64(4 * w.N))}}
	op.X, op.Acts.Data = buffer(float64(4*w.K)), buffer(float64(hip.FineActsSize(1, w.K)))
	op.Fine.Data = op.Acts.Data
	if err := os.WriteFile(*profileFlag, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	s, err := d.Stream()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range op.Calls(target) {
		code, log, err := d.Compile(c.Unit)
		if err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		m, err := d.Load(code)
		if err != nil {
			t.Fatal(err)
		}
		f, err := m.Function(c.Symbol)
		if err == nil {
			err = s.Launch(f, c)
		}
		if err == nil {
			err = s.Wait()
		}
		if err != nil {
			t.Fatalf("%s: %v", k.Name, err)
		}
	}
	e := readProfile(t, float64(target.Wave)/weights)
	e.Name, e.BytesPerWeight = k.Name, k.BytesPerWeight
	t.Logf("%s %+v", target.Arch, e)
	return e
}

// slow are instructions at a quarter of the rate: products of 32-bit integers
// and what is not elementary.
var slow = []string{"v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_", "v_mul_lo_u32", "v_mul_hi_", "v_mad_u64", "v_mad_i64"}

// readProfile sums a profile up. lanes is what an instruction of a wave counts.
func readProfile(t *testing.T, lanes float64) (e executed) {
	t.Helper()
	f, err := os.Open(*profileFlag)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		var n float64
		var name string
		if _, err := fmt.Sscan(in.Text(), &n, &name); err != nil {
			continue // a kernel's line
		}
		n *= lanes
		switch {
		case strings.HasPrefix(name, "v_"):
			e.Vector += n
			for _, s := range slow {
				if strings.HasPrefix(name, s) {
					e.Slow += n
				}
			}
		case strings.HasPrefix(name, "s_"):
			e.Scalar += n
		case strings.HasPrefix(name, "ds_load"), strings.HasPrefix(name, "ds_read"):
			e.LDS += n * width(name)
		case strings.HasPrefix(name, "global_load"):
			e.Loads += n * width(name)
		}
	}
	if e.Vector == 0 {
		t.Fatal("nothing was profiled: AMDEMU_PROFILE has to name the same file")
	}
	return e
}

// widths are what loads read for a lane, by what their names contain; else four.
var widths = []struct {
	part  string
	bytes float64
}{
	{"2addr_b64", 16}, {"2_b64", 16}, {"2addr_b32", 8}, {"2_b32", 8}, {"b128", 16}, {"x4", 16}, {"b96", 12}, {"x3", 12}, {"b64", 8}, {"x2", 8},
	{"16", 2}, {"short", 2}, {"8", 1}, {"byte", 1},
}

// width is the bytes that a load reads for a lane.
func width(name string) float64 {
	for _, w := range widths {
		if strings.Contains(name, w.part) {
			return w.bytes
		}
	}
	return 4
}
