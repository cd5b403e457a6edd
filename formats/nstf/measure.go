package nstf

// A Measure tells the size of a package that is not written yet. It keeps the
// attached files as they would be stored, so that asking again is cheap. It is
// immutable.
type Measure struct{ h header }

// NewMeasure prepares to measure packages with this beside their tensors.
// Sources need no hash; one with a path has the size of that file. Errors are
// those of looking at these.
func NewMeasure(m Meta) (*Measure, error) {
	files, err := packFiles(m.Files)
	if err != nil {
		return nil, err
	}
	out := &Measure{header{provenance: m.Provenance, model: m.Model, files: files}}
	for i := range out.h.provenance.Sources {
		if s := &out.h.provenance.Sources[i]; s.Path == "" && s.Hash == (Hash{}) {
			s.Hash[0] = 1 // a hash has one length
		}
	}
	return out, out.h.measureSources("")
}

// Size returns the bytes of the whole file that [Write] would make of these
// items and more files. Nothing of the items' parts is read, and what a package
// cannot hold is not looked for.
func (m *Measure) Size(items []Item, more ...File) (int64, error) {
	extra, err := packFiles(more)
	if err != nil {
		return 0, err
	}
	h := header{provenance: m.h.provenance, model: m.h.model, tensors: make([]tensorRecord, len(items))}
	h.files = append(append(h.files, m.h.files...), extra...)
	for i, it := range items {
		h.tensors[i] = tensorRecord{Item: it, offsets: make([]int64, len(it.Parts))}
	}
	data := h.assign()
	return alignUp(preambleSize+int64(len(h.encode())), pageSize) + data, nil
}

// MostItemBytes returns the most bytes that an item adds to a package, short
// of the one page that the whole file is filled up to.
func MostItemBytes(it Item) int64 {
	r := tensorRecord{Item: it, offsets: make([]int64, len(it.Parts))}
	for i := range r.offsets {
		r.offsets[i] = 1 << 40
	}
	var e encoder
	e.line(1)
	e.tensor(&r)
	span := r.span()
	return alignUp(span, alignOf(span)) + int64(len(e.p))
}
