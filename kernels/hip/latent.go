package hip

import "fmt"

// Latent finishes the latents, keys and queries of T rows of attention over latents,
// before the products with a matrix for each head: it puts latents and rotated keys
// into the cache, rotates what belongs into queries behind their first KV.Value
// numbers, and takes out what those products read. See latent.hip.
type Latent struct {
	Rows
	Heads      int     // 0: keys alone
	Nope, Rope int     // numbers of a query
	Q          Address // f32[T][Heads][Nope+Rope]
	Plain      Address // f32[T][Heads][Nope]: the numbers that are not rotated
	Out        Address // f32[T][Heads][KV.Dim]
	Keys       Address // f32[T][KV.Dim]: latents, and keys that are not rotated yet
	Norm       Normal  // of KV.Value numbers, RMSNorm
	Turn       Rotation
	KV         KV
}

const latentWaves = 4 // of a block; each has one head, all of the last one the key

func (o *Latent) unit(t Target) Unit { return latentUnit(t, &o.KV, o.Nope, o.Rope, o.Turn.defines()) }

func latentUnit(t Target, kv *KV, nope, rope int, turn string) Unit {
	return Unit{"latent.hip", fmt.Sprintf("%s %s LATENT_NOPE=%d LATENT_ROPE=%d LATENT_WAVES=%d LATENT_PARTS=%d", kv.defines(), turn, nope, rope, latentWaves, kv.parts(t, latentWaves))}
}

// Calls returns the launch.
func (o *Latent) Calls(t Target) []Call {
	args := []Arg{Ptr(o.Q), Ptr(o.Plain), Ptr(o.Out), Ptr(o.Keys), Ptr(o.Norm.Weight), F32(o.Norm.Eps), I32(o.Heads), Ptr(o.Turn.Cosine), Ptr(o.Turn.Sine)}
	args = append(append(args, o.KV.args()...), o.Rows.args()...)
	return []Call{{
		Early: true, Unit: o.unit(t), Symbol: "nstf_latent", Grid: [3]uint32{uint32(ceil(o.Heads, latentWaves) + 1), uint32(o.T), 1},
		Block: [3]uint32{uint32(latentWaves * t.Wave), 1, 1}, Args: args,
	}}
}

// LatentJoin puts what the heads' matrices gave before the rotated numbers of queries.
type LatentJoin struct {
	Latent   *Latent
	Absorbed Address // f32[T][Heads][KV.Value]
}

// Calls returns the launch.
func (o *LatentJoin) Calls(t Target) []Call {
	l := o.Latent
	n := l.T * l.Heads * l.KV.Value
	return []Call{{
		Early: true, Unit: l.unit(t), Symbol: "nstf_latent_join", Grid: [3]uint32{uint32(min(ceil(n, 256), 1<<16)), 1, 1}, Block: [3]uint32{256, 1, 1},
		Args: []Arg{Ptr(o.Absorbed), Ptr(l.Out), I64(int64(n))},
	}}
}

// LatentHeads lists the slots of T rows, each of which has one for each head, for
// products with a stack of a matrix for each head, as a [Route] lists those of experts.
type LatentHeads struct {
	Latent               *Latent // whose rows and heads they are
	Chosen, Slots, First Address // i32[T*Heads], i32[T*Heads], i32[Heads+1]
}

// Calls returns the launch.
func (o *LatentHeads) Calls(t Target) []Call {
	l := o.Latent
	n := l.T * l.Heads
	return []Call{{
		Early: true, Unit: l.unit(t), Symbol: "nstf_latent_heads", Grid: [3]uint32{uint32(ceil(max(n, l.Heads+1), 256)), 1, 1}, Block: [3]uint32{256, 1, 1},
		Args: []Arg{Ptr(o.Chosen), Ptr(o.Slots), Ptr(o.First), I32(l.Heads), I32(n)},
	}}
}
