// Package conformance holds the operations of kernels/hip to references, on
// whatever device is found: a GPU, or the emulator behind the same library.
package conformance

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

var (
	deviceFlag = flag.String("device", "", "hip or cuda; default: hip where its library loads")
	pathFlag   = flag.String("libraries", "", "folder of libraries to try first")
	partsFlag  = flag.Int("parts", 1, "of so many parts of the cases, ...")
	partFlag   = flag.Int("part", 0, "... run this one, from 0 on; and of more than two parts, every test's first case too")
)

// divided reports whether cases are left to another target.
func divided() bool { return *partsFlag > 1 }

// dealt reports whether a thing of a number falls to this part. Parts are mixed,
// so that what alternates does not fall to one of them alone.
func dealt(number int) bool {
	return !divided() || uint32(number+1)*0x9e3779b1>>16%uint32(*partsFlag) == uint32(*partFlag)
}

// asked counts the cases of each test.
var asked = map[string]int{}

// taken reports whether the next case of a test is run, where each case needs
// kernels of its own.
func taken(t testing.TB) bool {
	name, _, _ := strings.Cut(t.Name(), "/")
	n := asked[name]
	asked[name]++
	return dealt(n) || n == 0 && *partsFlag > 2
}

// sampled is taken of cases that only more than two parts divide.
func sampled(t testing.TB) bool { return *partsFlag <= 2 || taken(t) }

// A machine is a device with what the tests keep of it.
type machine struct {
	*driver.Device
	stream  *driver.Stream
	target  hip.Target
	modules map[hip.Unit]*driver.Module
	unused  map[int64][]driver.Buffer // by size
	// behind is the guard's bytes behind what memory holds. None where the emulator faults at the first byte that is
	// read or written there: a guard would let reads pass.
	behind int64
}

// machines opens the devices once for all tests: several where there are.
var machines = sync.OnceValues(func() (all []*machine, err error) {
	o := driver.Options{API: hip.HIP}
	if *deviceFlag != "" {
		o.API = hip.API(*deviceFlag)
	}
	if *pathFlag != "" {
		o.Paths = []string{*pathFlag}
	}
	l, err := driver.Load(o)
	if err != nil {
		return nil, err
	}
	n, err := l.Count()
	if err != nil {
		return nil, err
	}
	for i := range max(n, 1) {
		d, err := l.Open(i)
		if err != nil {
			return nil, err
		}
		s, err := d.Stream()
		if err != nil {
			return nil, err
		}
		m := &machine{Device: d, stream: s, target: d.Properties().Target, modules: map[hip.Unit]*driver.Module{}, unused: map[int64][]driver.Buffer{}, behind: guardBytes}
		if strings.Contains(d.Properties().Name, "amdemu") {
			m.behind = 0
		}
		all = append(all, m)
	}
	return all, nil
})

// open returns the device that the flags name.
func open(t testing.TB) *machine {
	t.Helper()
	return openAll(t)[0]
}

// openAll returns all devices of the kind that the flags name.
func openAll(t testing.TB) []*machine {
	t.Helper()
	all, err := machines()
	if err != nil {
		if *deviceFlag == "" {
			t.Skipf("no device: %v", err)
		}
		t.Fatal(err)
	}
	return all
}

// function compiles a call's unit and finds its symbol.
func (m *machine) function(c *hip.Call) (*driver.Function, error) {
	module := m.modules[c.Unit]
	if module == nil {
		code, log, err := m.Compile(c.Unit)
		if err != nil {
			return nil, fmt.Errorf("%v: %w\n%s", c.Unit, err, log)
		}
		if module, err = m.Load(code); err != nil {
			return nil, err
		}
		m.modules[c.Unit] = module
	}
	return module.Function(c.Symbol)
}

// run carries calls out and waits.
func (m *machine) run(t testing.TB, calls []hip.Call) {
	t.Helper()
	for i := range calls {
		f, err := m.function(&calls[i])
		if err == nil {
			err = m.stream.Launch(f, calls[i])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := m.stream.Wait(); err != nil {
		t.Fatal(err)
	}
}

// repeats is how often a case runs again, to give the same bits.
func repeats() int {
	if testing.Short() {
		return 1
	}
	return 9
}

const guardBytes = 256

// A memory is device memory between guards.
type memory struct {
	m *machine
	b driver.Buffer
}

// bytesOf returns values as they lie in memory.
func bytesOf(values any) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		panic(err)
	}
	return b
}

// put uploads a slice of numbers of fixed size, into memory of exactly that size
// and its guards. What is never released lasts as long as the process.
func (m *machine) put(t testing.TB, values any) *memory {
	t.Helper()
	data := bytesOf(values)
	guard := bytes.Repeat([]byte{0xa5}, guardBytes)
	all := slices.Concat(guard, data, guard[:m.behind])
	b, err := m.alloc(int64(len(all)))
	if err == nil {
		err = m.stream.Upload(b, all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &memory{m, b}
}

// alloc prefers what was released.
func (m *machine) alloc(n int64) (driver.Buffer, error) {
	if l := m.unused[n]; len(l) > 0 {
		m.unused[n] = l[:len(l)-1]
		return l[len(l)-1], nil
	}
	return m.Alloc(n)
}

// release lets the memory be used again.
func (p *memory) release() { p.m.unused[p.b.Size] = append(p.m.unused[p.b.Size], p.b) }

func (p *memory) address() hip.Address { return p.b.Address + guardBytes }

// set uploads other values of the same size.
func (p *memory) set(t testing.TB, values any) {
	t.Helper()
	if err := p.m.stream.Upload(p.b.At(guardBytes, p.b.Size-guardBytes-p.m.behind), bytesOf(values)); err != nil {
		t.Fatal(err)
	}
}

// get downloads into a slice of numbers that covers all of the memory, and
// looks at the guards.
func (p *memory) get(t testing.TB, values any) {
	t.Helper()
	all := make([]byte, p.b.Size)
	if err := p.m.stream.Download(all, p.b); err != nil {
		t.Fatal(err)
	}
	end := p.b.Size - p.m.behind
	if len(bytes.Trim(all[:guardBytes], "\xa5"))+len(bytes.Trim(all[end:], "\xa5")) > 0 {
		t.Fatal("memory beside an output was overwritten")
	}
	if _, err := binary.Decode(all[guardBytes:end], binary.LittleEndian, values); err != nil {
		t.Fatal(err)
	}
}
