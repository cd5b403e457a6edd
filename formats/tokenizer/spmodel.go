package tokenizer

import (
	"fmt"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// spModel is what a SentencePiece ModelProto says. Source of the numbers:
// sentencepiece_model.proto.
type spModel struct {
	pieces []string
	scores []float32
	types  []int32

	kind         uint64 // trainer_spec.model_type: 1 Unigram, 2 BPE, 3 word, 4 char
	byteFallback bool
	asSuffix     bool // treat_whitespace_as_suffix
	unk, bos     int32
	eos, pad     int32

	charsmap    []byte
	dummyPrefix bool
	squeeze     bool // remove_extra_whitespaces
	escape      bool
	hasDenorm   bool
}

// fields calls each for every field of a protobuf message. v holds a varint
// or the bits of a fixed value, b a length-delimited one.
func fields(msg []byte, each func(num protowire.Number, v uint64, b []byte) error) error {
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return fmt.Errorf("protobuf tag: %w", protowire.ParseError(n))
		}
		msg = msg[n:]
		var v uint64
		var b []byte
		switch typ {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(msg)
		case protowire.Fixed32Type:
			var f uint32
			f, n = protowire.ConsumeFixed32(msg)
			v = uint64(f)
		case protowire.Fixed64Type:
			v, n = protowire.ConsumeFixed64(msg)
		case protowire.BytesType:
			b, n = protowire.ConsumeBytes(msg)
		default:
			n = protowire.ConsumeFieldValue(num, typ, msg)
		}
		if n < 0 {
			return fmt.Errorf("protobuf field %d: %w", num, protowire.ParseError(n))
		}
		msg = msg[n:]
		if err := each(num, v, b); err != nil {
			return err
		}
	}
	return nil
}

func parseSPModel(raw []byte) (*spModel, error) {
	// The defaults are the proto's own.
	m := &spModel{kind: 1, unk: 0, bos: 1, eos: 2, pad: -1, dummyPrefix: true, squeeze: true, escape: true}
	err := fields(raw, func(num protowire.Number, v uint64, b []byte) error {
		switch num {
		case 1:
			return m.piece(b)
		case 2:
			return m.trainer(b)
		case 3:
			return m.normalizer(b)
		case 5: // denormalizer_spec
			return fields(b, func(num protowire.Number, _ uint64, b []byte) error {
				m.hasDenorm = m.hasDenorm || num == 2 && len(b) > 0
				return nil
			})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(m.pieces) == 0 {
		return nil, fmt.Errorf("no pieces")
	}
	return m, nil
}

func (m *spModel) piece(b []byte) error {
	text, score, typ := "", float32(0), TypeNormal
	err := fields(b, func(num protowire.Number, v uint64, b []byte) error {
		switch num {
		case 1:
			text = string(b)
		case 2:
			score = math.Float32frombits(uint32(v))
		case 3:
			typ = int32(v)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case !utf8.ValidString(text) || text == "":
		return fmt.Errorf("piece %d is %q", len(m.pieces), text)
	case !(math.Abs(float64(score)) <= maxScore):
		return fmt.Errorf("score of piece %d (%q) is %v", len(m.pieces), text, score)
	case typ < TypeNormal || typ > TypeByte:
		return unsupported("piece type %d of %q", typ, text)
	}
	m.pieces = append(m.pieces, text)
	m.scores = append(m.scores, score)
	m.types = append(m.types, typ)
	return nil
}

func (m *spModel) trainer(b []byte) error {
	return fields(b, func(num protowire.Number, v uint64, _ []byte) error {
		switch num {
		case 3:
			m.kind = v
		case 24:
			m.asSuffix = v != 0
		case 35:
			m.byteFallback = v != 0
		case 40:
			m.unk = int32(v)
		case 41:
			m.bos = int32(v)
		case 42:
			m.eos = int32(v)
		case 43:
			m.pad = int32(v)
		}
		return nil
	})
}

func (m *spModel) normalizer(b []byte) error {
	return fields(b, func(num protowire.Number, v uint64, b []byte) error {
		switch num {
		case 2:
			m.charsmap = b
		case 3:
			m.dummyPrefix = v != 0
		case 4:
			m.squeeze = v != 0
		case 5:
			m.escape = v != 0
		}
		return nil
	})
}
