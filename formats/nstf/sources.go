package nstf

import (
	"context"
	"io"

	"github.com/zeebo/blake3"

	"github.com/nstf/nstf/formats"
)

// HashFile hashes a whole file and returns its size. It stops when the
// context ends.
func HashFile(ctx context.Context, path string) (size int64, hash Hash, err error) {
	f, err := formats.OpenFile(path)
	if err != nil {
		return 0, hash, err
	}
	defer f.Close()
	return hashAll(ctx, f)
}

func hashAll(ctx context.Context, f formats.RemoteFile) (size int64, hash Hash, err error) {
	h := blake3.New()
	buf := make([]byte, chunk)
	r := io.NewSectionReader(f, 0, f.Size())
	for {
		if err := context.Cause(ctx); err != nil {
			return size, hash, err
		}
		n, err := r.Read(buf)
		h.Write(buf[:n])
		size += int64(n)
		if err == io.EOF {
			h.Sum(hash[:0])
			return size, hash, nil
		}
		if err != nil {
			return size, hash, err
		}
	}
}

// hashSources fills in the hashes of the sources that have a path.
func (h *header) hashSources(ctx context.Context) error {
	for i := range h.provenance.Sources {
		s := &h.provenance.Sources[i]
		if s.Path == "" {
			continue
		}
		size, hash, err := s.hash(ctx)
		if err != nil {
			return err
		}
		if size != s.Size {
			return formats.Errorf(s.Path, "", "had %d bytes at first and %d when hashed: it changed meanwhile", s.Size, size)
		}
		s.Hash = hash
	}
	return nil
}

func (s *Source) hash(ctx context.Context) (size int64, hash Hash, err error) {
	if s.Remote != nil {
		return hashAll(ctx, s.Remote)
	}
	return HashFile(ctx, s.Path)
}
