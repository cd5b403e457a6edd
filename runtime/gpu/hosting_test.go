package gpu_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/device/devicetest"
	"github.com/nstf/nstf/runtime/gpu"
)

// hostedPair opens a model twice: with all pages on the card, and with so many there while the others lie in the
// host's memory.
func hostedPair(t *testing.T, m *model.Model, o gpu.Options, card int64) (plain, hosted *gpu.Engine) {
	t.Helper()
	o.API, o.Kernels = hip.API(*deviceFlag), *kernelsFlag
	if o.Kernels == "" {
		o.Kernels = t.TempDir()
	}
	open := func() *gpu.Engine {
		e, err := gpu.New(m.Graph, device.Whole(m.Graph), m.Tensor, o)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	plain = open()
	t.Cleanup(func() { plain.Close() })
	o.KVHost = 1 << 30
	roomy := open()
	p := roomy.Plan()
	o.Most = p.Weights + p.Cache + p.States + p.Scratch - (p.Pages-card)*roomy.PlaneBytes()
	if p.HostPages != 0 || roomy.Close() != nil {
		t.Fatalf("with room for all of them: %+v", p)
	}
	hosted = open()
	t.Cleanup(func() { hosted.Close() })
	if p := hosted.Plan(); p.Pages-p.HostPages != card || p.HostCache != p.HostPages*hosted.PlaneBytes() || p.OverLink() == "" {
		t.Fatalf("%d pages asked for on the card: %+v, %s", card, p, &p)
	}
	return plain, hosted
}

// A script is steps of a conversation on two stages, whose logits have the same bits.
type script struct {
	t     *testing.T
	vocab int64
	on    [2]*gpu.Engine
	ids   []int32
}

// run appends so many tokens to both of two states, and compares the logits of the last ones.
func (s *script) run(what string, both [2]device.State, n, wanted int) {
	s.t.Helper()
	at := int(both[0].Len())
	var rows [2][]float32
	for i, e := range s.on {
		rows[i] = devicetest.Run(s.t, e, both[i], s.ids[at:at+n], int64(len(s.ids)), wanted, s.vocab)
	}
	if !slices.Equal(rows[0], rows[1]) {
		s.t.Fatalf("%s: %d tokens behind %d give other logits", what, n, at)
	}
}

// prompt appends tokens in passes of so many, steps one by one.
func (s *script) prompt(what string, both [2]device.State, n, each int) {
	s.t.Helper()
	for ; n > 0; n -= each {
		s.run(what, both, min(n, each), 1)
	}
}

func (s *script) steps(what string, both [2]device.State, n int) {
	s.t.Helper()
	for range n {
		s.run(what, both, 1, 1)
	}
}

// together appends a token to each of two pairs of states, in one pass.
func (s *script) together(what string, pairs ...[2]device.State) {
	s.t.Helper()
	var rows [2][]float32
	for i, e := range s.on {
		var b device.Batch
		for _, both := range pairs {
			at := both[i].Len()
			if err := both[i].Reserve(at + 1); err != nil {
				s.t.Fatal(err)
			}
			b.Segments = append(b.Segments, device.Segment{State: both[i], Tokens: s.ids[at : at+1], Length: int64(len(s.ids)), Wanted: 1})
		}
		pass, err := e.Forward(&b)
		if err != nil {
			s.t.Fatal(err)
		}
		rows[i] = make([]float32, int64(len(pairs))*s.vocab)
		if err := pass.Logits(0, len(pairs), rows[i]); err != nil {
			s.t.Fatal(err)
		}
	}
	if !slices.Equal(rows[0], rows[1]) {
		s.t.Fatalf("%s: other logits", what)
	}
}

func (s *script) state() (both [2]device.State) {
	for i, e := range s.on {
		both[i] = devicetest.State(s.t, e, int64(len(s.ids)))
	}
	return both
}

func hostedIDs(n int, vocab int64) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32((int64(i)*int64(i/7+3) + 11) % vocab)
	}
	return ids
}

