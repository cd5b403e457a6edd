package place

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/kernels/cpu"
)

func TestSysfs(t *testing.T) {
	root := fstest.MapFS{}
	file := func(name, data string) { root[name] = &fstest.MapFile{Data: []byte(data + "\n")} }
	const cpus = "sys/devices/system/cpu/"
	file(cpus+"online", "0-2,5")
	for i, place := range map[string]string{"0": "0:0", "1": "0:1", "2": "0:1", "5": "1:0"} {
		pack, core, _ := strings.Cut(place, ":")
		file(cpus+"cpu"+i+"/topology/physical_package_id", pack)
		file(cpus+"cpu"+i+"/topology/core_id", core)
	}
	for i, c := range []string{"1 Data 48K 0", "1 Instruction 32K 0", "2 Unified 2M 0-1", "3 Unified 480M 0-2,5", "x Unified 1M 0"} {
		f := strings.Fields(c)
		dir := cpus + "cpu0/cache/index" + string(rune('0'+i)) + "/"
		file(dir+"level", f[0])
		file(dir+"type", f[1])
		file(dir+"size", f[2])
		file(dir+"shared_cpu_list", f[3])
	}
	file("sys/devices/system/node/online", "0-1")
	file("proc/meminfo", "MemTotal:       24576 kB\nMemFree: 5 kB\nMemAvailable:   1024 kB")
	file(cpus+"cpu0/regs/identification/midr_el1", "0x413fd0c1")
	var m Machine
	m.sysfs(root)
	want := Machine{CPU: "MIDR 0x413fd0c1", Cores: 3, Nodes: 2, Memory: 24 << 20,
		Caches: []Cache{{1, 48 << 10, 1}, {2, 2 << 20, 2}, {3, 480 << 20, 4}}}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("%+v, want %+v", m, want)
	}
	if n := meminfo(root, "MemAvailable"); n != 1<<20 {
		t.Errorf("%d bytes are available", n)
	}
	if m.LastCache() != 480<<20 {
		t.Errorf("the last cache has %d bytes", m.LastCache())
	}
	// Control groups of both versions, and those around them.
	if n := available(root); n != 1<<20 {
		t.Errorf("%d bytes are available without limits", n)
	}
	file("proc/self/cgroup", "4:memory:/a/b\n0::/c")
	file("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712")
	file("sys/fs/cgroup/c/memory.max", "max")
	if n := available(root); n != 1<<20 {
		t.Errorf("%d bytes are available within groups without limits", n)
	}
	file("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "900000")
	file("sys/fs/cgroup/memory/a/memory.stat", "cache 700000\ntotal_cache 700000\ntotal_rss 100000\ntotal_shmem 50000")
	if n := available(root); n != 750000 {
		t.Errorf("%d bytes are available within a group of the first version", n)
	}
	file("sys/fs/cgroup/c/memory.max", "500000")
	file("sys/fs/cgroup/c/memory.stat", "anon 200000\nfile 290000\nshmem 90000")
	if n := available(root); n != 210000 {
		t.Errorf("%d bytes are available within a group of the second version", n)
	}
	m = Machine{CPU: "x", Cores: 7}
	m.sysfs(fstest.MapFS{})
	if !reflect.DeepEqual(m, Machine{CPU: "x", Cores: 7}) {
		t.Errorf("without files: %+v", m)
	}
}

func TestNumbers(t *testing.T) {
	for s, want := range map[string]int64{"": 0, "12": 12, "48K": 48 << 10, "2M": 2 << 20, "1G": 1 << 30, "-1K": 0, "K": 0, "x": 0, "9999999999999G": 0, "1.5M": 0} {
		if got := sizeOf(s); got != want {
			t.Errorf("%q is %d bytes, want %d", s, got, want)
		}
	}
	for s, want := range map[string][]int{"": nil, "0": {0}, "0-2,5": {0, 1, 2, 5}, "3-1": nil, "a": nil, "0-": nil, "-1": nil, "0-99999999": nil, "1,,2": nil} {
		if got := list(s); !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %v, want %v", s, got, want)
		}
	}
}

func TestRate(t *testing.T) {
	for _, c := range []struct {
		samples []float64
		want    Rate
	}{
		{[]float64{3}, Rate{3, 3, 3}},
		{[]float64{2, 1}, Rate{1.5, 1.1, 1.9}},
		{[]float64{10, 0, 5, 2, 8, 1, 9, 3, 7, 4, 6}, Rate{5, 1, 9}},
	} {
		got := NewRate(c.samples)
		for i, pair := range [][2]float64{{got.Median, c.want.Median}, {got.P10, c.want.P10}, {got.P90, c.want.P90}} {
			if math.Abs(pair[0]-pair[1]) > 1e-12 {
				t.Errorf("%v: figure %d is %g, want %g", c.samples, i, pair[0], pair[1])
			}
		}
	}
}

func TestDiscover(t *testing.T) {
	m := Discover(cpu.Best())
	if m.Threads < 1 || m.Level != cpu.Best().Level().String() || !strings.Contains(m.System, "/") {
		t.Errorf("%+v", m)
	}
	for i, c := range m.Caches {
		if c.Level < 1 || c.Bytes < 1 || i > 0 && c.Bytes < m.Caches[i-1].Bytes {
			t.Errorf("cache %+v of %+v", c, m.Caches)
		}
	}
}

