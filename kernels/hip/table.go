package hip

import (
	"fmt"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/ops"
)

// A Kernel is a row of the table of kernels: an operation in a usual form, for
// reports on what it takes, and what it may take.
type Kernel struct {
	Name   string // operation/scheme/form
	Call   Call
	Budget Budget
	// Of a product: the operation, without addresses that mean anything, and the
	// bytes of a weight in memory.
	Product        *Matvec
	BytesPerWeight float64
}

// A Budget is the most that a kernel may take. Spilled registers and scratch it
// may never have.
type Budget struct {
	Registers int // of a lane: vector registers, those of matrix sums included
	LDS       int // bytes of a block, static and dynamic
}

// Kernels returns the table for a target: every operation, and of the products
// every scheme. The shapes are those of a model of 8 billion weights. Addresses
// are only there or not.
func Kernels(t Target) []Kernel {
	const d, inner = 4096, 14336
	rows := Rows{T: 1, Position: 1, Owner: 1, Pages: 1, MaxPages: 128}
	kv := KV{Format: cpu.KVF16, Heads: 8, Dim: 128, Pages: 128, Base: 256}
	rope := &Rope{Rows: rows, KV: kv, Heads: 32, Q: 1, K: 1, V: 1, Turn: Rotation{Pairs: 64, Cosine: 1, Sine: 1}}
	prompt := rows
	prompt.T = 512
	rms := Normal{Weight: 1, Eps: 1e-5}
	small, wide := Budget{80, 16 << 10}, Budget{192, 64 << 10}
	table := kernelTable{t: t}
	table.add("norm", small, (&Norm{T: 1, D: d, X: 1, A: Branch{Rows: 1}, Next: rms, Out: 1}).Calls(t))
	table.add("angles", small, (&Angles{T: 1, Pairs: 64, Cosine: 1, Sine: 1, Position: 1, Owner: 1, Frequency: 1, Factor: 1}).Calls(t))
	table.add("rope", small, rope.Calls(t))
	own := *rope
	own.QNorm, own.KNorm, own.VNorm, own.V = rms, rms, rms, own.K
	table.add("rope/values", small, own.Calls(t))
	late := *rope
	late.QNorm, late.KNorm, late.Late, late.Temper = rms, rms, true, &Temper{Beta: 0.1, Every: 8192}
	table.add("rope/late", small, late.Calls(t))
	apart := *rope
	apart.QNorm, apart.KNorm, apart.HeadNorms = Normal{Kind: LayerNorm, Weight: 1, Eps: 1e-5}, Normal{Kind: LayerNorm, Weight: 1, Eps: 1e-5}, true
	table.add("rope/heads", small, apart.Calls(t))
	wider := kv
	wider.Heads, wider.Dim = 1, 512
	shared := &Rope{Rows: rows, KV: wider, Heads: 8, Q: 1, QNorm: rms, Shared: true, Turn: Rotation{Pairs: 256, Cosine: 1, Sine: 1}}
	table.add("rope/shared", small, shared.Calls(t))
	// Sums of 512 numbers are four times as many registers as of 128.
	table.add("attend/f16/512 shared", Budget{224, 64 << 10}, (&Attend{Rows: rows, KV: wider, Heads: 8, Scale: 1, Capacity: 8192, Q: 1, Out: 1, Scratch: 256, Turn: shared}).Calls(t))
	table.add("attend/f16/512 T=512", Budget{256, 160 << 10}, (&Attend{Rows: prompt, KV: wider, Heads: 8, Scale: 1, Capacity: 8192, Q: 1, Out: 1, Scratch: 256}).Calls(t))
	table.add("attend/f16/values", wide, (&Attend{Rows: rows, KV: kv, Heads: 32, Scale: 0.1, Capacity: 8192, Q: 1, Out: 1, Scratch: 256, Turn: &own}).Calls(t))
	latents := kv
	latents.Heads, latents.Dim, latents.Value = 1, 576, 512
	latent := &Latent{Rows: rows, Heads: 16, Nope: 128, Rope: 64, Q: 1, Plain: 1, Out: 1, Keys: 1, Norm: rms, Turn: Rotation{Pairs: 32, Interleaved: true, Cosine: 1, Sine: 1}, KV: latents}
	table.add("latent", small, latent.Calls(t))
	table.add("latent/join", small, (&LatentJoin{Latent: latent, Absorbed: 1}).Calls(t))
	table.add("latent/heads", small, (&LatentHeads{Latent: latent, Chosen: 1, Slots: 1, First: 1}).Calls(t))
	table.add("attend/f16/latents", Budget{224, 64 << 10}, (&Attend{Rows: rows, KV: latents, Heads: 16, Scale: 0.1, Capacity: 8192, Q: 1, Out: 1, Scratch: 256}).Calls(t))
	table.add("attend/f16/latents T=512", Budget{256, 180 << 10}, (&Attend{Rows: prompt, KV: latents, Heads: 16, Scale: 0.1, Capacity: 8192, Q: 1, Out: 1, Scratch: 256}).Calls(t))
	table.add("per layer", small, (&PerLayer{T: 1, Runs: 35, Width: 256, X: 1, Looked: 1, Norm: rms}).Calls(t))
	table.add("inject", small, (&Inject{Act: ops.GELUTanh, T: 1, Width: 256, Stride: 8960, Gate: 1, Inputs: 1}).Calls(t))
	table.add("norm/scaled", small, (&Norm{T: 1, D: d, X: 1, A: Branch{Rows: 1, Post: rms}, Next: rms, Out: 1, Scale: 1}).Calls(t))
	table.add("attend/f16/T=1", wide, (&Attend{Rows: rows, KV: kv, Heads: 32, Scale: 0.1, Capacity: 8192, Q: 1, Out: 1, Scratch: 256, Turn: rope}).Calls(t))
	several := rows
	several.T = 8
	steps := &AttendShape{Steps: 1} // as chosen on CUDA
	if t.API == HIP {
		steps = &AttendShape{Waves: 4, Queries: 2, Fill: 2, Least: 256, Steps: 1}
	}
	table.add("attend/f16/steps", Budget{256, 96 << 10}, (&Attend{Rows: several, KV: kv, Heads: 32, Scale: 0.1, Capacity: 8192, Q: 1, Out: 1, Scratch: 256, Shape: steps}).Calls(t))
	eighth := kv
	eighth.Format = cpu.KVQ8
	table.add("attend/q8/T=1", wide, (&Attend{Rows: rows, KV: eighth, Heads: 32, Scale: 0.1, Capacity: 8192, Q: 1, Out: 1, Scratch: 256}).Calls(t))
	table.add("attend/q8/T=512", Budget{256, 64 << 10}, (&Attend{Rows: prompt, KV: eighth, Heads: 32, Scale: 0.1, Capacity: 8192, Q: 1, Out: 1, Scratch: 256, Reaches: []Reach{{Last: 8191}}}).Calls(t))
	for _, f := range []cpu.KVFormat{cpu.KVQ5, cpu.KVQ4, cpu.KVQ3} {
		coded, turned := kv, *rope
		coded.Format, turned.KV.Format = f, f
		table.add(fmt.Sprintf("rope/%v", f), small, turned.Calls(t))
		table.add(fmt.Sprintf("attend/%v/T=1", f), Budget{216, 64 << 10}, (&Attend{Rows: rows, KV: coded, Heads: 32, Scale: 0.1, Capacity: 8192, Q: 1, Out: 1, Scratch: 256, Turn: &turned}).Calls(t))
		table.add(fmt.Sprintf("attend/%v/T=512", f), Budget{256, 64 << 10}, (&Attend{Rows: prompt, KV: coded, Heads: 32, Scale: 0.1, Capacity: 8192, Q: 1, Out: 1, Scratch: 256, Reaches: []Reach{{Last: 8191}}}).Calls(t))
	}
	table.add("attend/f16/T=512", Budget{256, 64 << 10}, (&Attend{Rows: prompt, KV: kv, Heads: 32, Scale: 0.1, Capacity: 8192, Q: 1, Out: 1, Scratch: 256}).Calls(t))
	table.add("attend/f16/sinks", wide, (&Attend{Rows: rows, KV: kv, Heads: 32, Scale: 0.1, Capacity: 8192, Q: 1, Out: 1, Sinks: 1, Scratch: 256, Turn: rope}).Calls(t))
	table.add("attend/f16/sinks/T=512", Budget{256, 64 << 10}, (&Attend{Rows: prompt, KV: kv, Heads: 32, Scale: 0.1, Capacity: 8192, Q: 1, Out: 1, Sinks: 1, Scratch: 256}).Calls(t))
	for _, f := range []cpu.KVFormat{cpu.KVF16, cpu.KVQ8, cpu.KVQ4} {
		kv := kv
		kv.Format, kv.Summarized = f, true
		turned := *rope
		turned.KV.Format = f
		follow := &Follow{Attend: Attend{Rows: rows, KV: kv, Heads: 32, Scale: 0.1, Capacity: 8192, Q: 1, Out: 1, Turn: &turned}, Histories: 1, Shares: 1, Mass: 1, Counts: 1, Work: 256}
		table.add(fmt.Sprintf("attend/pages/%v", f), Budget{240, 64 << 10}, append(follow.Calls(t), (&Learn{Of: follow}).Calls(t)...))
		hosted := *follow
		hosted.KV.HostPages, hosted.Uses = 64, 1
		table.add(fmt.Sprintf("attend/pages/%v hosted", f), Budget{240, 64 << 10}, hosted.Calls(t))
	}
	hosted := kv
	hosted.HostPages, hosted.Summarized = 64, true
	table.add("attend/f16/T=1 hosted", wide, (&Attend{Rows: rows, KV: hosted, Heads: 32, Scale: 0.1, Capacity: 8192, Q: 1, Out: 1, Scratch: 256, Turn: rope}).Calls(t))
	table.add("attend/f16/T=512 hosted", Budget{256, 64 << 10}, (&Attend{Rows: prompt, KV: hosted, Heads: 32, Scale: 0.1, Capacity: 8192, Q: 1, Out: 1, Scratch: 256, Reaches: []Reach{{Last: 8191}}}).Calls(t))
	table.add("move", small, (&MovePages{Planes: 1, Count: 1, Pages: 1, Moves: 1, N: 1}).Calls(t))
	summarized := kv
	summarized.Summarized = true
	table.add("attend/blocks", Budget{256, 64 << 10}, (&PromptFollow{Attend: Attend{Rows: prompt, KV: summarized, Heads: 32, Scale: 0.1, Capacity: 8192, Q: 1, Out: 1}, Chosen: []ChosenRows{{Blocks: 8}}, Shares: 1, Counts: 1, Work: 256}).Calls(t))
	table.add("summarize", Budget{128, 16 << 10}, (&Summarize{KV: kv, Table: 1, Count: 1}).Calls(t))
	table.add("activate", small, (&Activate{Act: ops.SiLU, N: inner, Gate: 1, Up: 1, Out: 1}).Calls(t))
	table.add("weigh", small, (&Weigh{T: 1, D: d, TopK: 1, X: 1, Share: 1, Out: 1}).Calls(t))
	table.add("xielu", small, (&XIELU{N: inner, X: 1}).Calls(t))
	table.add("activate/limited", small, (&Activate{Act: ops.SiLU, Gating: limited(), N: inner, Gate: 1, Up: 1, Out: 1}).Calls(t))
	delta := Delta{Rows: rows, Sequences: 1, Heads: 32, KeyHeads: 16, KeyDim: 128, ValueDim: 128, Kernel: 4, Eps: 1e-6, Conv: 1, Decay: 1, DTBias: 1, DecayLog: true,
		Norm: rms, Mixed: 1, Beta: 1, Alpha: 1, Z: 1, Turned: 1, Out: 1, Gate: 1, Places: 1, Memory: 256, Apart: 4096, Few: true}
	table.add("delta", wide, delta.Calls(t))
	delta.Settled = true
	table.add("delta/T=1", wide, delta.Calls(t)[1:])
	delta.Settled = false
	delta.Few, delta.Rows = false, prompt
	table.add("delta/T=512", wide, delta.Calls(t))
	delta.KeyHeads, delta.ByChannel, delta.Sigmoid = 32, true, true
	table.add("delta/channels/T=512", wide, delta.Calls(t))
	delta.Few, delta.Rows = true, rows
	table.add("delta/channels", wide, delta.Calls(t))
	space := Mamba{Rows: rows, Sequences: 1, Heads: 128, Groups: 1, Dim: 64, State: 128, Kernel: 4, Most: 1, Conv: 1, Bias: 1, Decay: 1, DTBias: 1, DecayLog: true, Skip: 1,
		Norm: rms, Mixed: 1, DT: 1, Z: 1, Turned: 1, Gate: 1, Places: 1, Memory: 256, Apart: 4096}
	table.add("mamba", wide, space.Calls(t))
	short := ShortConv{Rows: rows, Sequences: 1, Channels: d, Kernel: 3, Conv: 1, In: 1, Out: 1, Places: 1, Memory: 256, Apart: 4096, Few: true}
	table.add("shortconv", small, short.Calls(t))
	short.Few, short.Rows = false, prompt
	table.add("shortconv/T=512", small, short.Calls(t))
	table.add("activate/opens", small, (&Activate{OutGate: true, N: inner, Gate: 1, Up: 1, Out: 1}).Calls(t))
	table.add("softcap", small, (&SoftCap{N: 256000, X: 1, Limit: 30}).Calls(t))
	table.add("route", small, (&Route{T: 1, Experts: 64, TopK: 8, Logits: 1, Chosen: 1, Share: 1, Slots: 1, First: 1}).Calls(t))
	table.add("route/general", small, (&Route{T: 1, Experts: 256, TopK: 8, Logits: 1, Chosen: 1, Share: 1, Normalize: true, Score: ScoreSigmoid, Bias: 1,
		Groups: 8, TopGroups: 4, GroupBest: 2, Epsilon: 1e-20, Scale: 2.5}).Calls(t))
	table.add("combine/shared", small, (&Combine{T: 1, D: d, TopK: 8, Parts: 1, Chosen: 1, Share: 1, Out: 1, Shared: 1, Gate: 1}).Calls(t))
	table.add("combine", small, (&Combine{T: 1, D: d, TopK: 8, Parts: 1, Chosen: 1, Share: 1, Out: 1}).Calls(t))
	table.add("combine/some", small, (&Combine{T: 1, D: d, TopK: 8, Parts: 1, Chosen: 1, Share: 1, Out: 1, Some: true}).Calls(t))
	table.add("here", small, (&Here{N: 8, Chosen: 1, Place: 1, Local: 1, Order: 1}).Calls(t))
	gram := Budget{168, 8 << 10}
	if t.Wave == 64 { // two waves of a SIMD of CDNA have 256 each, and a lane's 64 sums keep one busy
		gram.Registers = 256
	}
	table.add("gram", gram, (&Gram{T: 2048, K: d, X: 16, Sums: 16, Top: 16, Odd: 16, Tile: 64}).Calls(t))
	table.add("gram/128", gram, (&Gram{T: 2048, K: inner, X: 16, Sums: 16, Top: 16, Odd: 16, Tile: 128}).Calls(t))
	table.add("gram/experts", gram, (&Gram{T: 2048, K: d, X: 16, Sums: 16, Top: 16, Odd: 16, Tile: 64, First: 16, Slots: 16, Stack: 8, Share: 2, Counts: 16}).Calls(t))
	ranks := &Ranks{Count: 2, FewSlot: 16 * 128256, ManySlot: 2048 * d}
	few, many, half := Exchange{Ranks: ranks}, Exchange{Ranks: ranks, Many: true}, Exchange{Ranks: ranks, Many: true, Half: true}
	left := half
	left.Left = true
	table.add("exchange", small, (&AllReduce{Exchange: few, T: 1, D: d, Out: 1, Residual: 1, Own: 1}).Calls(t))
	table.add("exchange/many", small, (&AllReduce{Exchange: many, T: 2048, D: d, Out: 1, Residual: 1, Own: 1}).Calls(t))
	table.add("exchange/many/half", small, (&AllReduce{Exchange: half, T: 2048, D: d, Out: 1, Residual: 1, Own: 1}).Calls(t))
	table.add("exchange/send", small, (&Send{Exchange: few, T: 1, D: d, Own: 1, Residual: 1}).Calls(t))
	table.add("exchange/gather", small, (&AllGather{Exchange: few, T: 1, Units: 2004, Unit: 64, Out: 1, Own: 1}).Calls(t))
	table.add("exchange/meet", small, (&Meet{left}).Calls(t))
	for i, x := range []*Exchange{&few, &many, &half, &left} {
		table.add("norm/"+[]string{"few", "many", "half", "left"}[i], small, (&Norm{T: 1, D: d, X: 1, A: Branch{Rows: 1, From: x}, Next: rms, Out: 1}).Calls(t))
	}
	table.add("norm/halves", small, (&Norm{T: 512, D: d, X: 1, A: Branch{Rows: 1}, Next: rms, Halves: 256}).Calls(t))
	partNorm := &RankNorm{T: 1, D: d, Width: 2 * d, X: 1, Norm: rms, Sums: 1, Stride: 1, Columns: 1}
	table.add("ranknorm", small, append(RankSquares{partNorm}.Calls(t), partNorm.Calls(t)...))
	table.add("exchange/end", small, (&EndExchanges{ranks, 65}).Calls(t))
	table.add("sample", wide, (&Sample{Rows: rows, Vocab: 128256, Logits: 1, Token: 1, Options: 1, Seeds: 1, History: 1, Stride: 8192, Scratch: 256}).Calls(t))
	table.add("advance", small, (&Advance{Rows: rows, Token: 1, Next: 1, History: 1, Stride: 8192, Output: 1, Steps: 1, Ring: 64}).Calls(t))
	table.add("resume", small, (&Resume{Rows: rows, Token: 1, History: 1, Stride: 8192}).Calls(t))
	table.add("quantize", small, (&Quantize{X: 1, Acts: Acts{Data: 16, T: 1, K: d}}).Calls(t))
	table.add("quantize/16", small, (&Quantize{X: 1, Acts: Acts{Data: 16, T: 1, K: d, Fine: true}}).Calls(t))
	for _, s := range scheme.Table() {
		table.scheme(s)
	}
	table.trellis(d, inner)
	table.forms(d, inner)
	return table.list
}

