package hip

import (
	"fmt"

	"github.com/nstf/nstf/kernels/cpu"
)

// PagePositions is the positions of a page of keys and values, as in the
// processor's cache.
const PagePositions = cpu.KVPositions

// A KV is the pool of pages that holds one block's (layer's) keys and values:
// keys, values and where they have them their scales, one plane after the other, each
// [Pages][Heads][64] of, with G = ceil(Dim/32),
//
//	keys, values  [Dim] f32, f16 or i8; of codes [G*bits] u32
//	key scales    [G] f32, one for 32 numbers; of codes f16
//	value scales  one f32; of codes [G] f16
//
// with the meaning of [cpu.KVFormat]: a stored number is its byte, or the level of its code,
// times its scale. How codes lie in words is said in kv.hip. Which page holds a sequence's
// positions is in Rows.Pages. Behind the planes of codes are those of the first and newest
// positions, [NewestPages][Heads][64][Dim] f16 of keys and of values, turned as the codes are.
type KV struct {
	Format cpu.KVFormat
	Heads  int // key-value heads
	Dim    int // numbers of a head
	// Value, where it is not 0, says that there is no plane of values, nor of their
	// scales: a value is the first so many numbers of its key.
	Value int
	Pages int // on the card
	// HostPages are those behind them that lie in the host's memory: their planes, in the same
	// order, begin at Host. Latents have none, and [KV.Summaries] of all lie on the card.
	HostPages int
	Host      Address // HostBytes() bytes, at a multiple of 256
	// NewestPages are those of positions in half precision, beside codes alone.
	NewestPages int
	// Summarized says that what a [Follow] knows of each page lies behind the planes.
	Summarized bool
	Base       Address // Bytes() bytes, at a multiple of 256
}

// NewestPlanes returns the bytes of a page of positions in half precision, of keys and of
// values; 0 for what there is not.
func (k *KV) NewestPlanes() [2]int64 {
	n := 2 * int64(k.Heads) * PagePositions * int64(k.Dim)
	switch {
	case !k.Format.Coded():
		return [2]int64{}
	case k.Value > 0:
		return [2]int64{n, 0}
	}
	return [2]int64{n, n}
}

// Newest returns where the planes of positions in half precision begin.
func (k *KV) Newest() Address { return k.Summaries() + Address(k.SummaryBytes()*k.allPages()) }

// allPages are those on the card and those in the host's memory.
func (k *KV) allPages() int64 { return int64(k.Pages + k.HostPages) }

// Planes returns the bytes of a page in each plane, in their order; 0 for one
// that the format has not.
func (k *KV) Planes() [4]int64 {
	n := int64(k.Heads) * PagePositions
	d, groups := int64(k.Dim), int64(ceil(k.Dim, 32))
	planes := [4]int64{4 * n * d, 4 * n * d}
	switch {
	case k.Format == cpu.KVF16:
		planes = [4]int64{2 * n * d, 2 * n * d}
	case k.Format == cpu.KVQ8:
		planes = [4]int64{n * d, n * d, 4 * n * groups, 4 * n}
	case k.Format.Coded():
		bits := int64(k.Format.Bits())
		planes = [4]int64{4 * bits * n * groups, 4 * bits * n * groups, 2 * n * groups, 2 * n * groups}
	}
	if k.Value > 0 {
		planes[1], planes[3] = 0, 0
	}
	return planes
}

// PageBytes returns what a page takes, its summaries included.
func (k *KV) PageBytes() int64 { return k.PlaneBytes() + k.SummaryBytes() }

// PlaneBytes returns what the keys and values of a page take.
func (k *KV) PlaneBytes() (n int64) {
	for _, p := range k.Planes() {
		n += p
	}
	return n
}

// SummaryBytes returns what the summaries of a page take, where there are some: for each head three
// vectors of halves, and a flag.
func (k *KV) SummaryBytes() int64 {
	if !k.Summarized {
		return 0
	}
	return int64(k.Heads) * 2 * int64(3*ceil(k.Dim, 8)*8+8)
}

// Summaries returns where those of all pages lie, u16 [Pages][Heads][3*D+8] with D the next
// multiple of 8 from Dim on: means of keys, variances, means of values, and a number that is not 0
// where one of these is not finite.
func (k *KV) Summaries() Address { return k.Base + Address(k.PlaneBytes()*int64(k.Pages)) }

// Bytes returns the size of the pool on the card.
func (k *KV) Bytes() int64 {
	newest := k.NewestPlanes()
	return int64(k.Newest()-k.Base) + (newest[0]+newest[1])*int64(k.NewestPages)
}

// HostBytes returns the size of its part in the host's memory.
func (k *KV) HostBytes() int64 { return k.PlaneBytes() * int64(k.HostPages) }

// hostPlanes returns where planes of the host's memory would begin if they had the pages of the card
// before their own: the number of a page then finds it there.
func (k *KV) hostPlanes() (from [4]Address) {
	at := k.Host
	for i, p := range k.Planes() {
		from[i] = at - Address(p*int64(k.Pages))
		at += Address(p * int64(k.HostPages))
	}
	return from
}

// args passes the planes that the format has.
func (k *KV) args() []Arg {
	var a []Arg
	at := k.Base
	for _, p := range k.Planes() {
		if p == 0 {
			continue
		}
		a = append(a, Ptr(at))
		at += Address(p * int64(k.Pages))
	}
	at = k.Newest()
	for _, p := range k.NewestPlanes() {
		if p == 0 {
			continue
		}
		a = append(a, Ptr(at))
		at += Address(p * int64(k.NewestPages))
	}
	if k.HostPages == 0 {
		return a
	}
	a = append(a, I64(int64(k.Pages)*int64(k.Heads)*PagePositions))
	from := k.hostPlanes()
	for i, p := range k.Planes() {
		if p != 0 {
			a = append(a, Ptr(from[i]))
		}
	}
	return a
}

// values returns the numbers of a value.
func (k *KV) values() int {
	if k.Value > 0 {
		return k.Value
	}
	return k.Dim
}

// parts returns how many waves of a block's share the codes of a vector; 1 where there are none.
func (k *KV) parts(t Target, waves int) int {
	if !k.Format.Coded() {
		return 1
	}
	return min(ceil(ceil(k.Dim, 32)*32, t.Wave), waves)
}

// defines are what kv.hip asks for.
func (k *KV) defines() string {
	s := fmt.Sprintf("KV_FORMAT=%d KV_D=%d", k.Format, k.Dim)
	if k.Value > 0 {
		s += fmt.Sprintf(" KV_LATENT=1 KV_VALUE=%d", k.Value)
	}
	if k.HostPages > 0 {
		s += " KV_HOST=1"
	}
	if k.Format.Coded() {
		s += fmt.Sprintf(" KV_FIRST=%d KV_NEWEST=%d", cpu.KVFirst, cpu.KVNewest)
	}
	return s
}

// Rows say where the rows of a step belong. All of it lies in device memory, so
// that a captured step can be replayed for other positions and pages.
type Rows struct {
	T        int
	Position Address // i32[T], in the row's sequence; a negative one marks a row that is not used
	Owner    Address // i32[T]: the row's sequence
	// Pages are i32[sequences][MaxPages]: the page of positions 64 i to 64 i + 63; where a
	// KV is of codes the same of pages in half precision in the second half of a row.
	Pages    Address
	MaxPages int
}

func (r *Rows) args() []Arg {
	return []Arg{Ptr(r.Position), Ptr(r.Owner), Ptr(r.Pages), I32(r.MaxPages)}
}

// ceil divides and rounds up.
func ceil(a, b int) int { return (a + b - 1) / b }
