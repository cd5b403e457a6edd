package exec

import "github.com/nstf/nstf/formats/graph"

func tinies() []tiny {
	rms := shape{d: 24, heads: 4, kv: 2, dim: 10, inner: 33, norm: graph.RMSNorm}
	layer := shape{d: 24, heads: 3, kv: 3, dim: 8, inner: 40, norm: graph.LayerNorm, bias: true}
	both := func(g *graph.Graph, f func(b *graph.Block)) {
		for i := range g.Blocks {
			f(&g.Blocks[i])
		}
	}
	return []tiny{
		{"grouped queries", rms.graph(func(g *graph.Graph) {})},
		{"one key-value head, window", shape{d: 20, heads: 5, kv: 1, dim: 6, inner: 17, norm: graph.RMSNorm}.graph(func(g *graph.Graph) {
			g.Blocks[0].Attn.Window = 1
			g.Blocks[1].Attn.Window = 70
		})},
		{"parallel, one norm, partial interleaved rotation", layer.graph(func(g *graph.Graph) {
			g.Ropes[0] = graph.Rope{Style: graph.RopeInterleaved, Dim: 4, Theta: 50, Scaling: graph.RopeScaling{Kind: graph.ScaleLinear, Factor: 2}}
			both(g, func(b *graph.Block) {
				b.Parallel, b.FFNNorm, b.FFN.Gate, b.FFN.Act = true, nil, nil, graph.GELUTanh
			})
		})},
		{"parallel, two norms, post norms", layer.graph(func(g *graph.Graph) {
			both(g, func(b *graph.Block) {
				b.Parallel, b.FFN.Act = true, graph.GELU
				b.AttnPostNorm, b.FFNPostNorm = layer.newNorm(b.Attn.Q.Weight+"ap"), layer.newNorm(b.Attn.Q.Weight+"fp")
			})
		})},
		{"learned positions, tied head, no rotation", layer.graph(func(g *graph.Graph) {
			g.Ropes, g.Embed.Positions, g.Head.Weight = nil, "positions", "table"
			both(g, func(b *graph.Block) { b.Attn.Rope, b.FFN.Gate, b.FFN.Act = -1, nil, graph.ReLU })
		})},
		{"offsets, soft caps, post norms, embedding scale", rms.graph(func(g *graph.Graph) {
			g.Embed.Scale, g.Head.Softcap, g.Norm.Offset = 4.5, 2, 1
			both(g, func(b *graph.Block) {
				b.Attn.Softcap, b.FFN.Act, b.AttnNorm.Offset = 0.8, graph.GELUTanh, 1
				b.AttnPostNorm, b.FFNPostNorm = rms.newNorm(b.Attn.Q.Weight+"ap"), rms.newNorm(b.Attn.Q.Weight+"fp")
			})
			g.Blocks[0].Attn.Window = 9
		})},
		{"query and key norms, two rotations", rms.graph(func(g *graph.Graph) {
			g.Ropes = append(g.Ropes, graph.Rope{Style: graph.RopeHalf, Dim: 6, Theta: 1000, Scaling: graph.RopeScaling{Kind: graph.ScaleYarn, Factor: 4, Original: 16, BetaFast: 2, BetaSlow: 0.5, Attention: 1.2}})
			g.Blocks[1].Attn.Rope = 1
			both(g, func(b *graph.Block) {
				b.Attn.QNorm, b.Attn.KNorm = rms.newNorm(b.Attn.Q.Weight+"n"), rms.newNorm(b.Attn.K.Weight+"n")
				b.FFN.Act = graph.GELUQuick
			})
		})},
		{"mixtures", rms.graph(func(g *graph.Graph) {
			rms.moe(g, 0, 5, 2, true)
			rms.moe(g, 1, 4, 3, false)
		})},
		{"mixture with biases beside a plain layer, parallel", layer.graph(func(g *graph.Graph) {
			layer.moe(g, 1, 3, 1, false)
			both(g, func(b *graph.Block) { b.Parallel = true })
		})},
		{"sinks", rms.graph(func(g *graph.Graph) {
			both(g, func(b *graph.Block) { b.Attn.Sinks = b.Attn.Q.Weight + "sinks" })
			g.Blocks[0].Attn.Window = 9
		})},
		{"sinks and soft caps, one key-value head", shape{d: 20, heads: 5, kv: 1, dim: 6, inner: 17, norm: graph.RMSNorm}.graph(func(g *graph.Graph) {
			g.Blocks[1].Attn.Sinks, g.Blocks[1].Attn.Softcap = "sinks", 0.8
		})},
		{"experts by sigmoid, groups by two, a shared layer", rms.graph(func(g *graph.Graph) {
			rms.moe(g, 0, 8, 3, true)
			m := rms.shared(g, 0, 50, true)
			m.Score, m.SelectBias, m.Groups, m.TopGroups, m.Epsilon, m.Scale = graph.ScoreSigmoid, "bias", 4, 2, 0.01, 2.5
			rms.moe(g, 1, 6, 2, false)
			m = g.Blocks[1].MoE
			m.Score, m.SelectBias, m.Gate = graph.ScoreSigmoid, "bias 1", nil
		})},
		{"experts by softmax, groups by one, a shared layer alone", layer.graph(func(g *graph.Graph) {
			layer.moe(g, 0, 9, 4, false)
			m := layer.shared(g, 0, 16, false)
			m.Groups, m.TopGroups, m.GroupBest, m.Scale = 3, 2, 1, 4
			layer.moe(g, 1, 8, 3, true)
			m = g.Blocks[1].MoE
			m.Score, m.SelectBias, m.Groups, m.TopGroups, m.ZeroMasked = graph.ScoreSigmoid, "bias", 4, 2, true
			both(g, func(b *graph.Block) { b.Parallel, b.FFNNorm = true, nil })
		})},
		{"experts by root, and softmax over the chosen", rms.graph(func(g *graph.Graph) {
			rms.moe(g, 0, 6, 2, true)
			m := rms.shared(g, 0, 33, false)
			m.Score, m.Floor, m.Act = graph.ScoreRoot, 3, graph.ReLU
			rms.moe(g, 1, 5, 3, false)
			g.Blocks[1].MoE.Score, g.Blocks[1].MoE.SelectBias = graph.ScoreSelected, "bias"
		})},
		{"output gates", rms.graph(func(g *graph.Graph) {
			rms.gate(g, 0)
			rms.gate(g, 1)
			g.Blocks[0].Attn.Window = 9
		})},
		{"gated delta net, gated attention", rms.graph(func(g *graph.Graph) {
			rms.delta(g, 0, graph.Delta{Heads: 2, KeyHeads: 2, KeyDim: 8, ValueDim: 8, Kernel: 4, DecayLog: true})
			rms.gate(g, 1)
		})},
		{"gated delta nets, the last of them tiled, of odd sizes", rms.graph(func(g *graph.Graph) {
			rms.delta(g, 0, graph.Delta{Heads: 6, KeyHeads: 2, KeyDim: 5, ValueDim: 7, Kernel: 3, DecayLog: true})
			rms.delta(g, 1, graph.Delta{Heads: 4, KeyHeads: 2, KeyDim: 10, ValueDim: 20, Kernel: 1, Tiled: true}).Z.Bias = "zb"
		})},
		{"delta nets that fade by the channel, gated by sigmoid", rms.graph(func(g *graph.Graph) {
			rms.reduced(rms.delta(g, 0, graph.Delta{Heads: 2, KeyHeads: 2, KeyDim: 8, ValueDim: 8, Kernel: 4, DecayLog: true, ByChannel: true, SigmoidGate: true}), 8, 8)
			n := rms.delta(g, 1, graph.Delta{Heads: 4, KeyHeads: 2, KeyDim: 5, ValueDim: 19, Kernel: 2, ByChannel: true, Tiled: true})
			rms.reduced(n, 0, 3)
			n.AlphaA.Bias = "aab"
		})},
		{"parallel delta nets with biases, mixture", layer.graph(func(g *graph.Graph) {
			layer.moe(g, 1, 3, 1, false)
			layer.shared(g, 1, 16, true)
			both(g, func(b *graph.Block) { b.Parallel = true })
			for i := range g.Blocks {
				n := layer.delta(g, i, graph.Delta{Heads: 3, KeyHeads: 1, KeyDim: 16, ValueDim: 33, Kernel: 5, DecayLog: i > 0})
				n.Norm.Kind, n.Norm.Bias = graph.RMSNorm, ""
			}
		})},
		{"short convolution, attention", rms.graph(func(g *graph.Graph) {
			rms.shortConv(g, 0, 24, 3)
		})},
		{"short convolutions with biases and of odd sizes, parallel, mixture", layer.graph(func(g *graph.Graph) {
			layer.shortConv(g, 0, 19, 5).ConvBias = "0.c.conv bias"
			layer.shortConv(g, 1, 33, 1)
			layer.moe(g, 1, 3, 1, false)
			both(g, func(b *graph.Block) { b.Parallel = true })
		})},
		{"state space, attention", rms.graph(func(g *graph.Graph) {
			rms.mamba(g, 0, graph.Mamba{Heads: 4, HeadDim: 8, Groups: 1, State: 16, Kernel: 4, DecayLog: true})
		})},
		{"state spaces of odd sizes and with limits", rms.graph(func(g *graph.Graph) {
			n := rms.mamba(g, 0, graph.Mamba{Heads: 6, HeadDim: 5, Groups: 3, State: 7, Kernel: 3, MinStep: 0.3, MaxStep: 1.5, DecayLog: true})
			n.Norm.Offset = 1
			n = rms.mamba(g, 1, graph.Mamba{Heads: 2, HeadDim: 33, Groups: 2, State: 20, Kernel: 1})
			n.Norm, n.ConvBias, n.Z.Bias = nil, "", "zb"
		})},
		{"state spaces with biases, parallel, mixture", layer.graph(func(g *graph.Graph) {
			layer.mamba(g, 0, graph.Mamba{Heads: 3, HeadDim: 16, Groups: 1, State: 12, Kernel: 5, MaxStep: 0.5, DecayLog: true})
			layer.delta(g, 1, graph.Delta{Heads: 3, KeyHeads: 1, KeyDim: 16, ValueDim: 33, Kernel: 5}).Norm = &graph.Norm{Kind: graph.RMSNorm, Weight: "1.d.norm", Eps: 1e-5}
			layer.moe(g, 1, 3, 1, false)
			both(g, func(b *graph.Block) { b.Parallel = true })
		})},
		{"latent attention, queries from a latent and not", rms.graph(func(g *graph.Graph) {
			g.Ropes[0] = graph.Rope{Style: graph.RopeInterleaved, Dim: 6, Theta: 50, Scaling: graph.RopeScaling{Kind: graph.ScaleYarn, Factor: 4, Original: 32, BetaFast: 32, BetaSlow: 1, Truncate: true, Attention: 1.2}}
			rms.latent(g, 0, 14, graph.Latent{Heads: 3, NopeDim: 9, RopeDim: 6, ValueDim: 7, Rank: 20})
			rms.latent(g, 1, 0, graph.Latent{Heads: 14, NopeDim: 4, RopeDim: 6, ValueDim: 20, Rank: 13})
		})},
		{"latent attention with biases, none rotated, behind a delta net and attention", layer.graph(func(g *graph.Graph) {
			layer.more(g, 1, func(int, *graph.Block) {})
			n := layer.delta(g, 0, graph.Delta{Heads: 3, KeyHeads: 1, KeyDim: 16, ValueDim: 33, Kernel: 5, DecayLog: true})
			n.Norm.Kind, n.Norm.Bias = graph.RMSNorm, ""
			layer.latent(g, 2, 8, graph.Latent{Heads: 2, NopeDim: 16, RopeDim: 2, ValueDim: 16, Rank: 16, Rope: -1})
			layer.moe(g, 2, 3, 2, true)
			g.Blocks[2].Parallel = true
		})},
		{"blocks of one branch, squared relu, latent experts", rms.graph(func(g *graph.Graph) {
			rms.more(g, 5, func(int, *graph.Block) {})
			for i := range g.Blocks {
				b := &g.Blocks[i]
				if i%2 == 0 {
					b.FFNNorm, b.FFN = nil, nil
				} else {
					b.AttnNorm, b.Attn, b.FFN.Gate, b.FFN.Act = nil, nil, nil, graph.ReLU2
				}
			}
			rms.mamba(g, 0, graph.Mamba{Heads: 4, HeadDim: 6, Groups: 2, State: 8, Kernel: 4, DecayLog: true})
			rms.shortConv(g, 4, 20, 3)
			rms.latentExperts(g, 3, 5, 2, 14)
			rms.latentExperts(g, 5, 4, 2, 40)
			rms.shared(g, 5, 16, false).Shared.Act = graph.ReLU2
			g.Blocks[4].OutScale = "4.out"
		})},
		{"blocks of one branch with post norms, a layer first and a mixer last, bare ones", layer.graph(func(g *graph.Graph) {
			layer.more(g, 2, func(int, *graph.Block) {})
			for i := range g.Blocks {
				b := &g.Blocks[i]
				b.AttnPostNorm, b.FFNPostNorm = layer.newNorm(b.Attn.Q.Weight+"ap"), layer.newNorm(b.Attn.Q.Weight+"fp")
				if i%2 == 1 {
					b.FFNNorm, b.FFN, b.FFNPostNorm = nil, nil, nil
				} else {
					b.AttnNorm, b.Attn, b.AttnPostNorm, b.FFN.Act = nil, nil, nil, graph.ReLU2
				}
				if i > 1 {
					b.Bare, b.AttnNorm, b.FFNNorm = true, nil, nil
				}
			}
			layer.latentExperts(g, 2, 5, 2, 9)
		})},
		{"gates within limits", layer.graph(func(g *graph.Graph) {
			layer.moe(g, 0, 5, 2, true)
			m := layer.shared(g, 0, 16, true)
			m.Gating, m.Shared.Gating = graph.Gating{Alpha: 1.702, Limit: 0.7, UpOffset: 1}, graph.Gating{Limit: 0.4}
			g.Blocks[1].FFN.Gating = graph.Gating{Alpha: 1.5, UpOffset: -0.5}
		})},
		{"gates within limits, without biases", rms.graph(func(g *graph.Graph) {
			both(g, func(b *graph.Block) { b.FFN.Gating = graph.Gating{Alpha: 1.702, Limit: 0.7, UpOffset: 1} })
		})},
		{"keys and values of earlier blocks, heads of two sizes", rms.graph(func(g *graph.Graph) {
			g.Ropes = append(g.Ropes, graph.Rope{Style: graph.RopeHalf, Dim: 16, Theta: 1000, Scaling: graph.RopeScaling{Kind: graph.ScaleFactors, Short: []float32{1, 1, 1e30, 1e30, 1e30, 1e30, 1e30, 1e30}}})
			wide := shape{d: 24, heads: 4, kv: 1, dim: 16, inner: 50, norm: graph.RMSNorm}
			rms.more(g, 1, func(_ int, b *graph.Block) { b.Attn.Window = 9 })
			wide.more(g, 1, func(_ int, b *graph.Block) { b.Attn.Rope = 1 })
			rms.more(g, 1, func(_ int, b *graph.Block) { b.Attn.Window = 9 })
			wide.more(g, 1, func(_ int, b *graph.Block) { b.Attn.Rope = 1 })
			for i := range g.Blocks {
				if i < 4 {
					rms.headNorms(g, i)
				}
			}
			share(g, 4, 2)
			share(g, 5, 3)
			g.Blocks[5].OutScale, g.Blocks[2].OutScale, g.Head.Softcap = "5.out", "2.out", 3
		})},
		{"values that are the keys' projection", rms.graph(func(g *graph.Graph) {
			rms.headNorms(g, 0)
			g.Blocks[0].Attn.V, g.Blocks[1].Attn.V = nil, nil
			g.Norm.Weight, g.Norm.Scale = "", 0.7
			g.Blocks[1].OutScale = "1.out"
		})},
		{"per-layer embeddings", rms.graph(func(g *graph.Graph) {
			g.Embed.Scale = 2.5
			rms.more(g, 1, func(int, *graph.Block) {})
			share(g, 2, 1)
			rms.perLayer(g, 6)
			g.Blocks[1].PerLayer.Norm, g.Blocks[0].PerLayer = nil, nil
			g.Blocks[1].OutScale = "1.out"
		})},
		{"layers beside mixtures", rms.graph(func(g *graph.Graph) {
			m := rms.beside(g, 0, 5, 2)
			m.RouterNorm.Weight = ""
			rms.beside(g, 1, 6, 3)
			g.Blocks[1].MoENorm, g.Blocks[1].MoEPostNorm = nil, nil
			both(g, func(b *graph.Block) {
				b.AttnPostNorm, b.OutScale = rms.newNorm(b.Attn.Q.Weight+"ap"), b.Attn.Q.Weight+"out"
			})
		})},
		{"dynamic rotation", rms.graph(func(g *graph.Graph) {
			g.Ropes[0].Scaling = graph.RopeScaling{Kind: graph.ScaleDynamic, Factor: 2, Original: 20}
		})},
		{"longrope", rms.graph(func(g *graph.Graph) {
			g.Ropes[0].Scaling = graph.RopeScaling{Kind: graph.ScaleLongRope, Original: 20, Attention: 1.1,
				Short: []float32{1, 1.1, 1.2, 1.3, 1.4}, Long: []float32{1, 2, 4, 8, 16}}
		})},
		{"norms behind alone, norms of all heads at once", rms.graph(func(g *graph.Graph) {
			both(g, func(b *graph.Block) {
				b.Bare, b.AttnNorm, b.FFNNorm, b.Attn.JointNorms = true, nil, nil, true
				b.AttnPostNorm, b.FFNPostNorm = rms.newNorm(b.Attn.Q.Weight+"ap"), rms.newNorm(b.Attn.Q.Weight+"fp")
				b.Attn.QNorm, b.Attn.KNorm = rms.newNorm(b.Attn.Q.Weight+"n"), rms.newNorm(b.Attn.K.Weight+"n")
			})
			g.Blocks[0].Attn.Rope = -1
			rms.moe(g, 1, 5, 2, true)
		})},
		{"norms of all heads at once alone, by layer, and a temperature", layer.graph(func(g *graph.Graph) {
			both(g, func(b *graph.Block) { b.Attn.Temperature = &graph.Temperature{Beta: 0.7, Every: 3, Offset: 1} })
			a := g.Blocks[1].Attn
			a.JointNorms, a.KNorm = true, layer.newNorm("kn")
			g.Blocks[0].Bare, g.Blocks[0].AttnNorm, g.Blocks[0].FFNNorm = true, nil, nil
		})},
		{"runs of positions, weights of the experts' input", rms.graph(func(g *graph.Graph) {
			g.Blocks[0].Attn.Chunk, g.Blocks[1].Attn.Chunk = 9, 67
			g.Blocks[0].Attn.Sinks = "0.sinks"
			for i, k := range []int64{1, 2} {
				rms.moe(g, i, 5, k, false)
				g.Blocks[i].MoE.WeighInput, g.Blocks[i].MoE.Score = true, graph.ScoreSigmoid
			}
			g.Blocks[1].MoE.Scale = 1.5
		})},
		{"activations with trained numbers", rms.graph(func(g *graph.Graph) {
			for i, x := range []graph.XIELU{{AlphaP: 0.3, AlphaN: -0.9, Beta: 0.5, Eps: -1e-6}, {AlphaP: -2, AlphaN: 1.5, Beta: 0.7, Eps: -0.25}} {
				f := g.Blocks[i].FFN
				f.Act, f.Gate, f.XIELU = graph.ActXIELU, nil, &x
			}
			g.Blocks[1].FFN.Up.Bias = "ub"
		})},
		{"norms with weights for each head", layer.graph(func(g *graph.Graph) {
			both(g, func(b *graph.Block) {
				b.Attn.HeadNorms = true
				b.Attn.QNorm, b.Attn.KNorm = layer.newNorm(b.Attn.Q.Weight+"n"), layer.newNorm(b.Attn.K.Weight+"n")
			})
			g.Blocks[0].Attn.QNorm.Bias, g.Blocks[0].Attn.Window = "", 9
			g.Blocks[1].Attn.LateNorms, g.Blocks[1].Attn.KNorm.Kind, g.Blocks[1].Attn.KNorm.Bias = true, graph.RMSNorm, ""
		})},
		{"norms behind the rotation, temperatures", rms.graph(func(g *graph.Graph) {
			both(g, func(b *graph.Block) {
				b.Attn.LateNorms = true
				b.Attn.QNorm, b.Attn.KNorm = rms.newNorm(b.Attn.Q.Weight+"n"), rms.newNorm(b.Attn.K.Weight+"n")
			})
			g.Blocks[0].Attn.Temperature, g.Blocks[0].Attn.Window = &graph.Temperature{Beta: 0.4, Every: 2}, 9
			g.Blocks[1].Attn.QNorm = nil
		})},
	}
}
