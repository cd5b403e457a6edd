package candidates_test

import (
	"context"
	"flag"
	"testing"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/quantize/plan/candidates"
)

var (
	benchModel = flag.String("forms.model", "", "model whose candidates are listed")
	benchStats = flag.String("forms.stats", "", "its statistics, by nstf calibrate")
)

// BenchmarkBuild lists the candidates of a whole model with forms and without.
func BenchmarkBuild(b *testing.B) {
	if *benchModel == "" {
		b.Skip("needs -forms.model and -forms.stats")
	}
	m, err := checkpoint.Open(*benchModel)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	s, err := stats.Open(*benchStats)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for _, forms := range []bool{false, true} {
		name := "codes"
		if forms {
			name = "forms"
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := candidates.Build(context.Background(), m, candidates.Options{Stats: s, Forms: forms}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
