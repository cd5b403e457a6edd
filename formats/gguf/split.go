package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/nstf/nstf/formats"
)

// The keys of llama.cpp's gguf-split.
const (
	keySplitNo      = "split.no"
	keySplitCount   = "split.count"
	keySplitTensors = "split.tensors.count"
)

// splitName is llama.cpp's pattern: a prefix, the part counted from 1, the
// number of parts.
var splitName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// SplitName returns the name of part no (counted from 0) of count.
func SplitName(prefix string, no, count int) string {
	return fmt.Sprintf("%s-%05d-of-%05d.gguf", prefix, no+1, count)
}

// openSplits opens the other parts of a split model, the file at path being
// in f already, and leaves all parts in order.
func (f *File) openSplits(path string) error {
	if !f.Has(keySplitCount) {
		return nil
	}
	count, err := f.Uint(keySplitCount)
	if err != nil || count == 1 {
		return err
	}
	m := splitName.FindStringSubmatch(filepath.Base(path))
	if m == nil {
		if len(f.shards[0].tensors) == 0 {
			return nil // the metadata of a split model, by itself
		}
		return formats.Errorf(path, keySplitCount,
			"part of a split model of %d, but not named like PREFIX-00001-of-%05d.gguf: the other parts cannot be found", count, count)
	}
	if named, _ := strconv.ParseUint(m[3], 10, 64); named != count {
		return formats.Errorf(path, keySplitCount, "value %d, but the file's name says %s", count, m[3])
	}
	own, _ := strconv.Atoi(m[2])
	own--
	if err := checkPart(f.shards[0], own, count); err != nil {
		return err
	}
	return f.addParts(filepath.Join(filepath.Dir(path), m[1]), own, int(count))
}

// addParts opens all parts but own, which is open, in order.
func (f *File) addParts(prefix string, own, count int) error {
	first := f.shards[0]
	f.shards = nil
	for no := range count {
		if no == own {
			f.shards = append(f.shards, first)
			continue
		}
		name := SplitName(prefix, no, count)
		if err := f.addFile(name); errors.Is(err, fs.ErrNotExist) {
			return &formats.FormatError{File: name, Offset: -1, Reason: fmt.Sprintf("part %d of %d is missing", no+1, count), Err: err}
		} else if err != nil {
			return err
		}
		if err := checkPart(f.shards[no], no, uint64(count)); err != nil {
			return err
		}
	}
	return f.checkSplit()
}

// checkPart compares a part's split keys with what its place demands.
func checkPart(s *shard, no int, count uint64) error {
	one := &File{shards: []*shard{s}}
	gotNo, err := one.Uint(keySplitNo)
	if err != nil {
		return err
	}
	gotCount, err := one.Uint(keySplitCount)
	if err != nil {
		return err
	}
	if gotNo != uint64(no) || gotCount != count {
		return formats.Errorf(s.name, keySplitNo, "says part %d of %d (counted from 0), but the file stands for part %d of %d",
			gotNo, gotCount, no, count)
	}
	return nil
}

// checkSplit checks what only all parts together can tell.
func (f *File) checkSplit() error {
	seen := make(map[string]string)
	total := uint64(0)
	for _, s := range f.shards {
		for i := range s.tensors {
			name := s.tensors[i].Name
			if other, ok := seen[name]; ok {
				return formats.Errorf(s.name, name, "duplicate tensor name, also in %s", other)
			}
			seen[name] = s.name
		}
		total += uint64(len(s.tensors))
	}
	want, err := f.Uint(keySplitTensors)
	if err != nil {
		return err
	}
	if total != want {
		return formats.Errorf(f.Name(), keySplitTensors, "says %d tensors, the parts hold %d", want, total)
	}
	return nil
}
