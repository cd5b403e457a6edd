package devicetest

import (
	"testing"

	"github.com/nstf/nstf/runtime/device"
)

// Run appends tokens to a sequence and returns the logits [wanted][Vocab] of the
// last rows.
func Run(t testing.TB, s device.Stage, state device.State, tokens []int32, length int64, wanted int, vocab int64) []float32 {
	t.Helper()
	if err := state.Reserve(state.Len() + int64(len(tokens))); err != nil {
		t.Fatal(err)
	}
	pass, err := s.Forward(&device.Batch{Segments: []device.Segment{{State: state, Tokens: tokens, Length: length, Wanted: wanted}}})
	if err != nil || wanted == 0 {
		if err != nil {
			t.Fatal(err)
		}
		return nil
	}
	out := make([]float32, int64(wanted)*vocab)
	if err := pass.Logits(0, wanted, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// State returns an empty sequence. The caller releases it.
func State(t testing.TB, s device.Stage, capacity int64) device.State {
	t.Helper()
	state, err := s.NewState(capacity)
	if err != nil {
		t.Fatal(err)
	}
	return state
}
