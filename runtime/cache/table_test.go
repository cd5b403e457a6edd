package cache

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
)

// Tables that fork, rewind, restore and write hold what sequences that share
// nothing would hold, never more pages than there are, and give all back.
func TestTablesShareWithoutTelling(t *testing.T) {
	tablesShare(t, cpu.KVF32, 24, 5*PageSize, 40)
}

// The same of tables of the newest positions, which go back where they can.
func TestNewestTablesShareWithoutTelling(t *testing.T) {
	tablesShare(t, cpu.KVQ4, 60, 12*PageSize, 300)
}

func tablesShare(t *testing.T, format cpu.KVFormat, pages int64, capacity, most int) {
	layers := []Layer{{KVHeads: 1, HeadDim: 1, ValueDim: 1, Format: format}}
	store, err := NewStore(cpu.Best(), layers, pages)
	if err != nil {
		t.Fatal(err)
	}
	type sequence struct {
		kv   *KV
		want []float32
	}
	r := rand.New(rand.NewPCG(1, 2))
	live := []sequence{{store.New(int64(capacity)), nil}}
	var kept []sequence
	var full, forked, restored, short int
	for range 4000 {
		i := r.IntN(len(live))
		s := &live[i]
		switch n := r.IntN(12); {
		case n < 6:
			more := min(r.IntN(most)+1, capacity-len(s.want))
			if err := s.kv.Reserve(int64(len(s.want) + more)); err != nil {
				if f := (*FullError)(nil); !errors.As(err, &f) {
					t.Fatal(err)
				}
				full++
				break
			}
			for range more {
				v := float32(r.IntN(2048)) // a number in half precision
				s.kv.Put(0, int64(len(s.want)), []float32{v}, []float32{v})
				s.want = append(s.want, v)
			}
			s.kv.Advance(int64(more))
		case n < 8:
			n := r.IntN(len(s.want) + 1)
			if back := s.kv.Back(int64(n)); back != int64(n) {
				if back != cpu.KVFirst*PageSize || format != cpu.KVQ4 {
					t.Fatalf("back from %d to %d instead of %d", len(s.want), back, n)
				}
				n = int(back)
				short++
			}
			s.kv.Rewind(int64(n))
			s.want = s.want[:n]
		case n == 8 && len(live) < 20:
			live = append(live, sequence{s.kv.Fork(), slices.Clone(s.want)})
			forked++
		case n == 9 && len(live) > 1:
			s.kv.Release()
			live = slices.Delete(live, i, i+1)
		case n == 10 && len(kept) < 10:
			kept = append(kept, sequence{s.kv.Fork(), slices.Clone(s.want)})
		case n == 11 && len(kept) > 0:
			k := kept[r.IntN(len(kept))]
			s.kv.Restore(k.kv)
			s.want = slices.Clone(k.want)
			restored++
		}
		for _, s := range live {
			if s.kv.Len() != int64(len(s.want)) {
				t.Fatalf("%d positions, want %d", s.kv.Len(), len(s.want))
			}
		}
		s = &live[r.IntN(len(live))]
		for pos := 0; pos < len(s.want); pos += 1 + r.IntN(20) {
			kv := s.kv
			if kv.newest != nil {
				if kv = kv.newest; pos >= cpu.KVFirst*PageSize && int64(pos) < cpu.NewestFrom(int64(len(s.want))) {
					continue // codes
				}
			}
			if _, got := read(kv, 0, 0, 1, int64(pos)); got[0] != s.want[pos] {
				t.Fatalf("position %d holds %v, want %v", pos, got[0], s.want[pos])
			}
		}
		if n := s.kv.newest; n != nil && (n.Held() > NewestHeld(n.Len()) || n.Len() != s.kv.Len()) {
			t.Fatalf("%d pages of %d positions are held, %d at most of %d", n.Held(), n.Len(), NewestHeld(n.Len()), s.kv.Len())
		}
	}
	if full == 0 || forked == 0 || restored == 0 || (short == 0) != (format == cpu.KVF32) {
		t.Errorf("%d times full, %d forks, %d restored, %d not far enough back", full, forked, restored, short)
	}
	for _, s := range append(live, kept...) {
		s.kv.Release()
	}
	if n := store.Pool().Free(); n != pages {
		t.Errorf("%d of %d pages came back", n, pages)
	}
	if store.newest != nil && store.newest.pool.Free() != pages {
		t.Errorf("%d of %d pages of the newest came back", store.newest.pool.Free(), pages)
	}
}

