package nstf

import (
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Version is the format version that this package writes. It reads 1 up to
// Version.
const Version = 1

// Magic begins every package: a byte outside ASCII, the name, and line ends
// that a transfer in text mode would damage.
const Magic = "\x89NSTF\r\n\x1a"

// Limits, all inclusive. A writer refuses to exceed them and a reader refuses
// what does, before it allocates anything for it.
const (
	MaxHeader  = 64 << 20  // bytes of JSON
	MaxDepth   = 64        // levels of nesting in the JSON
	MaxKeys    = 65536     // keys of one JSON object
	MaxTensors = 262144    // tensors
	MaxFiles   = 4096      // attached files
	MaxName    = 512       // bytes of a tensor's or an attached file's name
	MaxID      = 64        // bytes of a part's, parameter's, scheme's, form's, encoding's or feature's name
	MaxDims    = 8         // dimensions of a shape
	MaxParts   = 16        // parts of a tensor
	MaxParams  = 32        // parameters of a scheme
	MaxDecoded = 256 << 20 // bytes of an attached zstd file after decoding
	MaxRatio   = 256       // decoded by stored bytes of an attached zstd file
)

// Layout of the file.
const (
	preambleSize = 64       // bytes before the JSON
	hashedSize   = 32       // bytes of the preamble that the root hash covers
	pageSize     = 4096     // alignment of the data section and of large extents
	partAlign    = 64       // alignment of everything else
	smallSize    = 64 << 10 // extents below it share a run
)

// Names that files carry by convention. Names that begin with "nstf/" belong
// to this format: others than these are not written.
const (
	LedgerFile    = "nstf/ledger.json"    // the accuracy ledger
	PlanFile      = "nstf/plan.json"      // the plan that was executed
	AttentionFile = "nstf/attention.json" // the policy of attention
	KVFile        = "nstf/kv.json"        // how keys and values are kept
	ExpertsFile   = "nstf/experts.json"   // how often routers chose each expert

	reservedPrefix = "nstf/"
)

// A Hash is a BLAKE3 hash of 256 bits.
type Hash [32]byte

// String returns 64 lower-case hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash is the inverse of String.
func ParseHash(s string) (h Hash, ok bool) {
	if len(s) != 64 || strings.ToLower(s) != s {
		return h, false
	}
	_, err := hex.Decode(h[:], []byte(s))
	return h, err == nil
}

// alignUp rounds n, at most 2^62, up to a multiple of a power of two.
func alignUp(n, align int64) int64 { return (n + align - 1) &^ (align - 1) }

// alignOf returns the alignment of an extent of size bytes.
func alignOf(size int64) int64 {
	if size < smallSize {
		return partAlign
	}
	return pageSize
}

// nameProblem says what is wrong with a tensor's name, or "".
func nameProblem(s string) string {
	switch {
	case s == "":
		return "empty name"
	case len(s) > MaxName:
		return "name longer than 512 bytes"
	case !utf8.ValidString(s):
		return "name is not UTF-8"
	case strings.ContainsFunc(s, unicode.IsControl):
		return "control character in a name"
	}
	return ""
}

// fileNameProblem says what is wrong with an attached file's name, or "":
// whoever unpacks a package must never be led outside a folder.
func fileNameProblem(s string) string {
	if p := nameProblem(s); p != "" {
		return p
	}
	if strings.ContainsAny(s, `\:`) {
		return `'\' or ':' in a file's name`
	}
	for _, segment := range strings.Split(s, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return `file name has an empty, "." or ".." segment`
		}
	}
	return ""
}

// isID reports whether s is 1 to 64 of a-z, A-Z, 0-9, '_', '-' and '.'.
func isID(s string) bool {
	if s == "" || len(s) > MaxID {
		return false
	}
	for _, b := range []byte(s) {
		switch {
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9', b == '_', b == '-', b == '.':
		default:
			return false
		}
	}
	return true
}
