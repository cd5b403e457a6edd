package driver_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// suite is what every driver has to do alike.
var suite = []struct {
	name string
	run  func(*testing.T, opener)
}{
	{"Properties", testProperties},
	{"Copies", testCopies},
	{"Launch", testLaunch},
	{"GridAndLDS", testGridAndLDS},
	{"Cooperative", testCooperative},
	{"Events", testEvents},
	{"Graph", testGraph},
	{"CaptureRefuses", testCaptureRefuses},
	{"OutOfRange", testOutOfRange},
	{"CompileError", testCompileError},
	{"Memory", testMemory},
	{"NoAllocations", testNoAllocations},
	{"Goroutines", testGoroutines},
	{"Close", testClose},
}

// TestConformance runs the suite on a device, or on the emulated one: see
// docs/gpu.md.
func TestConformance(t *testing.T) {
	for _, c := range suite {
		t.Run(c.name, func(t *testing.T) { c.run(t, flagged) })
	}
}

func testProperties(t *testing.T, open opener) {
	d := open(t)
	p := d.Properties()
	t.Logf("%+v", p)
	if p.Name == "" || p.Target.Arch == "" || p.Memory < 1<<20 || p.Target.LDS < 1<<15 || p.Threads < 256 {
		t.Errorf("%+v", p)
	}
	if p.Target.Wave != 32 && p.Target.Wave != 64 {
		t.Errorf("wave of %d", p.Target.Wave)
	}
}

func testCopies(t *testing.T, open opener) {
	d := open(t)
	s, err := d.Stream()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 3, 4096, 64 << 10, 64<<10 + 1, 4 << 20, 9<<20 + 7} {
		a, err := d.Alloc(int64(n))
		if err != nil {
			t.Fatal(err)
		}
		b, err := d.Alloc(int64(n))
		if err != nil {
			t.Fatal(err)
		}
		src, dst := make([]byte, n), make([]byte, n)
		for i := range src {
			src[i] = byte(i * 7 / 3)
		}
		if err := s.Upload(a, src); err != nil {
			t.Fatal(err)
		}
		if err := s.Fill(b, 0xa5); err != nil {
			t.Fatal(err)
		}
		if err := s.Copy(b, a, int64(n/2)); err != nil {
			t.Fatal(err)
		}
		if err := s.Download(dst, b); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(dst[:n/2], src[:n/2]) || !bytes.Equal(dst[n/2:], bytes.Repeat([]byte{0xa5}, n-n/2)) {
			t.Errorf("%d bytes came back changed", n)
		}
		if err := d.Free(a); err != nil {
			t.Error(err)
		}
		if err := d.Free(b); err != nil {
			t.Error(err)
		}
	}
}

func testLaunch(t *testing.T, open opener) {
	b := newBench(t, open)
	f := must(b.module.Function("arguments"))(t)
	if f.Attributes().Registers == 0 || f.Attributes().MaxThreads < 64 {
		t.Errorf("attributes %+v", f.Attributes())
	}
	for _, early := range []bool{false, true} {
		out := must(b.Alloc(64 * 4))(t)
		check(t, b.Launch(f, hip.Call{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{64, 1, 1}, Early: early, Args: []hip.Arg{
			hip.Ptr(out.Address), hip.I32(-3), hip.F32(0.5), hip.I64(-1 << 40), hip.I32(7),
		}}))
		for i, v := range b.read(t, out) {
			want := float32(i)*0.5 - 3 + float32(-1<<8) + 7
			if got := math.Float32frombits(v); got != want {
				t.Fatalf("thread %d wrote %v, want %v", i, got, want)
			}
		}
	}
}

// testGridAndLDS sees every block, thread and byte of dynamic LDS once.
func testGridAndLDS(t *testing.T, open opener) {
	b := newBench(t, open)
	f := must(b.module.Function("reverse"))(t)
	const blocks, threads = 2 * 3 * 5, 4 * 8 * 2
	out := must(b.Alloc(blocks * threads * 4))(t)
	check(t, b.Launch(f, hip.Call{Grid: [3]uint32{2, 3, 5}, Block: [3]uint32{4, 8, 2}, LDS: threads * 4, Args: []hip.Arg{hip.Ptr(out.Address)}}))
	for i, v := range b.read(t, out) {
		if block, thread := i/threads, i%threads; v != uint32(block*threads+threads-1-thread) {
			t.Fatalf("block %d thread %d: %d", block, thread, v)
		}
	}
}

// testCooperative has all blocks wait for one another.
func testCooperative(t *testing.T, open opener) {
	b := newBench(t, open)
	if !b.Properties().Cooperative {
		t.Skip("the device has no cooperative launch")
	}
	f := must(b.module.Function("meet"))(t)
	resident := must(f.Resident(64, 0))(t)
	if resident < 1 {
		t.Fatalf("%d blocks are resident", resident)
	}
	n := uint32(min(8, resident*b.Properties().Target.Units))
	out, count := must(b.Alloc(int64(n)*4))(t), must(b.Alloc(4))(t)
	check(t, b.Fill(count, 0))
	check(t, b.Launch(f, hip.Call{Grid: [3]uint32{n, 1, 1}, Block: [3]uint32{64, 1, 1}, Cooperative: true, Args: []hip.Arg{
		hip.Ptr(out.Address), hip.Ptr(count.Address), hip.I32(int(n))}}))
	for i, v := range b.read(t, out) {
		if v != n {
			t.Errorf("block %d saw %d of %d blocks", i, v, n)
		}
	}
}

