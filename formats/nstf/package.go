package nstf

import (
	"encoding/json"
	"slices"

	"github.com/nstf/nstf/formats"
)

// An Item is a tensor of a package: in storage form, with what the package
// says about it. Immutable.
type Item struct {
	formats.Tensor
	Passthrough bool // the graph does not know the tensor; it travels along
}

// A File is an attached file, byte for byte as it was.
type File struct {
	Name string // slash-separated, relative
	Data []byte
}

// A FileInfo describes an attached file without reading it.
type FileInfo struct {
	Name   string
	Size   int64 // bytes of the file
	Stored int64 // bytes it takes in the package
	// Unknown says what keeps this program from decoding the file; "" from [Open].
	Unknown string
}

// Meta is what a package holds besides tensors.
type Meta struct {
	// Model is a JSON object that formats/model owns; it is stored verbatim
	// and not looked into.
	Model      json.RawMessage
	Files      []File // in any order; stored by ascending name
	Provenance Provenance
}

// Provenance says how a package was made.
type Provenance struct {
	Tool    string   // name and version of the program
	Flags   []string // its arguments that decided something
	Sources []Source // what it read, in its order
	Notes   []string // what whoever uses the package should know
	Created string   // time in RFC 3339, or "" for a reproducible package
}

// Spelled returns p with its control characters spelled, as a package must have them
// (H13): arguments and names of files come from anywhere.
func (p Provenance) Spelled() Provenance {
	p.Tool, p.Created = formats.Printable(p.Tool), formats.Printable(p.Created)
	p.Flags, p.Notes, p.Sources = slices.Clone(p.Flags), slices.Clone(p.Notes), slices.Clone(p.Sources)
	for i, s := range p.Flags {
		p.Flags[i] = formats.Printable(s)
	}
	for i, s := range p.Notes {
		p.Notes[i] = formats.Printable(s)
	}
	for i, s := range p.Sources {
		p.Sources[i].Name = formats.Printable(s.Name)
	}
	return p
}

// A Source is a file that a package was made from.
type Source struct {
	Role string // what it was: "model", "text", "statistics", "plan", ...
	Name string // without the folders of the machine it lay on
	Size int64
	Hash Hash // BLAKE3 of the whole file

	// Path, where set, makes Write fill in Size and Hash itself: it hashes
	// the file beside writing the tensors. It is not stored.
	Path   string
	Remote formats.RemoteFile // what is read for it where it is not on the disk; else nil
}

// A header is the JSON part of a package, with the places of everything.
type header struct {
	requires   []string
	provenance Provenance
	files      []fileRecord
	model      json.RawMessage
	tensors    []tensorRecord
	byName     map[string]int // index into tensors; when reading
	unknown    map[int]string // what keeps tensors from being decoded; when reading
}

// A tensorRecord is an Item and where its parts lie. offsets count from the
// start of the data section.
type tensorRecord struct {
	Item
	offsets []int64
	hash    Hash
	guard   *guard // what the parts are read through; nil while a package is written
}

// extent returns where the parts begin and end, gaps between them included.
func (r *tensorRecord) extent() (begin, end int64) {
	last := len(r.offsets) - 1
	return r.offsets[0], r.offsets[last] + r.Parts[last].Data.Len()
}

// A fileRecord is an attached file as stored.
type fileRecord struct {
	name     string
	encoding string
	offset   int64
	size     int64 // stored
	decoded  int64
	hash     Hash // of the stored bytes
	unknown  string

	stored []byte // when writing
}

// Encodings of attached files.
const (
	encodingNone = "none"
	encodingZstd = "zstd"
)
