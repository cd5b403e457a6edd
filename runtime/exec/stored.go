package exec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/nstf/nstf/runtime/cpu"
	"github.com/nstf/nstf/runtime/device"
)

// Storable reports whether what sequences remember can be written down, which the
// processor's can.
func (e *Executor) Storable() bool {
	for _, s := range e.stages {
		if _, ok := s.(*cpu.Engine); !ok {
			return false
		}
	}
	return true
}

// Arithmetic names what the bits of a sequence's memory depend on beside the model.
func (e *Executor) Arithmetic() string {
	names := ""
	for _, s := range e.stages {
		if c, ok := s.(*cpu.Engine); ok {
			names += c.Arithmetic() + "\n"
		} else {
			names += fmt.Sprintf("%T\n", s)
		}
	}
	return names
}

// AppendPage appends a page of a snapshot of a [Executor.Storable] model: what all
// stages remember of its positions.
func (n *Snapshot) AppendPage(dst []byte, page int) []byte {
	n.e.mu.Lock()
	defer n.e.mu.Unlock()
	return n.append(dst, func(dst []byte, s device.Storable) []byte { return s.AppendPage(dst, page) })
}

// AppendRest appends what a snapshot remembers that is not kept by position.
func (n *Snapshot) AppendRest(dst []byte) []byte {
	n.e.mu.Lock()
	defer n.e.mu.Unlock()
	return n.append(dst, func(dst []byte, s device.Storable) []byte { return s.AppendRest(dst) })
}

// append appends a piece of each stage, behind its length.
func (n *Snapshot) append(dst []byte, piece func(dst []byte, s device.Storable) []byte) []byte {
	for _, s := range n.states {
		at := len(dst)
		dst = piece(binary.LittleEndian.AppendUint64(dst, 0), s.(device.Storable))
		binary.LittleEndian.PutUint64(dst[at:], uint64(len(dst)-at-8))
	}
	return dst
}

// Load makes an empty sequence begin with tokens that were computed in the order of
// prompts, of a prompt of so many: pages and rest are what a snapshot of the same model
// and [Executor.Arithmetic] wrote of them. Where there is no room the error is a
// cache.FullError; any error leaves the sequence empty.
func (s *Sequence) Load(tokens []int32, prompt int64, pages [][]byte, rest []byte) (err error) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if len(s.history) > 0 {
		panic("exec: Load into a sequence that is not empty")
	}
	if err := s.admit(tokens); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.truncate(0)
		}
	}()
	pages = slices.Clone(pages)
	for _, state := range s.states {
		own := make([][]byte, len(pages))
		for i := range pages {
			if own[i], pages[i], err = cut(pages[i]); err != nil {
				return err
			}
		}
		var last []byte
		if len(rest) > 0 {
			if last, rest, err = cut(rest); err != nil {
				return err
			}
		}
		loader, ok := state.(device.Loader)
		if !ok {
			return errors.New("exec: what this device remembers cannot be loaded")
		}
		if err := loader.Load(int64(len(tokens)), own, last); err != nil {
			return err
		}
	}
	s.history, s.prompted, s.length = slices.Clone(tokens), len(tokens), prompt
	return nil
}

// cut takes a piece off that stands behind its length.
func cut(p []byte) (piece, rest []byte, err error) {
	if len(p) < 8 || binary.LittleEndian.Uint64(p) > uint64(len(p)-8) {
		return nil, nil, fmt.Errorf("exec: a piece of %d bytes is cut short", len(p))
	}
	n := int(binary.LittleEndian.Uint64(p))
	return p[8 : 8+n], p[8+n:], nil
}