func testEvents(t *testing.T, open opener) {
	b := newBench(t, open)
	other := must(b.Device.Stream())(t)
	f := must(b.module.Function("spin"))(t)
	x, y := must(b.Alloc(4096))(t), must(b.Alloc(4096))(t)
	check(t, b.Fill(x, 0))
	before, after := must(b.Event())(t), must(b.Event())(t)
	check(t, b.Record(before))
	check(t, b.Launch(f, hip.Call{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Args: []hip.Arg{hip.Ptr(x.Address), hip.I32(20000)}}))
	check(t, b.Record(after))
	check(t, other.After(after)) // else y would be copied while x is written
	check(t, other.Copy(y, x, 4096))
	check(t, other.Wait())
	if got := b.read(t, y)[0]; got == 0 {
		t.Error("the copy did not wait for the kernel")
	}
	ms := must(after.Since(before))(t)
	if ms <= 0 || ms > 60e3 {
		t.Errorf("the kernel took %v ms", ms)
	}
	check(t, before.Free())
	check(t, before.Free())
	check(t, other.Close())
}

// testGraph replays launches, copies and fills, and reads what changed in
// device memory since the capture.
func testGraph(t *testing.T, open opener) {
	b := newBench(t, open)
	f := must(b.module.Function("step"))(t)
	state, copied := must(b.Alloc(64))(t), must(b.Alloc(64))(t)
	host := must(b.Pinned(64))(t)
	check(t, b.Fill(state, 0))
	g := must(b.Capture(func() error {
		for range 3 {
			if err := b.Launch(f, hip.Call{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{16, 1, 1}, Args: []hip.Arg{hip.Ptr(state.Address)}}); err != nil {
				return err
			}
		}
		if err := b.Copy(copied, state, 64); err != nil {
			return err
		}
		return b.Download(host.Bytes(), copied)
	}))(t)
	if g.Native() && !b.Properties().Graphs {
		t.Error("a graph of a runtime that has none")
	}
	if got := b.read(t, state)[0]; got != 0 {
		t.Fatalf("work ran while it was captured: %d", got)
	}
	for range 5 {
		check(t, b.Replay(g))
	}
	check(t, b.Wait())
	for i := range 16 {
		if got := binary.LittleEndian.Uint32(host.Bytes()[4*i:]); got != 15 {
			t.Fatalf("word %d is %d after 5 replays of 3 steps", i, got)
		}
	}
	check(t, g.Free())
	check(t, g.Free())
	if err := b.Replay(g); !errors.Is(err, driver.ErrRange) {
		t.Errorf("replaying what was freed: %v", err)
	}
}

// testCaptureRefuses says no to what a graph cannot hold, and leaves the
// stream as it was.
func testCaptureRefuses(t *testing.T, open opener) {
	b := newBench(t, open)
	buf := must(b.Alloc(64))(t)
	for name, record := range map[string]func() error{
		"wait":     func() error { return b.Wait() },
		"upload":   func() error { return b.Upload(buf, make([]byte, 64)) },
		"download": func() error { return b.Download(make([]byte, 64), buf) },
		"capture":  func() error { _, err := b.Capture(func() error { return nil }); return err },
		"own":      func() error { return os.ErrInvalid },
	} {
		if _, err := b.Capture(record); err == nil || (name == "own") != errors.Is(err, os.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is gone")
			}
		}()
		b.Capture(func() error { panic("record") })
	}()
	check(t, b.Fill(buf, 3))
	if got := b.read(t, buf)[5]; got != 0x03030303 {
		t.Errorf("%#x after the captures", got)
	}
}

// testOutOfRange refuses copies, launches and allocations that cannot be.
func testOutOfRange(t *testing.T, open opener) {
	b := newBench(t, open)
	f := must(b.module.Function("step"))(t)
	buf, big := must(b.Alloc(64))(t), must(b.Alloc(128))(t)
	one := [3]uint32{1, 1, 1}
	for name, err := range map[string]error{
		"upload":   b.Upload(buf, make([]byte, 65)),
		"download": b.Download(make([]byte, 65), buf),
		"copy":     b.Copy(buf, big, 65),
		"negative": b.Copy(buf, big, -1),
		"grid":     b.Launch(f, hip.Call{Grid: [3]uint32{1, 0, 1}, Block: one}),
		"block":    b.Launch(f, hip.Call{Grid: one, Block: [3]uint32{1 << 16, 1 << 16, 1 << 16}}),
		"lds":      b.Launch(f, hip.Call{Grid: one, Block: one, LDS: 1 << 30}),
		"args":     b.Launch(f, hip.Call{Grid: one, Block: one, Args: make([]hip.Arg, 65)}),
		"symbol":   b.Launch(f, hip.Call{Grid: one, Block: one, Symbol: "other"}),
		"part":     b.Free(big.At(0, 64)),
		"inner":    b.Free(big.At(64, 64)),
		"alloc":    second(b.Alloc(0)),
		"pinned":   second(b.Pinned(-1)),
	} {
		if !errors.Is(err, driver.ErrRange) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.module.Function("absent"); err == nil {
		t.Error("found a kernel that is not there")
	}
	if _, err := b.Load([]byte("no code")); err == nil {
		t.Error("loaded what is no code")
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("At reached past the end")
			}
		}()
		buf.At(60, 8)
	}()
	check(t, b.Wait())
}

