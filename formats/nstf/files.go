package nstf

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/blake3"

	"github.com/nstf/nstf/formats"
)

// compressor has one goroutine and one level: the same bytes everywhere. Its tables are made once: a plan is measured
// many times.
var compressor = sync.OnceValues(func() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression))
})

// packFiles encodes the attached files and sorts them by name.
func packFiles(files []File) ([]fileRecord, error) {
	if len(files) == 0 {
		return nil, nil
	}
	enc, err := compressor()
	if err != nil {
		return nil, err
	}
	out := make([]fileRecord, len(files))
	for i, f := range files {
		out[i] = packFile(enc, f)
	}
	slices.SortStableFunc(out, func(a, b fileRecord) int { return cmp.Compare(a.name, b.name) })
	return out, nil
}

// packFile encodes one file: as it is where zstd does not make it smaller,
// or would exceed what readers accept.
func packFile(enc *zstd.Encoder, f File) fileRecord {
	r := fileRecord{name: f.Name, encoding: encodingNone, stored: f.Data, decoded: int64(len(f.Data))}
	if r.decoded <= MaxDecoded {
		frame := enc.EncodeAll(f.Data, nil)
		if n := int64(len(frame)); n < r.decoded && r.decoded <= n*MaxRatio {
			r.encoding, r.stored = encodingZstd, frame
		}
	}
	r.size = int64(len(r.stored))
	r.hash = blake3.Sum256(r.stored)
	return r
}

// Files lists the attached files by ascending name.
func (p *Package) Files() []FileInfo {
	out := make([]FileInfo, len(p.header.files))
	for i, f := range p.header.files {
		out[i] = FileInfo{Name: f.name, Size: f.decoded, Stored: f.size, Unknown: f.unknown}
	}
	return out
}

// File returns an attached file as it was, after checking its hash. Where
// there is none of this name, the error is fs.ErrNotExist; one whose encoding
// is not known is a [*formats.UnsupportedError].
func (p *Package) File(name string) ([]byte, error) {
	i, ok := slices.BinarySearchFunc(p.header.files, name, func(f fileRecord, name string) int {
		return cmp.Compare(f.name, name)
	})
	if !ok {
		return nil, fmt.Errorf("%s: attached file %q: %w", p.path, name, fs.ErrNotExist)
	}
	return p.readFile(&p.header.files[i])
}

func (p *Package) readFile(f *fileRecord) ([]byte, error) {
	stored, err := p.readStored(f)
	switch {
	case err != nil:
		return nil, err
	case f.unknown != "":
		return nil, formats.Unsupportedf(p.path, f.name, "%s", f.unknown)
	case f.encoding == encodingNone:
		return stored, nil
	}
	data, err := unzstd(stored, f.decoded)
	if err != nil {
		return nil, &formats.FormatError{File: p.path, Tensor: f.name, Offset: p.dataStart + f.offset, Reason: "zstd", Err: err}
	}
	return data, nil
}

// readStored returns a file's bytes as they are stored, after checking their hash.
func (p *Package) readStored(f *fileRecord) ([]byte, error) {
	stored := make([]byte, f.size)
	at := p.dataStart + f.offset
	if _, err := io.ReadFull(io.NewSectionReader(p.src, at, f.size), stored); err != nil {
		return nil, err
	}
	if got := Hash(blake3.Sum256(stored)); got != f.hash {
		return nil, damaged(p.path, f.name, at, f.size, got, f.hash)
	}
	return stored, nil
}

// unzstd decodes a stream of exactly size bytes. The output's capacity is
// fixed, so a stream that lies about its size cannot grow it.
func unzstd(stored []byte, size int64) ([]byte, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	data, err := dec.DecodeAll(stored, make([]byte, 0, size))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) != size {
		return nil, fmt.Errorf("%d bytes decoded instead of %d", len(data), size)
	}
	return data, nil
}

// damaged says that a range does not have its hash.
func damaged(path, name string, at, size int64, got, want Hash) error {
	return formats.ErrorAt(path, name, at, "damaged: its %d bytes hash to %v, the header says %v", size, got, want)
}
