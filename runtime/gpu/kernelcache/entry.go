package kernelcache

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/zeebo/blake3"

	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/kernels/hip"
)

// An entry is one file: the magic, the BLAKE3 hash of everything behind it, the
// key as a text that ends in NUL, and the code.
type entry struct {
	unit     hip.Unit
	target   hip.Target
	compiler string // "" for code that was built ahead
}

const (
	magic    = "NSTF kernel 1\n"
	hashSize = 32
	maxFile  = 64 << 20
)

// key tells what the code was made of, the source by its hash.
func (e *entry) key() string {
	source := blake3.Sum256([]byte(e.unit.Source()))
	lines := []string{
		"unit " + e.unit.File, "source " + hex.EncodeToString(source[:]), "target " + string(e.target.API) + " " + e.target.Arch,
		"options " + strings.Join(e.unit.Options(e.target), " "), "compiler " + e.compiler, "",
	}
	return strings.Join(lines, "\n")
}

// name returns the file's name: what a person wants to know, and the key's hash.
func (e *entry) name(key string) string {
	h := blake3.Sum256([]byte(key))
	return fmt.Sprintf("%s-%s-%s.kernel", strings.TrimSuffix(e.unit.File, ".hip"), e.target.Arch, hex.EncodeToString(h[:10]))
}

// read returns the code of an entry, nil where it is absent or damaged.
func (e *entry) read(dir string) []byte {
	key := e.key()
	path := filepath.Join(dir, e.name(key))
	if s, err := os.Stat(path); err != nil || s.Size() > maxFile {
		return nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	rest, ok := bytes.CutPrefix(raw, []byte(magic))
	if !ok || len(rest) < hashSize {
		return nil
	}
	body := rest[hashSize:]
	if h := blake3.Sum256(body); !bytes.Equal(h[:], rest[:hashSize]) {
		return nil
	}
	code, ok := bytes.CutPrefix(body, []byte(key+"\x00"))
	if !ok || len(code) == 0 {
		return nil
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // a folder that cannot be written is as good
	return code
}

// write puts code where read finds it.
func (e *entry) write(dir string, code []byte) error {
	key := e.key()
	body := append([]byte(key+"\x00"), code...)
	h := blake3.Sum256(body)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return atomicfile.Scratch(filepath.Join(dir, e.name(key))).WriteFile(slices.Concat([]byte(magic), h[:], body))
}
