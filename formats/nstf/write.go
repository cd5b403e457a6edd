package nstf

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/zeebo/blake3"
	"golang.org/x/sync/errgroup"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/tensor"
)

// WriteOptions are how to write; the zero value is fine.
type WriteOptions struct {
	// Progress is called, from one goroutine, after each run of at most
	// 1 MiB with the bytes of tensors and files written and their total.
	Progress func(done, total int64)
	// Context ends the writing early, nil never.
	Context context.Context
}

// Write writes a package. Same input gives same bytes.
//
// All sizes are checked and laid out before a byte is written. Tensors are
// then streamed in order, at most one part in memory and only where its Blob
// computes it, and hashed on the way. The file appears under its name when it is
// whole and on the disk; after an error, or when the context ends, nothing is
// left and what was there is untouched.
//
// Its errors are a [*formats.FormatError] or [*formats.UnsupportedError] that
// names the item which a package cannot hold, an [*atomicfile.DiskFullError],
// the context's error, or what reading a Blob or the system says.
func Write(out *atomicfile.Output, m Meta, items []Item, o WriteOptions) error {
	ctx := o.Context
	if ctx == nil {
		ctx = context.Background()
	}
	h, size, err := compose(out.Path(), m, items)
	if err != nil {
		return err
	}
	f, err := out.Create(size)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := h.write(ctx, f, o.Progress); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return f.Commit()
}

// compose makes the header, hashes of tensors and sources still zero, and
// returns the size of the file. The reader's own checks are its judge, so
// that nothing can be written that cannot be read.
func compose(path string, m Meta, items []Item) (*header, int64, error) {
	if len(m.Model) == 0 {
		return nil, 0, formats.Errorf(path, "", "the model's JSON is missing")
	}
	for _, f := range m.Files {
		if strings.HasPrefix(f.Name, reservedPrefix) && !slices.Contains([]string{LedgerFile, PlanFile, AttentionFile, KVFile, ExpertsFile}, f.Name) {
			return nil, 0, formats.Errorf(path, f.Name, "names that begin with %q are reserved", reservedPrefix)
		}
	}
	files, err := packFiles(m.Files)
	if err != nil {
		return nil, 0, err
	}
	h := &header{provenance: m.Provenance, model: m.Model, files: files}
	if err := h.measureSources(path); err != nil {
		return nil, 0, err
	}
	h.tensors = make([]tensorRecord, len(items))
	for i, it := range items {
		if len(it.Parts) == 0 {
			return nil, 0, formats.Errorf(path, it.Name, "a tensor without parts")
		}
		h.tensors[i] = tensorRecord{Item: it, offsets: make([]int64, len(it.Parts))}
	}
	dataSize := h.assign()
	json := h.encode()
	if len(json) > MaxHeader {
		return nil, 0, formats.Errorf(path, "", "the header would take %d bytes; %d are possible", len(json), MaxHeader)
	}
	dataStart := alignUp(preambleSize+int64(len(json)), pageSize)
	_, err = newDecoder(json, path, nil, dataStart, dataStart+dataSize).decode()
	return h, dataStart + dataSize, err
}

// measureSources sets the sizes of the sources that are to be hashed. The
// list is copied: the caller's stays as it is.
func (h *header) measureSources(path string) error {
	h.provenance.Sources = append([]Source(nil), h.provenance.Sources...)
	for i := range h.provenance.Sources {
		s := &h.provenance.Sources[i]
		if s.Path == "" {
			if s.Hash == (Hash{}) {
				return formats.Errorf(path, "", "source %q has neither a hash nor a path to hash", s.Name)
			}
			continue
		}
		if s.Remote != nil {
			s.Size = s.Remote.Size()
			continue
		}
		info, err := os.Stat(s.Path)
		if err != nil {
			return err
		}
		s.Size = info.Size()
	}
	return nil
}

// write fills w: data first, header last, so that a file cut short by a
// crash does not begin like a package.
func (h *header) write(ctx context.Context, w io.WriterAt, progress func(done, total int64)) error {
	headSize := int64(len(h.encode()))
	dataStart := alignUp(preambleSize+headSize, pageSize)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.hashSources(ctx) })
	g.Go(func() error { return h.writeData(ctx, w, dataStart, progress) })
	if err := g.Wait(); err != nil {
		return err
	}
	json := h.encode()
	if int64(len(json)) != headSize {
		panic("nstf: the header changed its size while the data were written")
	}
	head := make([]byte, dataStart)
	size := uint64(h.end(dataStart))
	copy(head, Magic)
	binary.LittleEndian.PutUint32(head[8:], Version)
	binary.LittleEndian.PutUint64(head[16:], uint64(headSize))
	binary.LittleEndian.PutUint64(head[24:], size)
	copy(head[preambleSize:], json)
	root := rootHash(head[:hashedSize], json)
	copy(head[hashedSize:], root[:])
	_, err := w.WriteAt(head, 0)
	return err
}

