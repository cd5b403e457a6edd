package gpu

import (
	"testing"

	"github.com/nstf/nstf/kernels/hip"
)

// TestLater wants what a source was rounded to dropped where it is not of the same rows,
// or lies where a form's second step has written.
func TestLater(t *testing.T) {
	w := &walk{e: &Engine{shape: shape{width: 8}}}
	in := source{x: 1024, fine: hip.Acts{Data: 4096}, turned: turned{x: 8192}}
	plain, form := &matrix{}, &matrix{formed: &formed{}}
	if got := w.later(in, 0, plain, nil); got != in {
		t.Errorf("behind a plain matrix: %+v", got)
	}
	if got := w.later(in, 0, plain, form); got != (source{x: 1024}) {
		t.Errorf("behind a form: %+v", got)
	}
	if got := w.later(in, 2, plain); got != (source{x: 1024 + 2*8*4}) {
		t.Errorf("from row 2 on: %+v", got)
	}
}