// kernelTable is the table in the making.
type kernelTable struct {
	t    Target
	list []Kernel
}

func (k *kernelTable) add(name string, b Budget, calls []Call) {
	for i, c := range calls {
		n := name
		if i > 0 {
			n = fmt.Sprintf("%s/%d", name, i+1)
		}
		k.list = append(k.list, Kernel{Name: n, Call: c, Budget: b})
	}
}

// limited is gpt-oss' gate.
func limited() ops.Gating { return ops.Gating{Alpha: 1.702, Limit: 7, Offset: 1} }

// usualParams are parameters of the schemes that have some.
func usualParams(s *scheme.Scheme) map[string]int64 {
	switch s.Name {
	case "affine":
		return map[string]int64{"bits": 4, "group": 128, "scale": 2, "zero": 9}
	case "fp8":
		return map[string]int64{"rows": 128, "cols": 128, "scale": 3}
	case "nf4":
		return map[string]int64{"block": 64}
	case "tcq":
		return map[string]int64{"bits": 3, "codebook": 1, "rotate_in": 128, "rotate_out": 128, "seed": 0}
	}
	return nil
}

// scheme adds the products of one scheme. Plain types that no model's matrices
// have are left out.
func (k *kernelTable) scheme(s *scheme.Scheme) {
	if s.Plain() && s.Name != "f32" && s.Name != "f16" && s.Name != "bf16" {
		return
	}
	const d, inner = 4096, 14336
	params := usualParams(s)
	f, err := FormatOf(s, params, d)
	if err != nil { // no kernel reads it
		return
	}
	w := Weight{Format: f, N: inner, K: d, Data: 256}
	b := Budget{128, 64 << 10}
	k.product("matvec/"+s.Name+"/T=1", b, s, params, &Matvec{T: 1, X: 1, Acts: Acts{Data: 16, T: 1, K: d}, Fine: Acts{Data: 16, T: 1, K: d}, Products: []Product{{W: w, Y: 1}}})
	exact := b
	if s.Name == "iq1_m" && k.t.Wave == 64 {
		// Three waves of a SIMD, not four. Arithmetic bounds it: a weight of 0.22 bytes
		// takes more than 8 turns of a lane, where an MI300X has 1.7 in the time of
		// its bytes, and three waves keep a SIMD busy.
		exact.Registers = 136
	}
	k.product("matvec/"+s.Name+"/T=1 exact", exact, s, params, &Matvec{T: 1, X: 1, Exact: true, Products: []Product{{W: w, Y: 1}}})
	embed := Budget{64, 32 << 10}
	if f.Rotated() {
		embed.Registers = 112
	}
	k.add("embed/"+s.Name, embed, (&Embed{T: 1, Table: w, Token: 1, Scale: 1, Y: 1}).Calls(k.t))
	if f.Decodes() == nil {
		decode := Budget{96, 48 << 10}
		if f.Rotated() { // 64 numbers of a lane at once
			decode.Registers = 168
		}
		k.add("decode/"+s.Name, decode, (&Decode{Format: f, Type: tensor.BF16, N: inner, K: d, Y: 16, From: 16, Table: 16, D: 16, M: 16, Units: 16}).Calls(k.t))
	}
	k.add("matmul/"+s.Name+"/T=512", Budget{512, k.t.LDS}, (&Matmul{T: 512, X: 1, Scratch: 256, Products: []Product{{W: w, Y: 1}}}).Calls(k.t))
	if s.Name == "q4_k" {
		k.add("matmul/q4_k/T=512 gated limited", Budget{512, k.t.LDS}, (&Matmul{T: 512, X: 1, Scratch: 256, Gated: true, Act: ops.SiLU, Gating: limited(), Products: []Product{{W: w, Y: 1}, {W: w}}}).Calls(k.t))
	}
	if f.BlockBytes() > 0 && s.Name == "q4_k" {
		k.add("arrange", Budget{64, 32 << 10}, (&Arrange{Format: f, Rows: inner, K: d, Count: 1024, From: 1, Table: 16, To: 256}).Calls(k.t))
	}
	if f.integer && k.t.Matrix() != NoMatrix {
		// A lane's sums are of 32 rows and some parts of a row of weights.
		many := Budget{256, k.t.LDS}
		acts := Acts{Data: 16, T: 32, K: d}
		k.add("matrows/"+s.Name+"/T=32", many, (&Matvec{T: 32, X: 1, Acts: acts, Fine: acts, Products: []Product{{W: w, Y: 1}}}).Calls(k.t))
		if s.Name == "q4_k" {
			k.add("matrows/q4_k/T=16", many, (&Matvec{T: 16, X: 1, Acts: acts, Products: []Product{{W: w, Y: 1}}}).Calls(k.t))
			if k.t.Matrix() == MMA { // of as many rows as fit the least LDS
				k.add("matrows/q4_k/T=8 by codes", many, (&Matvec{T: 8, X: 1, Acts: Acts{Data: 16, T: 8, K: d}, Shape: &MatvecShape{Depth: 3, Waves: 8, Split: 4}, Products: []Product{{W: w, Y: 1}}}).Calls(k.t))
			}
			k.add("matrows/q4_k/T=32 gated", many, (&Matvec{T: 32, X: 1, Acts: acts, Gated: true, Act: ops.SiLU, Products: []Product{{W: w, Y: 1}, {W: w}}}).Calls(k.t))
		}
	}
	if s.Name != "q4_k" && s.Name != "q8_0" {
		return
	}
	k.product("matvec/"+s.Name+"/T=4", b, s, params, &Matvec{T: 4, X: 1, Acts: Acts{Data: 16, T: 4, K: d}, Fine: Acts{Data: 16, T: 4, K: d}, Products: []Product{{W: w, Y: 1}}})
	k.product("matvec/"+s.Name+"/T=8", b, s, params, &Matvec{T: 8, X: 1, Acts: Acts{Data: 16, T: 8, K: d}, Fine: Acts{Data: 16, T: 8, K: d}, Products: []Product{{W: w, Y: 1}}})
	q, kv := w, w
	q.N, kv.N = d, 1024
	// What is rounded in groups of 16 is normalised and rounded by other launches,
	// but for one row on CUDA.
	normed := func(rows int, o Matvec) *Matvec {
		o.T, o.X = rows, 1
		if f.fine && (rows > 1 || k.t.API == HIP) {
			o.Fine = Acts{Data: 16, T: rows, K: d}
		} else {
			o.Norm = Normal{Weight: 1, Eps: 1e-5}
		}
		return &o
	}
	k.product("matvec/"+s.Name+"/norm", b, s, params, normed(1, Matvec{Products: []Product{{W: q, Y: 1}, {W: kv, Y: 1}, {W: kv, Y: 1}}}))
	k.product("matvec/"+s.Name+"/gated", b, s, params, normed(1, Matvec{Gated: true, Act: ops.SiLU,
		Rounded: Acts{Data: 16, T: 1, K: inner}, Products: []Product{{W: w}, {W: w}}}))
	k.product("matvec/"+s.Name+"/gated limited", b, s, params, normed(1, Matvec{Gated: true, Act: ops.SiLU, Gating: limited(),
		Rounded: Acts{Data: 16, T: 1, K: inner}, Products: []Product{{W: w}, {W: w}}}))
	k.product("matvec/"+s.Name+"/experts", b, s, params, &Matvec{T: 8, X: 1, Fine: Acts{Data: 16, T: 1, K: d}, Experts: 1, Stack: 64, Share: 8, Gated: true, Act: ops.SiLU,
		Rounded: Acts{Data: 16, T: 8, K: inner}, Products: []Product{{W: w}, {W: w}}})
	if s.Name == "q4_k" {
		k.ranks(b, s, params, w, q, kv)
	}
	for _, rows := range []int{2, 4, 8} { // several sequences at once
		b := b
		if rows == 8 && k.t.Wave == 64 && k.t.Arch != "gfx908" {
			// 40 KiB of activations leave a CU of CDNA one block of 8 waves, two of a
			// SIMD, and two waves have 256 of its 512 registers each.
			b.Registers = 256
		}
		k.product(fmt.Sprintf("matvec/%s/norm T=%d", s.Name, rows), b, s, params, normed(rows, Matvec{Products: []Product{{W: q, Y: 1}, {W: kv, Y: 1}, {W: kv, Y: 1}}}))
		if rows == 8 && k.t.Matrix() == MMA {
			b = Budget{256, k.t.LDS} // matrows.hip's, which has q4_k there
		}
		k.product(fmt.Sprintf("matvec/%s/gated T=%d", s.Name, rows), b, s, params, &Matvec{T: rows, X: 1, Acts: Acts{Data: 16, T: rows, K: d}, Fine: Acts{Data: 16, T: rows, K: d}, Gated: true, Act: ops.SiLU,
			Rounded: Acts{Data: 16, T: rows, K: inner}, Products: []Product{{W: w, Y: 1}, {W: w}}})
	}
}

