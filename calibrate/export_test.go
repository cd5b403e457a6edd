package calibrate

import (
	"context"

	"github.com/nstf/nstf/formats/corpus"
	"github.com/nstf/nstf/formats/tokenizer"
)

// Cut is [Windows.CutSamples] of texts.
func (w Windows) Cut(ctx context.Context, t *tokenizer.Tokenizer, name string, texts []string) ([][]int32, error) {
	samples := make([]corpus.Sample, len(texts))
	for i, text := range texts {
		samples[i].Text = text
	}
	return w.CutSamples(ctx, t, name, samples)
}
