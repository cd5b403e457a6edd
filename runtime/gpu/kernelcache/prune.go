package kernelcache

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// mostKept bounds the bytes of a folder of kept code.
const mostKept = 1 << 30

// prune removes the entries of a folder that were used longest ago, until at
// most limit bytes are left, and what a killed process left half-written. A new
// release or compiler makes all entries anew, so a folder would only ever grow.
func prune(dir string, limit int64) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	type file struct {
		path string
		size int64
		used time.Time
	}
	var files []file
	var total int64
	for _, d := range list {
		s, err := d.Info()
		if err != nil || !s.Mode().IsRegular() {
			continue
		}
		path := filepath.Join(dir, d.Name())
		switch {
		case strings.Contains(d.Name(), ".kernel.tmp-"):
			if time.Since(s.ModTime()) > time.Hour {
				os.Remove(path)
			}
		case strings.HasSuffix(d.Name(), ".kernel"):
			files = append(files, file{path, s.Size(), s.ModTime()})
			total += s.Size()
		}
	}
	slices.SortFunc(files, func(a, b file) int { return a.used.Compare(b.used) })
	for _, f := range files {
		if total <= limit {
			break
		}
		if err := os.Remove(f.path); err != nil {
			return err
		}
		total -= f.size
	}
	return nil
}