// ranks adds products that send to other ranks, or add up what those sent.
func (k *kernelTable) ranks(b Budget, s *scheme.Scheme, params map[string]int64, w, q, kv Weight) {
	ranks := &Ranks{Count: 2, FewSlot: 64 * w.N, ManySlot: 512 * w.N}
	few, half := &Exchange{Ranks: ranks}, &Exchange{Ranks: ranks, Many: true, Half: true}
	norm := Normal{Weight: 1, Eps: 1e-5}
	k.product("matvec/q4_k/sent", b, s, params, &Matvec{T: 1, X: 1, Send: few, Products: []Product{{W: q, Y: 1}}})
	k.product("matvec/q4_k/norm of ranks", b, s, params, &Matvec{T: 1, X: 1, Norm: norm, From: few, Settled: 1, Products: []Product{{W: q, Y: 1}, {W: kv, Y: 1}, {W: kv, Y: 1}}})
	k.product("matvec/q4_k/gated of ranks", b, s, params, &Matvec{T: 1, X: 1, Norm: norm, From: few, Settled: 1, Gated: true, Act: ops.SiLU, Products: []Product{{W: w, Y: 1}, {W: w}}})
	left := *half
	left.Left = true
	k.add("matmul/q4_k/T=512 sent", Budget{512, k.t.LDS}, (&Matmul{T: 512, X: 1, Scratch: 256, Send: half, Products: []Product{{W: w, Y: 1}}}).Calls(k.t))
	k.add("matmul/q4_k/T=512 left", Budget{512, k.t.LDS}, (&Matmul{T: 512, X: 1, Scratch: 256, Send: &left, Products: []Product{{W: w, Y: 1}}}).Calls(k.t))
}

