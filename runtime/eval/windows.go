package eval

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/zeebo/blake3"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tokenizer"
	"github.com/nstf/nstf/runtime/exec"
)

// A Protocol says how a text is cut into windows and what is scored.
type Protocol string

// The protocols.
const (
	// ProtocolNSTF tokenizes each text alone without special tokens, joins
	// the ids, and cuts them into windows of BOS, where the model has one,
	// and as many tokens as fit; all of these are scored. An incomplete last
	// window is left out, unless it is the only one.
	ProtocolNSTF Protocol = "nstf"
	// ProtocolLlamaCPP counts as llama.cpp's perplexity tool does: one text,
	// less one newline at its end, tokenized at once with the special tokens
	// that the tokenizer adds; windows side by side; BOS replaces the first
	// token of each where the tokenizer adds one; of each window of n tokens
	// the rows n/2 to n-2 are scored. Source: tools/perplexity/perplexity.cpp.
	ProtocolLlamaCPP Protocol = "llama.cpp"
)

// protocolIDs are written into stored references.
var protocolIDs = map[Protocol]uint32{ProtocolNSTF: 1, ProtocolLlamaCPP: 2}

// Protocols lists the protocols' names.
func Protocols() []string { return []string{string(ProtocolNSTF), string(ProtocolLlamaCPP)} }

// windows are the token ids of a text, cut by a protocol.
type windows struct {
	protocol Protocol
	size     int // tokens per window
	first    int // first scored row
	list     [][]int32
	tokens   int // of the text, before cutting
	stepped  bool
}

// run runs a window and calls f with the logits of each scored row, in order.
func (w *windows) run(ctx context.Context, seq *exec.Sequence, window int, f func(row []float32) error) error {
	ids := w.list[window]
	seq.Reset()
	if !w.stepped {
		return seq.Prefill(ctx, ids, func(pos int, row []float32) error {
			if pos < w.first || pos > w.size-2 {
				return nil
			}
			return f(row)
		})
	}
	if err := seq.Prefill(ctx, ids[:w.first], nil); err != nil {
		return err
	}
	for _, id := range ids[w.first : w.size-1] {
		if err := ctx.Err(); err != nil {
			return err
		}
		row, err := seq.Step(id)
		if err == nil {
			err = f(row)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rows returns the scored rows of a window: first to size-2.
func (w *windows) rows() int { return w.size - 1 - w.first }

// scored returns the scored rows of all windows.
func (w *windows) scored() int { return w.rows() * len(w.list) }

// hash names the ids of all windows.
func (w *windows) hash() (sum [32]byte) {
	h := blake3.New()
	var p [4]byte
	for _, list := range w.list {
		for _, id := range list {
			binary.LittleEndian.PutUint32(p[:], uint32(id))
			h.Write(p[:])
		}
	}
	h.Sum(sum[:0])
	return sum
}

// cut makes windows of size tokens. maxTokens limits the text's tokens, 0 not
// at all.
func cut(t *tokenizer.Tokenizer, texts []string, p Protocol, size, maxTokens int) (*windows, error) {
	if size < 2 {
		return nil, fmt.Errorf("a context of %d tokens: at least 2 are needed", size)
	}
	var w *windows
	var err error
	switch p {
	case ProtocolNSTF:
		w, err = cutAll(t, texts, size, maxTokens)
	case ProtocolLlamaCPP:
		w, err = cutLlamaCPP(t, texts, size, maxTokens)
	default:
		e := formats.Unsupportedf("", "", "protocol %q", p)
		e.Hint = "protocols: " + strings.Join(Protocols(), ", ")
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	if len(w.list) == 0 || w.rows() < 1 {
		return nil, fmt.Errorf("the text has %d tokens: too few to score any in windows of %d", w.tokens, size)
	}
	return w, nil
}

func limit(ids []int32, maxTokens int) []int32 {
	if maxTokens > 0 && len(ids) > maxTokens {
		return ids[:maxTokens]
	}
	return ids
}

func cutAll(t *tokenizer.Tokenizer, texts []string, size, maxTokens int) (*windows, error) {
	var ids []int32
	for _, text := range texts {
		if maxTokens > 0 && len(ids) >= maxTokens {
			break
		}
		more, err := t.Encode(text, tokenizer.EncodeOptions{NoSpecial: true})
		if err != nil {
			return nil, err
		}
		ids = append(ids, more...)
	}
	ids = limit(ids, maxTokens)
	var head []int32
	if bos, ok := t.BOS(); ok {
		head = []int32{bos}
	}
	step := size - len(head)
	if len(ids) < step { // a text shorter than one window
		step = len(ids)
	}
	w := &windows{protocol: ProtocolNSTF, size: step + len(head), tokens: len(ids)}
	for at := 0; step > 0 && at+step <= len(ids); at += step {
		w.list = append(w.list, append(append([]int32(nil), head...), ids[at:at+step]...))
	}
	return w, nil
}

func cutLlamaCPP(t *tokenizer.Tokenizer, texts []string, size, maxTokens int) (*windows, error) {
	if len(texts) != 1 {
		return nil, errors.New("protocol llama.cpp reads one continuous text, as that tool does: give a plain text file")
	}
	ids, err := t.Encode(strings.TrimSuffix(texts[0], "\n"), tokenizer.EncodeOptions{NoParseSpecial: true})
	if err != nil {
		return nil, err
	}
	ids = limit(ids, maxTokens)
	w := &windows{protocol: ProtocolLlamaCPP, size: size, first: size / 2, tokens: len(ids)}
	for at := 0; at+size <= len(ids); at += size {
		window := append([]int32(nil), ids[at:at+size]...)
		if bos, ok := t.BOS(); ok && t.AddsBOS() {
			window[0] = bos
		}
		w.list = append(w.list, window)
	}
	return w, nil
}
