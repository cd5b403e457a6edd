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
	if s.place < 0 {
		return dst
	}
	b, _ := tensor.Float32Bytes(s.numbers())
	return append(dst, b...)
}

// Load implements device.Loader.
func (s *state) Load(n int64, pages [][]byte, rest []byte) error {
	for i, p := range pages {
		if len(p) != s.PageBytes() {
			return fmt.Errorf("cpu: a page of %d bytes, not %d", len(p), s.PageBytes())
		}
		s.SetPage(i, p)
	}
	if s.place >= 0 {
		to, ok := tensor.Float32Bytes(s.numbers())
		if !ok || len(to) != len(rest) {
			return fmt.Errorf("cpu: a state of %d bytes, not %d", len(rest), len(to))
		}
		copy(to, rest)
	}
	s.Advance(n)
	return nil
}

// Arithmetic names what bits depend on beside the model.
func (e *Engine) Arithmetic() string {
	return fmt.Sprintf("cpu %v, cache %v, activations %s", e.set.Level(), e.kept, e.activations)
}
