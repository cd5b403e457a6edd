package nstf

import (
	"cmp"
	"slices"

	"github.com/nstf/nstf/formats"
)

// An extent is a run of the data section that holds one tensor or one
// attached file. Offsets count from the start of the section.
type extent struct {
	begin, end int64
	align      int64
	name       string
	tensor     int // index into header.tensors, -1 for a file
	file       int // index into header.files, -1 for a tensor
}

// assign lays out the data section: tensors of less than 64 KiB share a run
// at its start, attached files follow, then the other tensors on pages of
// their own. It needs sizes only and returns the size of the section.
func (h *header) assign() int64 {
	at := int64(0)
	tensors := func(small bool) {
		for i := range h.tensors {
			r := &h.tensors[i]
			if size := r.span(); (size < smallSize) == small {
				at = r.spread(alignUp(at, alignOf(size)))
			}
		}
	}
	tensors(true)
	for i := range h.files {
		f := &h.files[i]
		f.offset = alignUp(at, partAlign)
		at = f.offset + f.size
	}
	tensors(false)
	return alignUp(at, pageSize)
}

// span returns the bytes from the first part's begin to the last one's end.
func (r *tensorRecord) span() int64 {
	at := int64(0)
	for _, p := range r.Parts {
		at = alignUp(at, partAlign) + p.Data.Len()
	}
	return at
}

// spread places the parts from begin on and returns the end of the last.
func (r *tensorRecord) spread(begin int64) int64 {
	at := begin
	for i, p := range r.Parts {
		r.offsets[i] = alignUp(at, partAlign)
		at = r.offsets[i] + p.Data.Len()
	}
	return at
}

// extents lists tensors and files by ascending offset.
func (h *header) extents() []extent {
	out := make([]extent, 0, len(h.tensors)+len(h.files))
	for i := range h.tensors {
		begin, end := h.tensors[i].extent()
		out = append(out, extent{begin, end, alignOf(end - begin), h.tensors[i].Name, i, -1})
	}
	for i := range h.files {
		f := &h.files[i]
		out = append(out, extent{f.offset, f.offset + f.size, partAlign, f.name, -1, i})
	}
	slices.SortStableFunc(out, func(a, b extent) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	return out
}

// checkLayout holds everything to the one place it can have in the given
// order: right after what comes before, at its alignment. So nothing overlaps
// and no byte of the section is without an owner but padding.
func (d *decoder) checkLayout(h *header) error {
	for i := range h.tensors {
		if err := d.checkParts(&h.tensors[i]); err != nil {
			return err
		}
	}
	at := int64(0)
	for _, e := range h.extents() {
		if want := alignUp(at, e.align); e.begin != want {
			return formats.ErrorAt(d.file, e.name, d.dataStart+e.begin,
				"lies at %d of the data, but %d is the next multiple of %d", e.begin, want, e.align)
		}
		at = e.end
	}
	if want := alignUp(at, pageSize); d.dataSize != want {
		return formats.ErrorAt(d.file, "", d.dataStart+at,
			"%d bytes of data, but tensors and files fill %d", d.dataSize, want)
	}
	return nil
}

// checkParts holds the parts of a tensor to lie one behind the other.
func (d *decoder) checkParts(r *tensorRecord) error {
	at := r.offsets[0]
	for i, p := range r.Parts {
		if want := alignUp(at, partAlign); i > 0 && r.offsets[i] != want {
			return formats.ErrorAt(d.file, r.Name, d.dataStart+r.offsets[i],
				"part %q lies at %d of the data instead of %d, right behind part %q",
				p.Name, r.offsets[i], want, r.Parts[i-1].Name)
		}
		at = r.offsets[i] + p.Data.Len()
	}
	return nil
}
