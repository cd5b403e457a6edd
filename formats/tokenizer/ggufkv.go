package tokenizer

import (
	"math"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/nstf/nstf/formats"
)

// kvReader reads the keys of tokenizer.ggml, remembering the first error.
type kvReader struct {
	name string
	kv   Metadata
	n    int // tokens
	err  error
}

func (r *kvReader) fail(key string, v any, want string) {
	if r.err == nil {
		r.err = formats.Errorf(r.name, key, "is a %T, not %s", v, want)
	}
}

func (r *kvReader) str(key, otherwise string) string {
	v, ok := r.kv.Get(ggml + key)
	if !ok {
		return otherwise
	}
	s, ok := v.(string)
	if !ok {
		r.fail(ggml+key, v, "a string")
	}
	return s
}

func (r *kvReader) bool(key string, otherwise bool) bool {
	v, ok := r.kv.Get(ggml + key)
	if !ok {
		return otherwise
	}
	b, ok := v.(bool)
	if !ok {
		r.fail(ggml+key, v, "a bool")
	}
	return b
}

func (r *kvReader) strings(key string) []string {
	v, ok := r.kv.Get(ggml + key)
	if !ok {
		return nil
	}
	s, ok := v.([]string)
	if !ok {
		r.fail(ggml+key, v, "an array of strings")
	}
	for i, x := range s {
		if !utf8.ValidString(x) && r.err == nil {
			r.err = formats.Errorf(r.name, ggml+key, "entry %d, %q, is not UTF-8", i, x)
		}
	}
	return s
}

// integer reads any integer type.
func integer(v any) (int64, bool) {
	x := reflect.ValueOf(v)
	switch {
	case x.CanInt():
		return x.Int(), true
	case x.CanUint() && x.Uint() <= math.MaxInt64:
		return int64(x.Uint()), true
	}
	return 0, false
}

// id reads a token id; one outside the vocabulary is an error.
func (r *kvReader) id(key string, otherwise int32) int32 {
	v, ok := r.kv.Get(ggml + key)
	if !ok {
		return otherwise
	}
	n, ok := integer(v)
	if !ok {
		r.fail(ggml+key, v, "an integer")
		return otherwise
	}
	if uint32(n) == math.MaxUint32 { // how converters write "none"
		return -1
	}
	if (n < 0 || n >= int64(r.n)) && r.err == nil {
		r.err = formats.Errorf(r.name, ggml+key, "id %d of a vocabulary of %d", n, r.n)
	}
	return int32(n)
}

// ints reads an array of any integer type.
func (r *kvReader) ints(key string) []int32 {
	v, ok := r.kv.Get(ggml + key)
	if !ok {
		return nil
	}
	if s, ok := v.([]int32); ok {
		return s
	}
	x := reflect.ValueOf(v)
	if x.Kind() != reflect.Slice {
		r.fail(ggml+key, v, "an array of integers")
		return nil
	}
	out := make([]int32, x.Len())
	for i := range out {
		n, ok := integer(x.Index(i).Interface())
		if !ok || n != int64(int32(n)) {
			r.fail(ggml+key, v, "an array of 32-bit integers")
			return nil
		}
		out[i] = int32(n)
	}
	return out
}

func (r *kvReader) bytes(key string) []byte {
	v, ok := r.kv.Get(ggml + key)
	if !ok {
		return nil
	}
	switch b := v.(type) {
	case []byte:
		return b
	case []int8:
		out := make([]byte, len(b))
		for i, x := range b {
			out[i] = byte(x)
		}
		return out
	}
	r.fail(ggml+key, v, "an array of bytes")
	return nil
}

// common reads what all models share.
func (r *kvReader) common(v *Vocabulary) {
	n := len(v.Tokens)
	r.n = n
	if x, ok := r.kv.Get(ggml + "scores"); ok {
		if v.Scores, ok = x.([]float32); !ok {
			r.fail(ggml+"scores", x, "an array of float32")
		}
	}
	v.Types = r.ints("token_type")
	if r.err == nil && v.Scores != nil && len(v.Scores) != n {
		r.err = formats.Errorf(r.name, ggml+"scores", "%d scores for %d tokens", len(v.Scores), n)
	}
	if r.err == nil && v.Types != nil && len(v.Types) != n {
		r.err = formats.Errorf(r.name, ggml+"token_type", "%d types for %d tokens", len(v.Types), n)
	}
	v.BOS, v.EOS = r.id("bos_token_id", -1), r.id("eos_token_id", -1)
	v.UNK, v.SEP = r.id("unknown_token_id", -1), r.id("seperator_token_id", -1) // the key is spelled so
	v.PAD = r.id("padding_token_id", -1)
}

// defaults fills in the ids that a model has where the file says nothing.
func (r *kvReader) defaults(v *Vocabulary, bos, eos, unk int32) {
	set := func(id *int32, key string, to int32) {
		if _, ok := r.kv.Get(ggml + key); !ok && int(to) < len(v.Tokens) {
			*id = to
		}
	}
	set(&v.BOS, "bos_token_id", bos)
	set(&v.EOS, "eos_token_id", eos)
	set(&v.UNK, "unknown_token_id", unk)
}

func (r *kvReader) needScores(v *Vocabulary) error {
	if v.Scores == nil {
		return formats.Errorf(r.name, ggml+"scores", "the key is missing, and a %s vocabulary needs it", v.Model)
	}
	if v.Types == nil {
		return formats.Errorf(r.name, ggml+"token_type", "the key is missing, and a %s vocabulary needs it", v.Model)
	}
	return nil
}

func (r *kvReader) generalName() string {
	v, _ := r.kv.Get("general.name")
	s, _ := v.(string)
	return s
}

// templates reads tokenizer.chat_template and its named siblings.
func (r *kvReader) templates() map[string]string {
	out := map[string]string{}
	get := func(name, key string) {
		if v, ok := r.kv.Get(key); ok {
			if s, ok := v.(string); ok {
				out[name] = s
			} else {
				r.fail(key, v, "a string")
			}
		}
	}
	get("default", "tokenizer.chat_template")
	v, _ := r.kv.Get("tokenizer.chat_templates")
	names, _ := v.([]string)
	for _, n := range names {
		if n = strings.TrimSpace(n); n != "" && n != "default" {
			get(n, "tokenizer.chat_template."+n)
		}
	}
	return out
}
