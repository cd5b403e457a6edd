package nstf

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/zeebo/blake3"

	"github.com/nstf/nstf/formats"
)

// A Package is an open package. Its tensors are read, or mapped, when they
// are asked for. All methods but Close may be used from several goroutines.
type Package struct {
	path      string
	size      int64
	src       io.ReaderAt
	closer    io.Closer
	root      Hash
	headerEnd int64 // file offset of the first byte after the JSON
	dataStart int64
	header    *header
}

// Open opens a package: it reads the header, checks the root hash and every
// place, size, name and scheme, and reads nothing else. Tensors are not
// hashed; [Package.Verify] does that.
//
// Its errors are a [*formats.FormatError] where the file is damaged or lies,
// a [*formats.UnsupportedError] where it needs a newer program, or what the
// system says about the file.
func Open(path string) (*Package, error) { return OpenFrom(nil, path) }

// OpenFrom is [Open] where the file may not be on the disk.
func OpenFrom(remote formats.Remote, path string) (*Package, error) {
	return openFile(remote, path, false)
}

// OpenStored opens a package for a program that lists, verifies or hands on what is stored
// and decodes no tensor (T4 in docs/nstf.md). Where [Open] refuses a scheme, a form, an
// element type or an encoding that is not known, it takes the entry as it stands: all but
// the parameters and parts that a scheme's page would ask for is checked, and
// [Package.Unknown], [Package.UnknownOf] and [FileInfo] say what was not known. Its errors are those of
// Open.
func OpenStored(path string) (*Package, error) { return openFile(nil, path, true) }

func openFile(remote formats.Remote, path string, stored bool) (*Package, error) {
	f, err := remote.Open(path)
	if err != nil {
		return nil, err
	}
	p, err := openAs(f, f.Size(), path, stored)
	if err != nil {
		f.Close()
		return nil, err
	}
	p.closer = f
	return p, nil
}

// openAs reads a package; stored takes what is not known.
func openAs(src io.ReaderAt, size int64, path string, stored bool) (*Package, error) {
	p := &Package{path: path, size: size, src: src}
	head, err := p.preamble()
	if err != nil {
		return nil, err
	}
	d := newDecoder(head, path, src, p.dataStart, size)
	d.stored = stored
	if p.header, err = d.decode(); err != nil {
		return nil, err
	}
	return p, nil
}