// trellis adds trellis codes of the other numbers of bits, and their rotations.
func (k *kernelTable) trellis(d, inner int) {
	s, _ := scheme.ByName("tcq")
	params := usualParams(s)
	var w Weight
	for _, bits := range []int64{2, 4, 5, 6} {
		params["bits"] = bits
		f, err := FormatOf(s, params, int64(d))
		if err != nil {
			panic("hip: " + err.Error())
		}
		w = Weight{Format: f, N: inner, K: d, Data: 256}
		for _, rows := range []int{1, 4} {
			k.product(fmt.Sprintf("matvec/tcq%d/T=%d", bits, rows), Budget{256, k.t.LDS}, s, params,
				&Matvec{T: rows, X: 1, Acts: Acts{Data: 16, T: rows, K: d}, Products: []Product{{W: w, Y: 1}}})
		}
	}
	for _, bits := range []int{2, 3, 4, 5, 6} {
		k.add(fmt.Sprintf("trellis/%d", bits), Budget{256, 40 << 10}, (&TrellisSearch{Bits: bits, Codebook: scheme.TCQCodebookFor(bits), Deviation: 147.7, Seam: 128,
			Tiles: 4096, Z: 1, Codes: 1, Scratch: 256, Blocks: k.t.Units}).Calls(k.t))
	}
	m := TrellisMatrix{Bits: 3, Codebook: scheme.TCQCodebookFor(3), N: d, K: inner, W: 1, Units: 1, Codes: 256, Z: 1, Owed: 256}
	p := TrellisPanel{To: 128, Width: 128, Behind: 256, Within: 256}
	k.add("trellis/answer", Budget{160, 20 << 10}, []Call{m.Owe(p), m.Aim(p, 1), m.Miss(1)})
	next := w
	next.N, next.K = d, inner
	rotate := Rotate{T: 1, X: 1, From: w, Gate: true, Act: ops.SiLU, Up: 1, UpFrom: w, To: next, Acts: Acts{Data: 16, T: 1, K: inner}}
	k.add("rotate", Budget{64, 16 << 10}, rotate.Calls(k.t))
	rotate.Gating = limited()
	k.add("rotate/limited", Budget{64, 16 << 10}, rotate.Calls(k.t))
}

