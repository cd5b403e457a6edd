package graph

import (
	"math"
	"testing"
)

// The expected values were computed by transformers 5.17's
// ROPE_INIT_FUNCTIONS with torch in float32.
func ropeCases() []ropeCase {
	return []ropeCase{
		{"linear", Rope{Dim: 16, Theta: 10000, Scaling: RopeScaling{Kind: ScaleLinear, Factor: 4}}, 10, 1.0,
			[]float32{0.25, 0.079056941, 0.0250000004, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05}},
		{"dynamic at 20", Rope{Dim: 16, Theta: 10000, Scaling: RopeScaling{Kind: ScaleDynamic, Factor: 2, Original: 32}}, 20, 1.0,
			[]float32{1, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786, 0.00100000005, 0.000316227786}},
		{"dynamic at 32", Rope{Dim: 16, Theta: 10000, Scaling: RopeScaling{Kind: ScaleDynamic, Factor: 2, Original: 32}}, 32, 1.0,
			[]float32{1, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786, 0.00100000005, 0.000316227786}},
		{"dynamic at 33", Rope{Dim: 16, Theta: 10000, Scaling: RopeScaling{Kind: ScaleDynamic, Factor: 2, Original: 32}}, 33, 1.0,
			[]float32{1, 0.313500851, 0.0982827842, 0.0308117364, 0.00965950545, 0.00302826311, 0.000949363108, 0.000297626131}},
		{"dynamic at 100", Rope{Dim: 16, Theta: 10000, Scaling: RopeScaling{Kind: ScaleDynamic, Factor: 2, Original: 32}}, 100, 1.0,
			[]float32{1, 0.249528468, 0.0622644536, 0.0155367535, 0.00387686281, 0.000967387517, 0.000241390735, 6.02338623e-05}},
		{"llama3", Rope{Dim: 64, Theta: 500000, Scaling: RopeScaling{Kind: ScaleLlama3, Factor: 8, LowFreq: 1, HighFreq: 4, Original: 8192}}, 10, 1.0,
			[]float32{1, 0.663601279, 0.440366626, 0.292227834, 0.193922758, 0.128687382, 0.0853971019, 0.0566696189, 0.0376060307, 0.0249554086, 0.0165604409, 0.0109895291, 0.00729266508, 0.00483942125, 0.00321144611, 0.00137189368, 0.000524846022, 0.000178507791, 7.78465546e-05, 5.16590699e-05, 3.42810235e-05, 2.2748929e-05, 1.50962178e-05, 1.00178686e-05, 6.64786967e-06, 4.41153452e-06, 2.92749974e-06, 1.94269251e-06, 1.28917316e-06, 8.55496921e-07, 5.6770881e-07, 3.7673226e-07}},
		{"yarn", Rope{Dim: 64, Theta: 1e6, Scaling: RopeScaling{Kind: ScaleYarn, Factor: 4, BetaFast: 32, BetaSlow: 1, Truncate: true, Original: 32768, Attention: 1.1386294361119891}}, 10, 1.138629436111989,
			[]float32{1, 0.649381638, 0.421696514, 0.273841977, 0.177827939, 0.115478203, 0.0749894157, 0.0486967526, 0.0316227786, 0.0205352511, 0.0133352149, 0.00865964312, 0.00515479548, 0.0030431177, 0.00177853031, 0.00102661771, 0.000583333371, 0.000324690831, 0.000175706868, 9.12806499e-05, 4.44569851e-05, 2.88695483e-05, 1.87473561e-05, 1.21741887e-05, 7.90569356e-06, 5.13381246e-06, 3.33380353e-06, 2.16491094e-06, 1.40585337e-06, 9.1293532e-07, 5.92843435e-07, 3.84981632e-07}},
		{"yarn without truncation", Rope{Dim: 16, Theta: 10000, Scaling: RopeScaling{Kind: ScaleYarn, Factor: 4, BetaFast: 4, BetaSlow: 0.5, Original: 64, Attention: 1.25}}, 10, 1.25,
			[]float32{1, 0.291525632, 0.0506643951, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05}},
		{"longrope at 64", Rope{Dim: 8, Theta: 10000, Scaling: RopeScaling{Kind: ScaleLongRope, Original: 64, Short: []float32{1, 1.05, 1.1, 1.5}, Long: []float32{1, 2.5, 7.75, 31.5}, Attention: 1.1547005383792517}}, 64, 1.1547005383792517,
			[]float32{1, 0.095238097, 0.0090909088, 0.00066666666}},
		{"longrope at 65", Rope{Dim: 8, Theta: 10000, Scaling: RopeScaling{Kind: ScaleLongRope, Original: 64, Short: []float32{1, 1.05, 1.1, 1.5}, Long: []float32{1, 2.5, 7.75, 31.5}, Attention: 1.1547005383792517}}, 65, 1.1547005383792517,
			[]float32{1, 0.0399999991, 0.00129032263, 3.17460326e-05}},
		// By hand: 10000^(-2i/4) = 1, 0.01, divided by 2 and 8.
		{"factors", Rope{Dim: 4, Theta: 10000, Scaling: RopeScaling{Kind: ScaleFactors, Short: []float32{2, 8}}}, 9, 1,
			[]float32{0.5, 0.00125}},
		{"none", Rope{Dim: 4, Theta: 10000, Scaling: RopeScaling{Kind: ScaleNone}}, 9, 1, []float32{1, 0.01}},
	}
}

type ropeCase struct {
	name      string
	rope      Rope
	seqLen    int64
	attention float64
	want      []float32
}

func TestFrequencies(t *testing.T) {
	for _, c := range ropeCases() {
		got, attention := c.rope.Frequencies(c.seqLen)
		if attention != float32(c.attention) {
			t.Errorf("%s: attention factor %v, want %v", c.name, attention, c.attention)
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: %d frequencies, want %d", c.name, len(got), len(c.want))
			continue
		}
		for i, w := range c.want {
			// torch's powf is not correctly rounded: allow two units of the last place.
			if d := math.Abs(float64(got[i] - w)); d > 2.4e-7*float64(w) {
				t.Errorf("%s: frequency %d is %v, want %v", c.name, i, got[i], w)
			}
		}
	}
}

// Lengths share a regime exactly when they share frequencies.
func TestRegime(t *testing.T) {
	for _, c := range ropeCases() {
		for a := int64(1); a < 140; a += 7 {
			for b := int64(1); b < 140; b += 5 {
				fa, _ := c.rope.Frequencies(a)
				fb, _ := c.rope.Frequencies(b)
				same := true
				for i := range fa {
					same = same && fa[i] == fb[i]
				}
				if same != (c.rope.Regime(a) == c.rope.Regime(b)) {
					t.Errorf("%s: lengths %d and %d: equal frequencies %v, regimes %d and %d",
						c.name, a, b, same, c.rope.Regime(a), c.rope.Regime(b))
				}
			}
		}
	}
}

func TestAppendFrequenciesAllocatesNothing(t *testing.T) {
	for _, c := range ropeCases() {
		buf := make([]float32, 0, c.rope.Dim/2)
		if n := testing.AllocsPerRun(10, func() { buf, _ = c.rope.AppendFrequencies(buf[:0], 1000) }); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
}