// end returns the size of the file.
func (h *header) end(dataStart int64) int64 {
	if e := h.extents(); len(e) > 0 {
		dataStart += e[len(e)-1].end
	}
	return alignUp(dataStart, pageSize)
}

// writeData writes all extents by ascending offset and records the hashes of
// the tensors.
func (h *header) writeData(ctx context.Context, w io.WriterAt, dataStart int64, progress func(done, total int64)) error {
	extents := h.extents()
	s := newStream(ctx, w, progress)
	defer s.close()
	for _, e := range extents {
		if e.tensor >= 0 {
			s.total += h.tensors[e.tensor].Size()
		} else {
			s.total += h.files[e.file].size
		}
	}
	for _, e := range extents {
		if e.file >= 0 {
			f := &h.files[e.file]
			if _, err := s.part(dataStart+f.offset, tensor.BytesBlob(f.stored)); err != nil {
				return err
			}
			continue
		}
		r := &h.tensors[e.tensor]
		of := copyOf(r)
		s.hash.Reset()
		for i, p := range r.Parts {
			data := p.Data
			if of != nil {
				data = data.Unchecked() // one hash says what is written and what was read
			}
			n, err := s.part(dataStart+r.offsets[i], data)
			if err != nil {
				return fmt.Errorf("tensor %q: %w", r.Name, err)
			}
			if n != p.Data.Len() {
				return formats.Errorf("", r.Name, "part %q gave %d bytes instead of %d", p.Name, n, p.Data.Len())
			}
		}
		s.hash.Sum(r.hash[:0])
		if of != nil {
			if err := of.passed(r.hash); err != nil {
				return fmt.Errorf("tensor %q: %w", r.Name, err)
			}
		}
	}
	return s.finish(h.end(dataStart))
}

// chunk is the most that is read or hashed at once.
const chunk = 1 << 20

// largePage is what the file is written by, at multiples of it: the page cache keeps what
// is written at once in one page where it can, and a package is often run right after
// it was made, with weights that are read much faster from large pages.
const largePage = 2 << 20

// A stream writes a file from its start and hashes what it writes on a second core.
type stream struct {
	ctx         context.Context
	w           io.WriterAt
	at          int64  // where the next byte goes
	page        []byte // those before it that are not written yet, of one large page
	done, total int64
	progress    func(done, total int64)
	hash        *blake3.Hasher
	work        chan []byte
	idle        chan struct{}
}

func newStream(ctx context.Context, w io.WriterAt, progress func(done, total int64)) *stream {
	s := &stream{ctx: ctx, w: w, progress: progress, hash: blake3.New(),
		page: make([]byte, 0, largePage), work: make(chan []byte), idle: make(chan struct{})}
	go func() {
		for p := range s.work {
			s.hash.Write(p)
			s.idle <- struct{}{}
		}
	}()
	return s
}

func (s *stream) close() { close(s.work) }

// finish writes zeros up to the file's end, and what is not written yet.
func (s *stream) finish(end int64) error {
	if err := s.zeros(end); err != nil {
		return err
	}
	return s.flush()
}

// part writes zeros up to an offset, then a Blob.
func (s *stream) part(at int64, b tensor.Blob) (int64, error) {
	if err := s.zeros(at); err != nil {
		return 0, err
	}
	_, err := b.WriteTo(s)
	return s.at - at, err
}

// zeros writes zeros up to an offset.
func (s *stream) zeros(to int64) error {
	for s.at < to {
		n := min(to-s.at, largePage-s.at%largePage)
		if err := s.put(make([]byte, n)); err != nil {
			return err
		}
	}
	return nil
}

// Write implements io.Writer. p is used until it returns, no longer.
func (s *stream) Write(p []byte) (int, error) {
	for n := 0; n < len(p); {
		if err := context.Cause(s.ctx); err != nil {
			return n, err
		}
		q := p[n:min(n+largePage-int(s.at%largePage), len(p))]
		s.work <- q
		err := s.put(q)
		<-s.idle
		if err != nil {
			return n, err
		}
		n += len(q)
		s.done += int64(len(q))
		if s.progress != nil {
			s.progress(s.done, s.total)
		}
	}
	return len(p), nil
}

// put takes bytes that do not cross the end of a large page, and writes those that
// reach it.
func (s *stream) put(p []byte) error {
	if len(p) == largePage {
		_, err := s.w.WriteAt(p, s.at)
		s.at += largePage
		return err
	}
	s.page = append(s.page, p...)
	s.at += int64(len(p))
	if s.at%largePage != 0 {
		return nil
	}
	return s.flush()
}

// flush writes what is gathered.
func (s *stream) flush() error {
	_, err := s.w.WriteAt(s.page, s.at-int64(len(s.page)))
	s.page = s.page[:0]
	return err
}