func second[T any](_ T, err error) error { return err }

// testCompileError shows the log, and the device goes on.
func testCompileError(t *testing.T, open opener) {
	b := newBench(t, open)
	_, log, err := b.CompileSource("wrong.hip", "extern \"C\" __global__ void f() { undeclared_name = 1; }", nil)
	if !errors.Is(err, driver.ErrCompile) || !strings.Contains(log, "undeclared_name") || !strings.Contains(err.Error(), "undeclared_name") {
		t.Errorf("%v, log %q", err, log)
	}
	check(t, b.Wait())
}

// testMemory: what is too much is ErrMemory, and the device goes on.
func testMemory(t *testing.T, open opener) {
	b := newBench(t, open)
	free, total, err := b.Memory()
	check(t, err)
	if free <= 0 || free > total {
		t.Errorf("%d of %d free", free, total)
	}
	if _, err := b.Alloc(total * 4); !errors.Is(err, driver.ErrMemory) {
		t.Errorf("four times the memory: %v", err)
	} else if e := (*driver.Error)(nil); !errors.As(err, &e) || e.Hint == "" || !strings.Contains(e.Name, "OUT_OF_MEMORY") && !strings.Contains(e.Name, "OutOfMemory") {
		t.Errorf("%#v", err)
	}
	x := must(b.Alloc(1 << 20))(t)
	check(t, b.Fill(x, 1))
	check(t, b.Wait())
}

// testNoAllocations holds the calls of a decoding loop to their word.
func testNoAllocations(t *testing.T, open opener) {
	b := newBench(t, open)
	f := must(b.module.Function("step"))(t)
	buf := must(b.Alloc(64))(t)
	call := hip.Call{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Args: []hip.Arg{hip.Ptr(buf.Address)}}
	g := must(b.Capture(func() error { return b.Launch(f, call) }))(t)
	for name, do := range map[string]func() error{
		"launch": func() error { return b.Launch(f, call) },
		"replay": func() error { return b.Replay(g) },
		"wait":   func() error { return b.Wait() },
	} {
		check(t, do())
		check(t, b.Wait())
		if n := testing.AllocsPerRun(50, func() {
			if do() != nil || b.Wait() != nil { // the thread's part counts, too
				t.Error("it failed")
			}
		}); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
	check(t, b.Wait())
}

// testGoroutines uses one device from many goroutines, each with a stream.
func testGoroutines(t *testing.T, open opener) {
	b := newBench(t, open)
	f := must(b.module.Function("step"))(t)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			s, err := b.Device.Stream()
			if err != nil {
				t.Error(err)
				return
			}
			buf, err := b.Alloc(64)
			if err != nil {
				t.Error(err)
				return
			}
			got := make([]byte, 64)
			err = errors.Join(s.Upload(buf, bytes.Repeat([]byte{byte(i), 0, 0, 0}, 16)))
			for range 40 {
				err = errors.Join(err, s.Launch(f, hip.Call{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{16, 1, 1}, Args: []hip.Arg{hip.Ptr(buf.Address)}}))
			}
			if err = errors.Join(err, s.Download(got, buf), s.Close(), b.Free(buf)); err != nil {
				t.Error(err)
			}
			if n := binary.LittleEndian.Uint32(got); n != uint32(40+i) {
				t.Errorf("stream %d counted to %d", i, n)
			}
		})
	}
	wg.Wait()
}

// testClose can be called twice; everything else then fails and says why.
func testClose(t *testing.T, open opener) {
	b := newBench(t, open)
	f := must(b.module.Function("step"))(t)
	buf, e := must(b.Alloc(64))(t), must(b.Event())(t)
	g := must(b.Capture(func() error { return b.Fill(buf, 1) }))(t)
	check(t, b.Fill(buf, 0))
	check(t, b.Device.Close())
	check(t, b.Device.Close())
	for name, err := range map[string]error{
		"launch": b.Launch(f, hip.Call{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Args: []hip.Arg{hip.Ptr(buf.Address)}}),
		"replay": b.Replay(g),
		"wait":   b.Wait(),
		"event":  e.Wait(),
		"alloc":  second(b.Alloc(1)),
		"upload": b.Upload(buf, make([]byte, 64)),
	} {
		if !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
