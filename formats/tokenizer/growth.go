package tokenizer

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
)

// What the stages of a tokenizer may make of a text is bounded, for they come from
// strangers: forty normalizers that double a letter would fill any memory. NFKC
// lengthens the worst character elevenfold (U+FDFA, UAX #15), spelling bytes doubles,
// U+2581 for a space triples.
const (
	maxGrowth = 64   // bytes that a normalizer or decoder makes of one, at most,
	minGrown  = 1024 // ... but so many in any case
	// maxInserted bounds what one Prepend, Replace or charsmap puts into a text for one
	// match, in bytes. The longest replacement in SentencePiece's nmt_nfkc has 33.
	maxInserted = 128
	// maxAddedText bounds all added tokens together as they are looked for, in bytes.
	maxAddedText = 64 << 20
	// maxAddedIDs bounds what a post-processor puts around every text.
	maxAddedIDs = 256
	// maxStageDepth bounds how deep stages may nest, and maxStageObjects how many they
	// are, counted as JSON nests and counts objects.
	maxStageDepth, maxStageObjects = 64, 1 << 14
)

// grown returns how many bytes n may become.
func grown(n int) int { return maxGrowth*n + minGrown }

// A growthError says that a stage makes more of a text than it may.
type growthError struct{ in, most int }

func (e *growthError) Error() string {
	return fmt.Sprintf("makes more than %d bytes of %d", e.most, e.in)
}

// normalized is what n makes of a text, nil or not.
func normalized(n normalizer, s string, start bool) (string, bool, error) {
	if n == nil {
		return s, start, nil
	}
	most := grown(len(s))
	out, start, err := n.normalize(s, start, most)
	if err == nil && len(out) > most {
		err = &growthError{len(s), most}
	}
	return out, start, err
}

// checkInserted refuses a text that is too long to be put in for one match.
func checkInserted(s string) error {
	if len(s) > maxInserted {
		return fmt.Errorf("inserts %d bytes, more than %d: %q", len(s), maxInserted, formats.Brief(s, 60))
	}
	return nil
}

// checkStage refuses a stage that nests too deep or holds too many others, before it is
// parsed: parsers read what lies inside once for every level.
func checkStage(raw []byte) error {
	depth, objects, quoted := 0, 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxStageDepth {
				return fmt.Errorf("nests more than %d deep", maxStageDepth)
			}
			if objects++; objects > maxStageObjects {
				return fmt.Errorf("holds more than %d objects and lists", maxStageObjects)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// literals returns the strings that a stage's Replace steps look for, the first of them.
func literals(raw []byte) []string {
	const most = 64
	var out []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				if s, ok := v[key].(string); ok && strings.EqualFold(key, "string") && len(out) < most {
					out = append(out, s)
				}
				walk(v[key])
			}
		}
	}
	var stage any
	if json.Unmarshal(raw, &stage) == nil {
		walk(stage)
	}
	return out
}

// checkGrowth tries stages on what their Replace steps look for: what makes too much
// of that is refused before any text is.
func (t *Tokenizer) checkGrowth() error {
	for _, s := range literals(t.spec.Normalizer) {
		if _, _, err := normalized(t.norm, s, true); err != nil {
			return formats.Errorf(t.name, "normalizer", "%v, of %q", err, formats.Brief(s, 60))
		}
	}
	if t.dec == nil {
		return nil
	}
	for _, s := range literals(t.spec.Decoder) {
		n := 0
		for _, p := range t.dec.decode([]string{s}, true) {
			n += len(p)
		}
		if n > grown(len(s))/2 {
			return formats.Errorf(t.name, "decoder", "makes %d bytes of %q", n, formats.Brief(s, 60))
		}
	}
	return nil
}
