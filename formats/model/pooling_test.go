package model

import (
	"bytes"
	"errors"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/gguf"
)

func TestPooling(t *testing.T) {
	meta := func(kvs ...gguf.KV) []byte {
		var b bytes.Buffer
		w, err := gguf.NewWriter(append([]gguf.KV{{Key: "general.architecture", Value: "qwen3"}}, kvs...), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	kind := func(n uint32) []byte {
		return meta(gguf.KV{Key: "qwen3.pooling_type", Value: n})
	}
	for _, c := range []struct {
		name, data string
		want       Pooling
		told       bool
	}{
		{"", "", PoolLast, false},
		{"1_Pooling/config.json", `{"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": false}`, PoolMean, true},
		{"1_Pooling/config.json", `{"pooling_mode_lasttoken": true, "include_prompt": true}`, PoolLast, true},
		{"1_Pooling/config.json", `{"pooling_mode_cls_token": true}`, PoolFirst, true},
		{"1_Pooling/config.json", `{"pooling_mode": "mean"}`, PoolMean, true},
		{"1_Pooling/config.json", `{"pooling_mode_max_tokens": true}`, "", true},
		{"1_Pooling/config.json", `{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true}`, "", true},
		{"1_Pooling/config.json", `{}`, "", true},
		{MetadataFile, string(meta()), PoolLast, false},
		{MetadataFile, string(kind(0)), PoolLast, false},
		{MetadataFile, string(kind(1)), PoolMean, true},
		{MetadataFile, string(kind(2)), PoolFirst, true},
		{MetadataFile, string(kind(3)), PoolLast, true},
		{MetadataFile, string(kind(4)), "", true},
	} {
		m := &Model{}
		if c.name != "" {
			m.Files = []File{{Name: c.name, Data: []byte(c.data)}}
		}
		got, told, err := m.Pooling()
		var unsupported *formats.UnsupportedError
		if got != c.want || told != c.told || (c.want == "") != errors.As(err, &unsupported) {
			t.Errorf("%s %s: %q %v %v, want %q %v", c.name, c.data, got, told, err, c.want, c.told)
		}
	}
}