// forms adds what tensors of several factors need beside products.
func (k *kernelTable) forms(d, inner int) {
	small := Budget{80, 32 << 10}
	const rank = 64
	for _, name := range []string{"q8_0", "q4_k", "bf16"} {
		s, _ := scheme.ByName(name)
		columns := rank
		if s.Block > rank {
			columns = s.Block
		}
		f, err := FormatOf(s, nil, int64(columns))
		if err != nil {
			panic("hip: " + err.Error())
		}
		thin := func(n int) ThinProduct {
			return ThinProduct{Product{W: Weight{Format: f, N: n, K: columns, Data: 256}, Y: 1, Residual: 1}, 16}
		}
		k.add("thin/"+name+"/T=1", small, (&Thin{T: 1, Products: []ThinProduct{thin(d), thin(1024), thin(1024)}}).Calls(k.t))
		k.add("thin/"+name+"/gated", small, (&Thin{T: 1, Gated: true, Act: ops.SiLU, Products: []ThinProduct{thin(inner), thin(inner)}}).Calls(k.t))
		k.add("thin/"+name+"/gated limited", small, (&Thin{T: 1, Gated: true, Act: ops.SiLU, Gating: limited(), Products: []ThinProduct{thin(inner), thin(inner)}}).Calls(k.t))
		k.add("thin/"+name+"/T=8", Budget{128, 32 << 10}, (&Thin{T: 8, Products: []ThinProduct{thin(d)}}).Calls(k.t))
	}
	k.thinTCQ(d, inner, rank)
	k.corrected(d, inner, rank)
	k.add("mix", small, (&Mix{T: 2, Experts: 1, Share: 2, B: 4, N: inner, Z: 1, C: 1, Y: 1}).Calls(k.t))
	k.add("digits", small, (&Digits{T: 1, Rows: []int{32, 32, 32}, Token: 1, Digits: 1}).Calls(k.t))
	k.add("contract", Budget{128, 32 << 10}, (&Contract{T: 1, I: 32, L: 16, Q: rank * 16, V: 32, S: rank, A: 1, B: 1, C: 1, Same: true}).Calls(k.t))
	k.add("contract/last", Budget{128, 32 << 10}, (&Contract{T: 1, I: 1024, L: 1, Q: rank * 16, V: 32, S: 1, A: 1, B: 1, C: 1, Same: true}).Calls(k.t))
	k.add("contract/lookup", Budget{128, 32 << 10}, (&Contract{T: 1, I: 16, L: 1, Q: rank, V: 1, S: 16 * rank, A: 1, B: 1, C: 1, Rounded: true, Scale: 1}).Calls(k.t))
}

