package serve

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/tokenizer"
)

// Embeddings, in the words of OpenAI, llama.cpp and Ollama.
// Sources: https://platform.openai.com/docs/api-reference/embeddings, tools/server/README.md
// of llama.cpp (POST /embeddings), docs/api.md of ollama; read 2026-11.

// vector returns the hidden states of a text, pooled as the model says and of length 1
// where that is wanted.
func (m *Model) vector(ctx context.Context, ids []int32, normalised bool) ([]float64, error) {
	pool := cmp.Or(m.Pooling, model.PoolLast)
	wanted := func(i int) bool {
		return pool == model.PoolMean || pool == model.PoolFirst && i == 0 || pool == model.PoolLast && i == len(ids)-1
	}
	var sum []float64
	n := 0.0
	err := m.Scheduler.Embed(ctx, ids, wanted, func(row []float32) {
		if sum == nil {
			sum = make([]float64, len(row))
		}
		for i, v := range row {
			sum[i] += float64(v)
		}
		n++
	})
	if err != nil {
		return nil, err
	}
	for i := range sum {
		sum[i] /= n
	}
	if normalised {
		normalise(sum)
	}
	return sum, nil
}

func normalise(v []float64) {
	sum := 0.0
	for _, x := range v {
		sum += x * x
	}
	if sum == 0 {
		return
	}
	for i := range v {
		v[i] /= math.Sqrt(sum)
	}
}

// textsAtOnce bounds the texts of one request that the scheduler knows of at once.
const textsAtOnce = 32

// vectors returns those of several texts, cut to so many dimensions; 0: to all.
func (m *Model) vectors(ctx context.Context, texts [][]int32, dimensions int, normalised bool) ([][]float64, error) {
	if dimensions < 0 {
		return nil, invalid("dimensions", "dimensions is %d", dimensions)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all := make([][]float64, len(texts))
	var wg sync.WaitGroup
	var once sync.Once
	var failed error
	places := make(chan struct{}, textsAtOnce)
	for i, ids := range texts {
		places <- struct{}{}
		wg.Add(1)
		go func() {
			defer func() { <-places; wg.Done() }()
			v, err := m.vector(ctx, ids, normalised)
			if err == nil && dimensions > len(v) {
				err = invalid("dimensions", "dimensions is %d, and the model has %d", dimensions, len(v))
			}
			if err != nil {
				once.Do(func() { failed = err; cancel() })
				return
			}
			if dimensions > 0 {
				if v = v[:dimensions]; normalised {
					normalise(v)
				}
			}
			all[i] = v
		}()
	}
	wg.Wait()
	return all, failed
}

// encodeWhole returns a text's tokens as an embedding wants them: with what begins and
// ends one.
func (m *Model) encodeWhole(text string) ([]int32, error) {
	return m.Tokenizer.Encode(text, tokenizer.EncodeOptions{NoParseSpecial: true})
}

func total(texts [][]int32) (n int) {
	for _, ids := range texts {
		n += len(ids)
	}
	return n
}

func float32s(v []float64) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x)
	}
	return out
}

func (s *Server) embeddings(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		named
		Input      json.RawMessage `json:"input"`
		Encoding   string          `json:"encoding_format"`
		Dimensions int             `json:"dimensions"`
	}
	m, release, err := s.open(r, &q)
	if err != nil {
		return err
	}
	defer release()
	if q.Encoding != "" && q.Encoding != "float" && q.Encoding != "base64" {
		return invalid("encoding_format", "encoding_format is %q, and neither float nor base64", q.Encoding)
	}
	texts, err := m.texts(q.Input, "input", m.encodeWhole)
	if err != nil {
		return err
	}
	vectors, err := m.vectors(r.Context(), texts, q.Dimensions, true)
	if err != nil {
		return err
	}
	data := []any{}
	for i, v := range vectors {
		var e any = float32s(v)
		if q.Encoding == "base64" {
			p, _ := binary.Append(nil, binary.LittleEndian, float32s(v))
			e = base64.StdEncoding.EncodeToString(p)
		}
		data = append(data, map[string]any{"object": "embedding", "index": i, "embedding": e})
	}
	n := total(texts)
	return writeJSON(w, map[string]any{"object": "list", "data": data, "model": m.Name, "usage": map[string]int{"prompt_tokens": n, "total_tokens": n}})
}

// nativeEmbeddings are llama.cpp's: a list, each with the one vector of a text in a list.
func (s *Server) nativeEmbeddings(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		named
		Input     json.RawMessage `json:"input"`
		Content   json.RawMessage `json:"content"`
		Normalise *int            `json:"embd_normalize"`
	}
	m, release, err := s.open(r, &q)
	if err != nil {
		return err
	}
	defer release()
	if q.Normalise != nil && *q.Normalise != 2 && *q.Normalise != -1 {
		return invalid("embd_normalize", "embd_normalize is %d, and neither 2 nor -1", *q.Normalise)
	}
	if !said(q.Input) {
		q.Input = q.Content
	}
	texts, err := m.texts(q.Input, "input", m.encodeWhole)
	if err != nil {
		return err
	}
	vectors, err := m.vectors(r.Context(), texts, 0, q.Normalise == nil || *q.Normalise == 2)
	if err != nil {
		return err
	}
	all := []any{}
	for i, v := range vectors {
		all = append(all, map[string]any{"index": i, "embedding": [][]float32{float32s(v)}})
	}
	return writeJSON(w, all)
}

func (s *Server) ollamaEmbed(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		named
		Input      json.RawMessage `json:"input"`
		Prompt     json.RawMessage `json:"prompt"` // of /api/embeddings
		Truncate   *bool           `json:"truncate"`
		Dimensions int             `json:"dimensions"`
		keepAlive
	}
	began := time.Now()
	m, release, err := s.open(r, &q)
	if err != nil {
		return err
	}
	defer release()
	loaded := time.Since(began)
	if _, err := q.apply(s, m); err != nil {
		return err
	}
	old := r.URL.Path == "/api/embeddings"
	if old {
		q.Input = q.Prompt
	}
	texts, err := m.texts(q.Input, "input", m.encodeWhole)
	if err != nil {
		return err
	}
	if q.Truncate == nil || *q.Truncate {
		for i, ids := range texts {
			if n := int(m.Context); len(ids) > n {
				texts[i] = append(ids[:n-1:n-1], ids[len(ids)-1]) // what ends a text ends this one
			}
		}
	}
	vectors, err := m.vectors(r.Context(), texts, q.Dimensions, true)
	if err != nil {
		return err
	}
	if old {
		return writeJSON(w, map[string]any{"embedding": float32s(vectors[0])})
	}
	var all [][]float32
	for _, v := range vectors {
		all = append(all, float32s(v))
	}
	return writeJSON(w, map[string]any{"model": q.Model, "embeddings": all, "total_duration": time.Since(began).Nanoseconds(), "load_duration": loaded.Nanoseconds(), "prompt_eval_count": total(texts)})
}