// What a sequence writes of its newest positions another takes over, also where it went back
// before, and both go on alike; what is damaged is refused.
func TestNewestIsWritten(t *testing.T) {
	layers := []Layer{{KVHeads: 1, HeadDim: 1, ValueDim: 1, Format: cpu.KVQ4}}
	for _, c := range []struct{ len, back int64 }{{1000, 1000}, {1000, 900}, {1000, 960}, {1000, 128}, {300, 290}, {100, 50}, {64, 64}} {
		store, err := NewStore(cpu.Best(), layers, 60)
		if err != nil {
			t.Fatal(err)
		}
		put := func(kv *KV, to int64) {
			from := kv.Len()
			reserve(t, kv, to)
			for pos := from; pos < to; pos++ {
				v := []float32{float32(pos)}
				kv.Put(0, pos, v, v)
			}
			kv.Advance(to - from)
		}
		a, b := store.New(1200), store.New(1200)
		put(a, c.len)
		a.Rewind(c.back)
		written := a.AppendNewest(nil)
		if rest, err := b.LoadNewest(c.back, written); err != nil || len(rest) > 0 {
			t.Errorf("%v: %v, %d bytes are left", c, err, len(rest))
			continue
		}
		same := func() {
			if a.newest.Held() != b.newest.Held() || a.Len() != b.Len() {
				t.Errorf("%v: %d pages of %d positions are held, not %d of %d", c, b.newest.Held(), b.Len(), a.newest.Held(), a.Len())
			}
			for pos := int64(0); pos < a.Len(); pos++ {
				if pos >= cpu.KVFirst*PageSize && pos < cpu.NewestFrom(a.Len()) {
					continue // codes
				}
				_, want := read(a.newest, 0, 0, 1, pos)
				if _, got := read(b.newest, 0, 0, 1, pos); got[0] != want[0] {
					t.Fatalf("%v: position %d holds %v, not %v", c, pos, got, want)
				}
			}
		}
		same()
		put(a, c.back+100)
		put(b, c.back+100)
		same()
		for _, damage := range []func([]byte) []byte{
			func(b []byte) []byte { return b[:3] },
			func(b []byte) []byte { return b[:len(b)-1] },
			func(b []byte) []byte { b[0]++; return b },
			func(b []byte) []byte { b[0]--; return b },
			func(b []byte) []byte { b[3] = 255; return b },
		} {
			other := store.New(1200)
			if rest, err := other.LoadNewest(c.back, damage(slices.Clone(written))); err == nil && len(rest) == 0 {
				t.Errorf("%v: damaged, and taken over", c)
			}
			other.Release()
		}
	}
}

// A table that is full stays as it was, and goes on when others give pages back.
func TestFullPool(t *testing.T) {
	pool := NewPages(3, 4)
	a, b := pool.NewTable(100), pool.NewTable(100)
	if _, err := a.Reserve(5); err != nil {
		t.Fatal(err)
	}
	a.Advance(5)
	f := (*FullError)(nil)
	if _, err := b.Reserve(5); !errors.As(err, &f) || len(b.Pages()) != 0 || pool.Free() != 1 {
		t.Errorf("%v, %d pages held, %d free", err, len(b.Pages()), pool.Free())
	}
	a.Rewind(4)
	if _, err := b.Reserve(5); err != nil {
		t.Error(err)
	}
	if _, err := a.Reserve(5); !errors.As(err, &f) || a.Len() != 4 {
		t.Errorf("%v at %d", err, a.Len())
	}
}

// What a fork writes first is copied where it holds something that is kept, and
// not where it does not.
func TestCopies(t *testing.T) {
	for _, c := range []struct {
		len    int64
		copies int
	}{{6, 1}, {8, 0}, {4, 0}, {9, 1}} {
		pool := NewPages(10, 4)
		a := pool.NewTable(20)
		if _, err := a.Reserve(c.len); err != nil {
			t.Fatal(err)
		}
		a.Advance(c.len)
		f := a.Fork()
		copies, err := f.Reserve(c.len + 1)
		if err != nil || len(copies) != c.copies {
			t.Errorf("at %d: %v, %v", c.len, copies, err)
		}
		for _, p := range copies {
			if last := (c.len - 1) / 4; p.From != a.Pages()[last] || p.To != f.Pages()[last] {
				t.Errorf("at %d: %v between %v and %v", c.len, p, a.Pages(), f.Pages())
			}
		}
		if copies, err := a.Reserve(c.len + 1); err != nil || len(copies) != 0 { // nobody else's any more
			t.Errorf("at %d: then %v, %v", c.len, copies, err)
		}
	}
}