// corrected adds products with corrections.
func (k *kernelTable) corrected(d, inner, rank int) {
	s, _ := scheme.ByName("q4_k")
	thin, _ := scheme.ByName("q8_0")
	f, err := FormatOf(s, nil, int64(d))
	if err != nil {
		panic("hip: " + err.Error())
	}
	a, err := FormatOf(thin, nil, int64(rank))
	if err != nil {
		panic("hip: " + err.Error())
	}
	product := func(n int) Product {
		return Product{W: Weight{Format: f, N: n, K: d, Data: 256}, Y: 1, A: Weight{Format: a, N: n, K: rank, Data: 256}, Z: 16}
	}
	b, norm := Budget{144, 64 << 10}, Normal{Weight: 1, Eps: 1e-5}
	k.product("matvec/q4_k/corrected", b, s, nil, &Matvec{T: 1, X: 1, Norm: norm, Products: []Product{product(d), product(1024), product(1024)}})
	k.product("matvec/q4_k/corrected gated", b, s, nil, &Matvec{T: 1, X: 1, Norm: norm, Gated: true, Act: ops.SiLU, Products: []Product{product(inner), product(inner)}})
	b.Registers = 160
	k.product("matvec/q4_k/corrected T=4", b, s, nil, &Matvec{T: 4, X: 1, Acts: Acts{Data: 16, T: 4, K: d}, Products: []Product{product(d)}})
}

