package hf

import (
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// bitsandbytes NF4. For W[N][K], flattened, in blocks of blocksize weights:
//
//	NAME                                    [N*K/2][1]    codes, the first weight high
//	NAME.quant_map                      f32 [16]          the levels
//	NAME.absmax                         f32 [blocks]      or u8 where nested
//	NAME.nested_absmax, .nested_quant_map                 where nested
//	NAME.quant_state.bitsandbytes__nf4  u8                JSON: shape, blocksize, ...
//
//	w = level[code] * absmax;  absmax = nested_level[code]*nested_absmax + nested_offset
//
// The codes may be stored under any type (bnb_4bit_quant_storage): only their
// bytes count.
//
// Source: bitsandbytes' functional.py, class QuantState.
func (j *joiner) joinBitsAndBytes() error {
	const state = ".quant_state.bitsandbytes__"
	for i := range j.in {
		name := j.in[i].Name
		if strings.HasSuffix(name, ".SCB") {
			return formats.Unsupportedf(j.dir, name, "bitsandbytes with 8 bits (load_in_8bit); NF4 is read")
		}
		base, kind, ok := strings.Cut(name, state)
		if !ok {
			continue
		}
		if kind != "nf4" {
			return formats.Unsupportedf(j.dir, name, "bitsandbytes' type %q (nf4 is read)", kind)
		}
		at, ok := j.byName[base]
		if !ok {
			return formats.Errorf(j.dir, name, "the weights %q are missing", base)
		}
		j.used[i] = true
		if err := j.putNF4(at, &j.in[i]); err != nil {
			return err
		}
	}
	return nil
}

func (j *joiner) putNF4(at int, state *formats.Tensor) error {
	t := &j.in[at]
	if state.Parts[0].DType != tensor.U8 || state.Size() > 1<<16 {
		return j.wrongShape(state, "JSON in u8")
	}
	p, err := readAll(state.Parts[0].Data)
	if err != nil {
		return err
	}
	s, err := ParseConfig(j.dir+": "+state.Name, p)
	if err != nil {
		return err
	}
	shape, err := s.Ints("shape")
	if err != nil {
		return err
	}
	block, err := s.Int("blocksize")
	if err != nil {
		return err
	}
	n, err := tensor.Elements(shape)
	if err != nil || len(shape) < 2 || t.Size() != n/2+n%2 || block < 1 {
		return j.wrongShape(t, "the %v weights in blocks of %d of its quant_state", shape, block)
	}
	m := formats.Tensor{Name: t.Name, Shape: shape, Scheme: "nf4", Params: map[string]int64{"block": block}}
	m.Parts = append(m.Parts, formats.Part{Name: "codes", DType: tensor.U8, Shape: []int64{t.Size()}, Data: t.Parts[0].Data})
	for _, part := range []struct{ name, stored string }{{"levels", "quant_map"}, {"absmax", "absmax"}} {
		if err := j.addPart(&m, part.name, part.stored); err != nil {
			return err
		}
	}
	if s.Has("nested_blocksize") {
		if err := j.addNested(&m, s); err != nil {
			return err
		}
	}
	return j.put(at, m)
}

// addPart takes a tensor that lies beside the weights as a part.
func (j *joiner) addPart(m *formats.Tensor, name, stored string) error {
	t, err := j.need(m.Name+"."+stored, m.Name)
	if err != nil {
		return err
	}
	p := t.Parts[0]
	m.Parts = append(m.Parts, formats.Part{Name: name, DType: p.DType, Shape: []int64{t.Elements()}, Data: p.Data})
	return nil
}

func (j *joiner) addNested(m *formats.Tensor, s *Config) error {
	var err error
	if m.Params["nested"], err = s.Int("nested_blocksize"); err != nil {
		return err
	}
	offset, err := s.Float("nested_offset")
	if err != nil {
		return err
	}
	if err := j.addPart(m, "nested_absmax", "nested_absmax"); err != nil {
		return err
	}
	if err := j.addPart(m, "nested_levels", "nested_quant_map"); err != nil {
		return err
	}
	m.Parts = append(m.Parts, formats.Part{Name: "offset", DType: tensor.F32, Shape: []int64{1},
		Data: tensor.BytesBlob(float32Bytes([]float32{float32(offset)}))})
	return nil
}
