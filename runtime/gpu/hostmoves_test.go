package gpu

import (
	"slices"
	"testing"
)

// hostingOf is a hosting of so many pages, the first of which lie on the card, with how often each was chosen.
func hostingOf(card int, uses ...float32) *hosting {
	h := &hosting{e: &Engine{follow: following{heads: 4}}, card: int32(card), uses: uses, since: make([]int64, len(uses)), moved: make([]int64, len(uses)), pass: 1}
	for i := range uses {
		h.place, h.page = append(h.place, int32(i)), append(h.page, int32(i))
	}
	return h
}

func all(int32) bool { return true }

// A page returns for one that nobody holds however often that was chosen, and for one that is held where that pays.
func TestHostingReturns(t *testing.T) {
	none := func(page int32) bool { return page != 0 }
	for _, c := range []struct {
		what string
		held func(int32) bool
		card []int32
	}{
		{"one is held by nobody", none, []int32{2, 1}},
		{"all are held", all, []int32{0, 1}},
	} {
		h := hostingOf(2, 90, 90, 20)
		h.returns(c.held)
		if !slices.Equal(h.page[:2], c.card) {
			t.Errorf("%s: %d lie on the card, want %d", c.what, h.page[:2], c.card)
		}
	}
}

// For pages of a sequence that is read as a whole none leaves that another such was read as often; for what a
// pass writes any may leave.
func TestHostingBrings(t *testing.T) {
	for _, c := range []struct {
		what string
		want []wanted
		card []int32
	}{
		{"read as a whole", []wanted{{page: 3, filled: true, whole: true}, {page: 4, filled: true, whole: true}}, []int32{0, 1, 3}},
		{"written", []wanted{{page: 3}, {page: 4}}, []int32{4, 1, 3}},
	} {
		h := hostingOf(3, 64, 128, 63, 128, 128)
		h.bring(c.want, all)
		if !slices.Equal(h.page[:3], c.card) {
			t.Errorf("%s: %d lie on the card, want %d", c.what, h.page[:3], c.card)
		}
	}
}

// Counts on their way are no longer a slot's that was given back.
func TestHostingForgets(t *testing.T) {
	h := hostingOf(1, 0, 0)
	h.asked.tables = []slotPages{{0, []int32{1}}, {1, []int32{0}}}
	h.forget(0)
	if len(h.asked.tables) != 1 || h.asked.tables[0].slot != 1 {
		t.Errorf("%+v", h.asked.tables)
	}
	(*hosting)(nil).forget(0)
}
