package model

import (
	"encoding/json"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/hf"
)

// A Pooling says how the hidden states of a text's tokens become one vector.
type Pooling string

// The poolings: of the last token, the mean of all, of the first token.
const (
	PoolLast  Pooling = "last"
	PoolMean  Pooling = "mean"
	PoolFirst Pooling = "first"
)

// Pooling returns how the model is meant to be pooled: by what sentence-transformers keeps
// in 1_Pooling/config.json, or a GGUF's pooling_type. Where neither is there it is
// [PoolLast], since only the last token of these models has read all of a text, and told
// is false. Poolings of other kinds are an [formats.UnsupportedError].
//
// Sources: sentence_transformers/sentence_transformer/modules/pooling.py of
// sentence-transformers 5.2; enum llama_pooling_type in include/llama.h of llama.cpp.
func (m *Model) Pooling() (p Pooling, told bool, err error) {
	if meta, ok := m.File(MetadataFile); ok {
		f, err := gguf.Parse(m.Path, meta)
		if err != nil {
			return "", false, err
		}
		arch, err := f.String("general.architecture")
		if err != nil || !f.Has(arch+".pooling_type") {
			return PoolLast, false, err
		}
		kind, err := f.Int(arch + ".pooling_type")
		if err != nil {
			return "", false, err
		}
		if p, ok := map[int64]Pooling{0: PoolLast, 1: PoolMean, 2: PoolFirst, 3: PoolLast}[kind]; ok {
			return p, kind != 0, nil
		}
		return "", true, formats.Unsupportedf(m.Path, arch+".pooling_type", "pooling of type %d", kind)
	}
	raw, ok := m.File(hf.PoolingFile)
	if !ok {
		return PoolLast, false, nil
	}
	c := struct {
		Mode  string `json:"pooling_mode"`
		First bool   `json:"pooling_mode_cls_token"`
		Mean  bool   `json:"pooling_mode_mean_tokens"`
		Last  bool   `json:"pooling_mode_lasttoken"`
		Max   bool   `json:"pooling_mode_max_tokens"`
		Root  bool   `json:"pooling_mode_mean_sqrt_len_tokens"`
		Heavy bool   `json:"pooling_mode_weightedmean_tokens"`
	}{}
	if err := json.Unmarshal(raw, &c); err != nil {
		return "", false, formats.Errorf(m.Path, hf.PoolingFile, "%v", err)
	}
	modes := []string{}
	for _, mode := range []struct {
		name string
		on   bool
	}{{"lasttoken", c.Last}, {"mean", c.Mean}, {"cls", c.First}, {"max", c.Max}, {"mean_sqrt_len_tokens", c.Root}, {"weightedmean", c.Heavy}, {c.Mode, c.Mode != ""}} {
		if mode.on {
			modes = append(modes, mode.name)
		}
	}
	if p, ok := map[string]Pooling{"lasttoken": PoolLast, "mean": PoolMean, "cls": PoolFirst}[strings.Join(modes, " and ")]; ok {
		return p, true, nil
	}
	return "", true, formats.Unsupportedf(m.Path, hf.PoolingFile, "pooling by %q", strings.Join(modes, " and "))
}