func TestReader(t *testing.T) {
	pool := cpu.NewPool(2)
	defer pool.Close()
	set := cpu.Best()
	a, b := bytes.Repeat([]byte{1, 2, 3}, 1<<20), []byte{9}
	r := NewReader(set, pool, a, nil, b)
	if rate := r.Read(); rate <= 0 {
		t.Errorf("%g bytes per second", rate)
	}
	var want uint64
	for lo := 0; lo < len(a); lo += readPart {
		want += set.ReadWords(a[lo:min(lo+readPart, len(a))])
	}
	if want += 9; r.sum.Load() != want {
		t.Errorf("what was read sums to %x, want %x", r.sum.Load(), want)
	}
	var bytes int64 // the same in pieces, from the second part on and around
	for range len(r.parts) {
		n, took := r.Next(1)
		if n > readPart || took <= 0 {
			t.Fatalf("%d bytes in %v", n, took)
		}
		bytes += n
	}
	if bytes != r.bytes || r.sum.Load() != 2*want {
		t.Errorf("pieces of %d bytes sum to %x, want %d and %x", bytes, r.sum.Load()-want, r.bytes, want)
	}
	if n, _ := r.Next(1 << 40); n != r.bytes {
		t.Errorf("read %d bytes where there are %d", n, r.bytes)
	}
	for _, p := range set.Peaks() {
		if rate := PeakRate(pool, p, time.Millisecond); rate < 1e6 {
			t.Errorf("%s: %g operations per second", p.Kind(), rate)
		}
	}
}

// profile is one that could have been measured here.
func profile(m *Machine) *Profile {
	r := Rate{2, 1, 3}
	return &Profile{Version: profileVersion, Key: m.Key(), Machine: *m, Threads: 2, Buffer: 1 << 20, ReadOne: r, ReadAll: r,
		Measured: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Peaks: []Peak{{Kind: cpu.PeakF32, One: r, All: r}}}
}

func TestProfileIsKept(t *testing.T) {
	m := Discover(cpu.Best())
	dir := filepath.Join(t.TempDir(), "new", "folder")
	if _, err := Load(dir, &m, 2); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty folder gives %v", err)
	}
	p := profile(&m)
	if err := p.Save(dir); err != nil {
		t.Fatal(err)
	}
	got, err := Load(dir, &m, 2)
	if err != nil || !reflect.DeepEqual(got, p) {
		t.Fatalf("%+v, %v, want %+v", got, err, p)
	}
	other := m
	other.Cores++
	if other.Path(dir) == m.Path(dir) {
		t.Error("two machines share a file")
	}
}

// A damaged file, and one of another version, machine or number of threads, is
// refused and can be replaced.
func TestProfileIsChecked(t *testing.T) {
	m := Discover(cpu.Best())
	whole, err := json.Marshal(profile(&m))
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func(p *Profile)) []byte {
		p := profile(&m)
		f(p)
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for name, data := range map[string][]byte{
		"empty":          {},
		"cut":            whole[:len(whole)/2],
		"not JSON":       []byte("machine"),
		"another type":   []byte(`{"version": "1"}`),
		"null":           []byte("null"),
		"endless":        append(whole[:len(whole):len(whole)], bytes.Repeat([]byte{' '}, maxKept)...),
		"version":        change(func(p *Profile) { p.Version++ }),
		"key":            change(func(p *Profile) { p.Key += "x" }),
		"threads":        change(func(p *Profile) { p.Threads++ }),
		"no bandwidth":   change(func(p *Profile) { p.ReadAll = Rate{} }),
		"negative":       change(func(p *Profile) { p.ReadOne.P10 = -1 }),
		"out of order":   change(func(p *Profile) { p.ReadOne.P90 = 0.5 }),
		"no peaks":       change(func(p *Profile) { p.Peaks = nil }),
		"an empty peak":  change(func(p *Profile) { p.Peaks[0].All = Rate{} }),
		"a peak of zero": change(func(p *Profile) { p.Peaks[0].One.P10 = 0 }),
	} {
		dir := t.TempDir()
		if err := os.WriteFile(m.Path(dir), data, 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := Load(dir, &m, 2)
		var format *formats.FormatError
		if !errors.As(err, &format) || format.File != m.Path(dir) {
			t.Errorf("%s: %v", name, err)
		}
		if err := profile(&m).Save(dir); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if _, err := Load(dir, &m, 2); err != nil {
			t.Errorf("%s, replaced: %v", name, err)
		}
	}
}

func FuzzProfile(f *testing.F) {
	m := Discover(cpu.Best())
	whole, err := json.Marshal(profile(&m))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte("{}"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(m.Path(dir), data, 0o666); err != nil {
			t.Fatal(err)
		}
		if p, err := Load(dir, &m, 2); err == nil && (!p.ReadAll.sound() || p.Key != m.Key()) {
			t.Errorf("%+v", p)
		}
	})
}

func TestMeasureEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	m, buffer := Discover(cpu.Best()), make([]byte, 4<<20)
	if _, err := measure(ctx, cpu.Best(), &m, 1, buffer); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	p, err := measure(context.Background(), cpu.Best(), &m, 2, buffer)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.check(&m, 2); err != nil {
		t.Error(err)
	}
	if len(p.Peaks) != len(cpu.Best().Peaks()) || p.Buffer != 4<<20 {
		t.Errorf("%+v", p)
	}
}

// What is read for the bandwidth does not fit a cache, and fits the memory.
func TestBuffer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes gigabytes where the cache is large")
	}
	m := Machine{Caches: []Cache{{3, 70 << 20, 1}}}
	free := Available()
	n := int64(len(NewBuffer(&m)))
	if want := int64(280 << 20); n != want && !(free > 0 && n < want && n <= free/4+free/8) {
		t.Errorf("%d bytes, with %d free", n, free)
	}
}