// TestHosting: no bit depends on where pages lie, through prompts, steps that read some pages and all, forks,
// snapshots, going back, and another sequence; pages go both ways, and none is lost.
func TestHosting(t *testing.T) {
	if *deviceFlag == "" {
		t.Skip("no -device")
	}
	m, err := checkpoint.Open("../../testdata/micro/llama-3")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	kinds := []string{"f16", "q4", "q8", "f32"}
	if testing.Short() {
		kinds = kinds[:2]
	}
	for _, kv := range kinds {
		t.Run(kv, func(t *testing.T) {
			o := gpu.Options{Context: 700, Sequences: 3, Rows: 128, KV: kv, Policy: &device.Policy{Pages: 0.55, Mass: 1, Least: 64, Refresh: 10}}
			plain, hosted := hostedPair(t, m, o, 7)
			s := &script{t: t, vocab: m.Graph.Vocab, on: [2]*gpu.Engine{plain, hosted}, ids: hostedIDs(700, m.Graph.Vocab)}
			one := s.state()
			s.prompt("a prompt", one, 520, 128)
			if _, out := hosted.PagesMoved(); out == 0 {
				t.Error("no page left the card")
			}
			before, _ := hosted.PagesMoved()
			s.steps("steps", one, 70)
			if in, _ := hosted.PagesMoved(); in == before {
				t.Error("no page came back while steps chose among them")
			}
			var kept [2]device.Snapshot
			var fork [2]device.State
			for i := range one {
				if kept[i], err = one[i].Snapshot(); err != nil {
					t.Fatal(err)
				}
				if fork[i], err = one[i].Fork(); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				s.steps("a fork", fork, 2)
				s.steps("beside a fork", one, 1)
			}
			two := s.state()
			s.prompt("another sequence", two, 300, 100)
			s.steps("another sequence", two, 5)
			for range 40 {
				s.together("three sequences", one, two, fork)
			}
			for i := range one {
				if err := one[i].Restore(kept[i]); err != nil {
					t.Fatal(err)
				}
			}
			s.steps("what was kept", one, 5)
			for i := range fork {
				if n := fork[i].Rewind(130); n != 130 && n != 128 { // of codes to where the first pages end
					t.Fatalf("back to %d", n)
				}
			}
			s.prompt("going back", fork, 150, 75)
			s.steps("going back", fork, 12)
			for i, e := range s.on {
				kept[i].Release()
				for _, state := range []device.State{one[i], two[i], fork[i]} {
					state.Release()
				}
				if r := e.Room(); r.Free != r.Pages || r.Idle != r.Places {
					t.Errorf("%d of %d pages are left, %d of %d places", r.Free, r.Pages, r.Idle, r.Places)
				}
			}
			in, out := hosted.PagesMoved()
			t.Logf("%d pages came, %d left", in, out)
		})
	}
}

// TestHostingPrompts: nor where blocks of a prompt's queries choose pages.
func TestHostingPrompts(t *testing.T) {
	if *deviceFlag == "" {
		t.Skip("no -device")
	}
	m, err := checkpoint.Open("../../testdata/micro/llama-3")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	shares := make([][]float64, len(m.Graph.Blocks))
	for i := range shares {
		shares[i] = slices.Repeat([]float64{0.1}, int(m.Graph.Blocks[i].Attn.KVHeads))
	}
	o := gpu.Options{Context: 1400, Rows: 512, KV: "f16", Policy: &device.Policy{Pages: 0.2, Mass: 1, Least: 64, Refresh: 10, Prompts: shares}}
	plain, hosted := hostedPair(t, m, o, 6)
	s := &script{t: t, vocab: m.Graph.Vocab, on: [2]*gpu.Engine{plain, hosted}, ids: hostedIDs(1400, m.Graph.Vocab)}
	one := s.state()
	s.prompt("a prompt", one, 64*20+30, 512)
	s.steps("steps", one, 3)
	for _, e := range s.on {
		if read, held := e.PagesRead(); read == 0 || read >= held {
			t.Errorf("%d of %d pages read", read, held)
		}
	}
}