// thinTCQ adds second steps of the scheme tcq.
func (k *kernelTable) thinTCQ(d, inner, rank int) {
	s, _ := scheme.ByName("tcq")
	for _, bits := range []int64{2, 3, 4} {
		params := usualParams(s)
		params["bits"] = bits
		codes, err := FormatOf(s, params, int64(d))
		if err != nil {
			panic("hip: " + err.Error())
		}
		params["rotate_in"], params["rotate_out"] = int64(rank), 128
		f, err := FormatOf(s, params, int64(rank))
		if err != nil {
			panic("hip: " + err.Error())
		}
		thin := func(n int) ThinRotated {
			w := Weight{Format: f, N: n, K: rank, Data: 256}
			return ThinRotated{Product{W: w, Y: 1, Residual: 1}, 16, Weight{Format: f, N: rank, K: d, Data: 256}, 16, Weight{Format: codes, N: n, K: d, Data: 256}}
		}
		name := fmt.Sprintf("thin/tcq%d/", bits)
		k.add(name+"T=1", Budget{128, 32 << 10}, (&ThinTCQ{T: 1, Products: []ThinRotated{thin(d), thin(1024), thin(1024)}}).Calls(k.t))
		k.add(name+"gated", Budget{160, 32 << 10}, (&ThinTCQ{T: 1, Gated: true, Act: ops.SiLU, Products: []ThinRotated{thin(inner), thin(inner)},
			To: Weight{Format: codes, N: d, K: inner, Data: 256}, Acts: Acts{Data: 16, T: 1, K: inner}}).Calls(k.t))
		k.add(name+"gated limited", Budget{160, 32 << 10}, (&ThinTCQ{T: 1, Gated: true, Act: ops.SiLU, Gating: limited(), Products: []ThinRotated{thin(inner), thin(inner)},
			To: Weight{Format: codes, N: d, K: inner, Data: 256}, Acts: Acts{Data: 16, T: 1, K: inner}}).Calls(k.t))
		k.add(name+"T=8", Budget{160, 32 << 10}, (&ThinTCQ{T: 8, Products: []ThinRotated{thin(d)}}).Calls(k.t))
	}
}

// product adds a matvec with what its loop does.
func (k *kernelTable) product(name string, b Budget, s *scheme.Scheme, params map[string]int64, o *Matvec) {
	w := &o.Products[0].W
	from := len(k.list)
	k.add(name, b, o.Calls(k.t))
	bpw, err := s.BPW([]int64{int64(w.N), int64(w.K)}, params)
	if err != nil {
		panic("hip: " + err.Error())
	}
	for i := range k.list[from:] {
		k.list[from+i].Product, k.list[from+i].BytesPerWeight = o, bpw/8
	}
}
