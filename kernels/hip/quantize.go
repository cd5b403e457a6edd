package hip

import "fmt"

// Acts are rows of activations rounded to bytes, as acts.hip lays them out, of K
// numbers each.
type Acts struct {
	Data Address // at a multiple of 16 bytes
	T, K int
	Fine bool // 16 neighbours share a scale, not 32
}

// group is how many neighbours share a scale.
func (a Acts) group() int { return group(a.Fine) }

func group(fine bool) int {
	if fine {
		return 16
	}
	return 32
}

// ActsSize returns the bytes of activations rounded in groups of 32.
func ActsSize(t, k int) int64 { return int64(t) * int64(ceil(ceil(k, 32)*40, 16)*16) }

// FineActsSize is ActsSize of groups of 16.
func FineActsSize(t, k int) int64 { return int64(t) * int64(ceil(ceil(k, 32)*44, 16)*16) }

// Quantize rounds X[T][K] to bytes.
type Quantize struct {
	X    Address // f32[T][K]
	Acts Acts
}

// Calls returns the launch.
func (o *Quantize) Calls(Target) []Call {
	threads := o.Acts.T * ceil(o.Acts.K, 32) * 8
	return []Call{{
		Unit: Unit{"quantize.hip", fmt.Sprintf("QUANTIZE_GROUP=%d", o.Acts.group())}, Symbol: "nstf_quantize",
		Grid: [3]uint32{uint32(ceil(threads, 256)), 1, 1}, Block: [3]uint32{256, 1, 1}, Early: true,
		Args: []Arg{Ptr(o.X), Ptr(o.Acts.Data), I32(o.Acts.T), I32(o.Acts.K)},
	}}
}
