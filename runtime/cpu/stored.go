package cpu

import (
	"fmt"

	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/runtime/device"
)

var (
	_ device.Storable = (*state)(nil)
	_ device.Loader   = (*state)(nil)
)

// AppendRest implements device.Storable.
func (s *state) AppendRest(dst []byte) []byte {
	if s.place >= 0 {
		b, _ := tensor.Float32Bytes(s.numbers())
		dst = append(dst, b...)
	}
	return s.AppendNewest(dst)
}

// Load implements device.Loader.
func (s *state) Load(n int64, pages [][]byte, rest []byte) (err error) {
	numbers := rest
	if s.m.size > 0 {
		if int64(len(rest)) < s.m.bytes() {
			return fmt.Errorf("cpu: a state of %d bytes, not %d", len(rest), s.m.bytes())
		}
		numbers, rest = rest[:s.m.bytes()], rest[s.m.bytes():]
	}
	if s.place, err = s.m.take(); err != nil {
		return err
	}
	if rest, err = s.LoadNewest(n, rest); err != nil {
		return err
	}
	if len(rest) > 0 {
		return fmt.Errorf("cpu: a state of %d bytes more than are wanted", len(rest))
	}
	for i, p := range pages {
		if len(p) != s.PageBytes() {
			return fmt.Errorf("cpu: a page of %d bytes, not %d", len(p), s.PageBytes())
		}
		s.SetPage(i, p)
	}
	if s.place >= 0 {
		to, ok := tensor.Float32Bytes(s.numbers())
		if !ok || len(to) != len(numbers) {
			return fmt.Errorf("cpu: a state of %d bytes, not %d", len(numbers), len(to))
		}
		copy(to, numbers)
	}
	return nil
}

// Arithmetic names what bits depend on beside the model.
func (e *Engine) Arithmetic() string {
	name := fmt.Sprintf("cpu %v, cache %v, activations %s", e.set.Level(), e.kept, e.activations)
	if p := e.policy; p.ForPrompts() {
		name += fmt.Sprintf(", blocks of prompts read %v of the pages behind %d", p.Prompts, p.Least)
	}
	return name
}