// TestHostingFull: a host that lacks the memory is told of in one line, before anything is placed.
func TestHostingFull(t *testing.T) {
	if *deviceFlag == "" {
		t.Skip("no -device")
	}
	m, err := checkpoint.Open("../../testdata/micro/llama-3")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	o := gpu.Options{API: hip.API(*deviceFlag), Context: 1 << 15, Rows: 64, KV: "f32", KVHost: 1 << 34, Most: 11 << 20, Kernels: *kernelsFlag, Root: t.TempDir(), Policy: &device.Policy{Pages: 0.2, Mass: 1, Least: 64, Refresh: 10}}
	if err := errors.Join(os.Mkdir(filepath.Join(o.Root, "proc"), 0o777), os.WriteFile(filepath.Join(o.Root, "proc", "meminfo"), []byte("MemAvailable: 1000 kB\n"), 0o666)); err != nil {
		t.Fatal(err)
	}
	e, err := gpu.New(m.Graph, device.Whole(m.Graph), m.Tensor, o)
	if u := (*formats.UnsupportedError)(nil); !errors.As(err, &u) || !strings.Contains(err.Error(), "of which 1000.00 KiB are available") {
		t.Errorf("%v", err)
	}
	if err == nil {
		e.Close()
	}
}

// TestHostingRefused: what has no use for the host's memory, or where it has no room, is one clear error.
func TestHostingRefused(t *testing.T) {
	m, err := checkpoint.Open("../../testdata/micro/llama-3")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	whole := device.Whole(m.Graph)
	policy := &device.Policy{Pages: 0.2, Mass: 1, Least: 64, Refresh: 10}
	for what, o := range map[string]gpu.Options{"steps that read all": {}, "several stages": {Policy: policy}} {
		o.API, o.KVHost = hip.HIP, 1<<20
		span := whole
		if o.Policy != nil {
			span.Hi, span.Head = 1, false
		}
		_, err := gpu.New(m.Graph, span, m.Tensor, o)
		if u := (*formats.UnsupportedError)(nil); !errors.As(err, &u) || u.Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestHostingFails: once a move failed, no pass reads any page again.
func TestHostingFails(t *testing.T) {
	if *deviceFlag == "" {
		t.Skip("no -device")
	}
	m, err := checkpoint.Open("../../testdata/micro/llama-3")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	o := gpu.Options{Context: 700, Sequences: 3, Rows: 128, KV: "f16", Policy: &device.Policy{Pages: 0.55, Mass: 1, Least: 64, Refresh: 10}}
	_, hosted := hostedPair(t, m, o, 7)
	ids := hostedIDs(700, m.Graph.Vocab)
	short := devicetest.State(t, hosted, 700)
	devicetest.Run(t, hosted, short, ids[:5], 700, 1, m.Graph.Vocab)
	forward := func(s device.State, n int64) error {
		at := s.Len()
		if err := s.Reserve(at + n); err != nil {
			return err
		}
		_, err := hosted.Forward(&device.Batch{Segments: []device.Segment{{State: s, Tokens: ids[at : at+n], Length: 700, Wanted: 1}}})
		return err
	}
	mend := hosted.LoseMoves()
	long := devicetest.State(t, hosted, 700)
	for err == nil && long.Len() < 512 {
		err = forward(long, 128)
	}
	mend()
	if err == nil {
		t.Fatal("moves without a kernel fail nothing")
	}
	if later := forward(short, 1); later == nil || later.Error() != err.Error() {
		t.Errorf("behind %q a pass gives %v", err, later)
	}
}

// TestHostingIntegrated: a device that shares the processor's memory has none beside it. The emulator plays such a
// device: AMDEMU_INTEGRATED=1.
func TestHostingIntegrated(t *testing.T) {
	if *deviceFlag == "" {
		t.Skip("no -device")
	}
	m, err := checkpoint.Open("../../testdata/micro/llama-3")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	o := gpu.Options{API: hip.API(*deviceFlag), Context: 64, Kernels: *kernelsFlag, KVHost: 1 << 20, Policy: &device.Policy{Pages: 0.2, Mass: 1, Least: 64, Refresh: 10}}
	e, err := gpu.New(m.Graph, device.Whole(m.Graph), m.Tensor, o)
	if err == nil {
		e.Close()
		t.Skip("the device has memory of its own")
	}
	if u := (*formats.UnsupportedError)(nil); !errors.As(err, &u) || u.Hint == "" || !strings.Contains(err.Error(), "shares the processor's memory") {
		t.Errorf("%v", err)
	}
}