// preamble checks the fixed part and returns the JSON behind it.
func (p *Package) preamble() ([]byte, error) {
	var pre [preambleSize]byte
	n, err := p.src.ReadAt(pre[:min(p.size, preambleSize)], 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if n < len(Magic) || string(pre[:len(Magic)]) != Magic {
		return nil, formats.ErrorAt(p.path, "", 0, "not an NSTF package: it begins with %q", pre[:min(n, len(Magic))])
	}
	if n < preambleSize {
		return nil, formats.ErrorAt(p.path, "", int64(n), "truncated: %d bytes, the preamble alone has %d", n, preambleSize)
	}
	headSize, err := p.checkPreamble(pre[:])
	if err != nil {
		return nil, err
	}
	head := make([]byte, p.dataStart-preambleSize)
	if _, err := io.ReadFull(io.NewSectionReader(p.src, preambleSize, int64(len(head))), head); err != nil {
		return nil, err
	}
	json, padding := head[:headSize], head[headSize:]
	p.root = rootHash(pre[:hashedSize], json)
	if stored := Hash(pre[hashedSize:]); p.root != stored {
		return nil, formats.ErrorAt(p.path, "", preambleSize,
			"header damaged: its %d bytes hash to %v, the preamble says %v", headSize, p.root, stored)
	}
	if i := slices.IndexFunc(padding, func(b byte) bool { return b != 0 }); i >= 0 {
		return nil, formats.ErrorAt(p.path, "", p.headerEnd+int64(i), "padding byte %#02x behind the header is not 0", padding[i])
	}
	return json, nil
}

// checkPreamble checks everything in the preamble but the hash, sets where
// header and data lie, and returns the size of the JSON.
func (p *Package) checkPreamble(pre []byte) (int64, error) {
	le := binary.LittleEndian
	version, reserved := le.Uint32(pre[8:]), le.Uint32(pre[12:])
	headSize, fileSize := le.Uint64(pre[16:]), le.Uint64(pre[24:])
	switch {
	case version == 0:
		return 0, formats.ErrorAt(p.path, "", 8, "format version 0 does not exist")
	case version > Version:
		return 0, &formats.UnsupportedError{File: p.path, Offset: 8,
			Feature: fmt.Sprintf("format version %d; this program reads up to %d", version, Version),
			Hint:    "use a newer release of nstf"}
	case reserved != 0:
		return 0, formats.ErrorAt(p.path, "", 12, "reserved field is %#x instead of 0", reserved)
	case headSize < 2 || headSize > MaxHeader:
		return 0, formats.ErrorAt(p.path, "", 16, "header of %d bytes; 2 to %d are possible", headSize, MaxHeader)
	case fileSize != uint64(p.size):
		return 0, formats.ErrorAt(p.path, "", 24, "file has %d bytes, but says that it has %d: truncated or extended", p.size, fileSize)
	case fileSize%pageSize != 0:
		return 0, formats.ErrorAt(p.path, "", 24, "file size %d is not a multiple of %d", fileSize, pageSize)
	}
	p.headerEnd = preambleSize + int64(headSize)
	p.dataStart = alignUp(p.headerEnd, pageSize)
	if p.dataStart > p.size {
		return 0, formats.ErrorAt(p.path, "", 16, "header of %d bytes does not fit a file of %d", headSize, p.size)
	}
	return int64(headSize), nil
}

// rootHash covers the first half of the preamble and the JSON, and through
// the hashes in the JSON everything else.
func rootHash(preamble, json []byte) (root Hash) {
	h := blake3.New()
	h.Write(preamble)
	h.Write(json)
	h.Sum(root[:0])
	return root
}

// Path returns the path the package was opened by.
func (p *Package) Path() string { return p.path }

// Size returns the bytes of the whole file.
func (p *Package) Size() int64 { return p.size }

// Root returns the root hash, which names the whole content.
func (p *Package) Root() Hash { return p.root }

// Model returns the model's JSON, verbatim. The caller must not change it.
func (p *Package) Model() json.RawMessage { return p.header.model }

// Provenance returns how the package was made.
func (p *Package) Provenance() Provenance { return p.header.provenance }

// Tensors returns all tensors in the package's order. The caller must not
// change what the slice shares.
func (p *Package) Tensors() []Item {
	items := make([]Item, len(p.header.tensors))
	for i := range items {
		items[i] = p.header.tensors[i].Item
	}
	return items
}

// Unknown lists what of a package opened by [OpenStored] this program does not know,
// such as `scheme "q9"`, each once, in the order of the header.
func (p *Package) Unknown() []string {
	var out []string
	note := func(what string) {
		if what != "" && !slices.Contains(out, what) {
			out = append(out, what)
		}
	}
	for i := range p.header.files {
		note(p.header.files[i].unknown)
	}
	for _, i := range slices.Sorted(maps.Keys(p.header.unknown)) {
		note(p.header.unknown[i])
	}
	return out
}

// UnknownOf says what keeps this program from decoding a tensor of a package opened by
// [OpenStored], such as `scheme "q9"`; "" where it is known. A part of an unknown type has
// the type [tensor.Invalid].
func (p *Package) UnknownOf(name string) string {
	i, ok := p.header.byName[name]
	if !ok {
		return ""
	}
	return p.header.unknown[i]
}

// Tensor returns the tensor of this name.
func (p *Package) Tensor(name string) (Item, bool) {
	i, ok := p.header.byName[name]
	if !ok {
		return Item{}, false
	}
	return p.header.tensors[i].Item, true
}

// Close closes the file. Mapped tensors are gone afterwards.
func (p *Package) Close() error {
	if p.closer == nil {
		return nil
	}
	return p.closer.Close()
}
