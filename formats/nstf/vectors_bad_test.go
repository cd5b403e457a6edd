package nstf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/blake3"
)

// A badVector is a package that is wrong in one fact.
type badVector struct {
	must, name          string
	layer, family, says string
	what                string
	build               func(t testing.TB) []byte
}

// listed says what a program meets that only lists these vectors, which are unsupported to
// others: "whole" where it opens and verifies them, or the layer that fails.
func listed() map[string]string {
	return map[string]string{
		"T4-scheme": "whole", "T4-scheme-case": "whole", "T4-scheme-parts": "whole", "T11-scheme": "whole",
		"T4-scheme-size": "header", "T4-scheme-apart": "layout", "T4-scheme-damaged": "verify",
		"T6-form": "whole", "T6-form-factors": "whole",
		"T8-dtype": "whole", "T8-dtype-size": "whole",
		"F3-encoding": "whole", "F3-encoding-size": "whole", "F3-encoding-damaged": "verify",
	}
}

func multiPart() Item {
	return coded("multi", "affine", 5, map[string]int64{"bits": 4, "group": 32, "scale": 2, "zero": 9}, 2, 96)
}

// headOf returns the JSON of a package.
func headOf(data []byte) string {
	return string(data[preambleSize : preambleSize+binary.LittleEndian.Uint64(data[16:])])
}

// reseal rewrites the JSON of a package, with a preamble that fits.
func reseal(t testing.TB, data []byte, rewrite func(string) string) []byte {
	t.Helper()
	head := headOf(data)
	section := data[alignUp(preambleSize+int64(len(head)), pageSize):]
	return seal(rewrite(head), section)
}

// seal makes a package of any JSON and data section.
func seal(head string, section []byte) []byte {
	out := make([]byte, alignUp(preambleSize+int64(len(head)), pageSize))
	copy(out, Magic)
	binary.LittleEndian.PutUint32(out[8:], Version)
	binary.LittleEndian.PutUint64(out[16:], uint64(len(head)))
	binary.LittleEndian.PutUint64(out[24:], uint64(len(out)+len(section)))
	copy(out[preambleSize:], head)
	return append(rehash(out), section...)
}

// rehash sets the root hash of a package whose header size is right.
func rehash(data []byte) []byte {
	root := rootHash(data[:hashedSize], []byte(headOf(data)))
	copy(data[hashedSize:], root[:])
	return data
}

// edit replaces text in the JSON, pair by pair; what is replaced must exist.
func edit(t testing.TB, data []byte, pairs ...string) []byte {
	t.Helper()
	return reseal(t, data, func(head string) string {
		for i := 0; i < len(pairs); i += 2 {
			if !strings.Contains(head, pairs[i]) {
				t.Fatalf("%q is not in the header:\n%s", pairs[i], head)
			}
			head = strings.Replace(head, pairs[i], pairs[i+1], 1)
		}
		return head
	})
}

// poke changes bytes.
func poke(data []byte, off int, p ...byte) []byte {
	copy(data[off:], p)
	return data
}

// bare is a page: one tensor without elements.
func bare(t testing.TB) []byte { return pack(t, meta(), f32("w", 0, 2)) }

// hollow is a page: two files without bytes.
func hollow(t testing.TB) []byte { return pack(t, meta(File{"a.txt", nil}, File{"b.txt", nil})) }

// small and filed are packages of a page of data.
func small(t testing.TB) []byte { return pack(t, meta(), f32("a", 3), f32("b", 17)) }

func filed(t testing.TB) []byte {
	return pack(t, meta(File{"a.txt", []byte("alpha")}, File{"b.txt", []byte("beta")}))
}

// compressed is a package of one zstd stream that holds content and is said
// to hold size bytes.
func compressed(content []byte, size int) []byte {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err)
	}
	return attached("zstd", enc.EncodeAll(content, nil), size)
}

// attached is a package of one file, stored as given.
func attached(encoding string, stored []byte, size int) []byte {
	hash := blake3.Sum256(stored)
	head := fmt.Sprintf(`{"requires":[],"provenance":{"tool":"t","flags":[],"sources":[]},"files":[`+
		`{"name":"f","encoding":%q,"decoded":%d,"offset":0,"size":%d,"hash":"%x"}],"model":{},"tensors":[]}`,
		encoding, size, len(stored), hash)
	section := make([]byte, alignUp(int64(len(stored)), pageSize))
	copy(section, stored)
	return seal(head, section)
}

// badVectors lists them by requirement.
func badVectors() []badVector {
	var out []badVector
	for _, list := range [][]badVector{badPreambles(), badJSON(), badHeaders(), badTensors(), badFiles(), badLayouts(), damages()} {
		out = append(out, list...)
	}
	return out
}

func badPreambles() []badVector {
	put64 := func(off int, n uint64) func(t testing.TB) []byte {
		return func(t testing.TB) []byte {
			data := bare(t)
			binary.LittleEndian.PutUint64(data[off:], n)
			return data
		}
	}
	one := func(off int, b byte) func(t testing.TB) []byte {
		return func(t testing.TB) []byte { return poke(bare(t), off, b) }
	}
	list := []badVector{
		{must: "P1", name: "magic", says: "not an NSTF package", what: "0x88 instead of 0x89 in front", build: one(0, 0x88)},
		{must: "P1", name: "text-mode", says: "not an NSTF package", what: "CR LF turned into LF on the way",
			build: func(t testing.TB) []byte { return bytes.Replace(minimal(t), []byte("\r\n"), []byte("\n"), 1) }},
		{must: "P1", name: "nothing", says: "not an NSTF package", what: "no byte at all", build: func(testing.TB) []byte { return nil }},
		{must: "P1", name: "seven-bytes", says: "not an NSTF package", what: "the magic without its last byte", build: func(t testing.TB) []byte { return minimal(t)[:7] }},
		{must: "P2", name: "version-zero", says: "version 0", what: "version 0", build: one(8, 0)},
		{must: "P2", name: "version-newer", says: "version 2", what: "version 2, valid otherwise",
			build: func(t testing.TB) []byte { return rehash(poke(bare(t), 8, 2)) }},
		{must: "P3", name: "reserved", says: "reserved", what: "reserved field 1",
			build: func(t testing.TB) []byte { return rehash(poke(bare(t), 12, 1)) }},
		{must: "P4", name: "header-empty", says: "header of 0 bytes", what: "header size 0", build: put64(16, 0)},
		{must: "P4", name: "header-over-limit", says: "header of 67108865 bytes", what: "header size one over the limit", build: put64(16, MaxHeader+1)},
		{must: "P4", name: "header-beyond-file", says: "does not fit", what: "header size beyond the end of the file", build: put64(16, 4096)},
		{must: "P4", name: "header-size-huge", says: "header of 18446744073709551615 bytes", what: "header size 2^64-1", build: put64(16, 1<<64-1)},
		{must: "P5", name: "truncated", says: "truncated or extended", what: "last page missing",
			build: func(t testing.TB) []byte { d := minimal(t); return d[:len(d)-pageSize] }},
		{must: "P5", name: "extended", says: "truncated or extended", what: "a page more than announced",
			build: func(t testing.TB) []byte { return append(minimal(t), make([]byte, pageSize)...) }},
		{must: "P5", name: "ten-bytes", says: "truncated", what: "10 bytes, the magic among them",
			build: func(t testing.TB) []byte { return minimal(t)[:10] }},
		{must: "P5", name: "preamble-cut", says: "truncated", what: "63 bytes",
			build: func(t testing.TB) []byte { return minimal(t)[:63] }},
		{must: "P5", name: "unaligned", says: "not a multiple", what: "file and its size not a multiple of 4096",
			build: func(t testing.TB) []byte {
				d := minimal(t)[:4096+64]
				binary.LittleEndian.PutUint64(d[24:], uint64(len(d)))
				return rehash(d)
			}},
		{must: "P6", name: "header-damaged", says: "header damaged", what: "a digit of the JSON changed",
			build: func(t testing.TB) []byte {
				d := minimal(t)
				return poke(d, bytes.Index(d, []byte(`"size":8`))+7, '9')
			}},
		{must: "P6", name: "root-damaged", says: "header damaged", what: "a bit of the root hash changed",
			build: func(t testing.TB) []byte { d := minimal(t); d[63] ^= 1; return d }},
		{must: "P7", name: "padding", says: "padding byte 0x01 behind the header", what: "a byte between the JSON and the data is not 0", build: one(4095, 1)},
	}
	for i := range list {
		list[i].layer, list[i].family = "preamble", "format"
		if list[i].name == "version-newer" {
			list[i].family = "unsupported"
		}
	}
	return list
}

// headerCase edits the JSON of a package.
func headerCase(must, name, says, what string, base func(testing.TB) []byte, pairs ...string) badVector {
	return badVector{must, name, "header", "format", says, what,
		func(t testing.TB) []byte { return edit(t, base(t), pairs...) }}
}

func unsupported(v badVector) badVector {
	v.family = "unsupported"
	return v
}

func badJSON() []badVector {
	raw := func(must, name, says, what, head string) badVector {
		return badVector{must, name, "header", "format", says, what, func(testing.TB) []byte { return seal(head, nil) }}
	}
	deep := strings.Repeat(`{"a":`, MaxDepth) + "1" + strings.Repeat("}", MaxDepth)
	return []badVector{
		headerCase("H1", "not-utf8", "not UTF-8", "a byte 0xff inside a string", bare, `"none"`, "\"no\xffe\""),
		headerCase("H1", "overlong", "not UTF-8", "U+002F in two bytes", bare, `"none"`, "\"no\xc0\xafe\""),
		headerCase("H1", "surrogate-bytes", "not UTF-8", "a surrogate in three bytes", bare, `"none"`, "\"\xed\xa0\x80\""),
		raw("H2", "array", "'{' should stand", "an array instead of an object", "[]"),
		raw("H2", "cut", "ends where", "the object does not end", `{"requires":[]`),
		headerCase("H2", "second-value", "bytes after the object", "a second object behind the first", bare, "]}\n", "]}{}"),
		headerCase("H2", "nul-behind", "bytes after the object", "a NUL behind the object", bare, "]}\n", "]}\x00"),
		headerCase("H2", "trailing-comma", "should stand", "a comma behind the last element", bare, `"requires":[]`, `"requires":[],,`),
		headerCase("H2", "comment", "should stand", "a comment", bare, `"requires"`, `/**/"requires"`),
		headerCase("H2", "single-quotes", "should stand", "single quotes", bare, `"none"`, `'none'`),
		headerCase("H2", "control-character", "control character", "a raw line end in a string", bare, `"none"`, "\"no\nne\""),
		headerCase("H2", "bad-escape", "bad escape", "an escape that JSON lacks", bare, `"none"`, `"\x41"`),
		headerCase("H2", "byte-order-mark", "should stand", "a byte order mark in front", bare, `{"requires"`, "\ufeff"+`{"requires"`),
		headerCase("H2", "nan", "should stand", "NaN as a number", bare, `"none"`, `NaN`),
		headerCase("H3", "key-twice", `key "model" twice`, "a key twice at the top", bare, `"model"`, `"model":{},"model"`),
		headerCase("H3", "key-twice-escaped", `key "size" twice`, "a key twice in a part, once spelled with an escape", bare, `"size"`, `"s\u0069ze":0,"size"`),
		headerCase("H3", "key-twice-opaque", `key "arch" twice`, "a key twice in the model's object", bare, `"arch"`, `"arch":1,"arch"`),
		headerCase("H4", "deep", "nested deeper", "the model's object nests 65 levels with the header's own", bare, `{"arch":"none"}`, deep),
		headerCase("H5", "lone-surrogate", "bad escape", "half a surrogate pair", bare, `"none"`, `"\ud83d"`),
		headerCase("H5", "swapped-surrogates", "bad escape", "a surrogate pair in the wrong order", bare, `"none"`, `"\ude00\ud83d"`),
		headerCase("H6", "fraction", "not an integer", "a size with a fraction", bare, `"size":0`, `"size":0.0`),
		headerCase("H6", "exponent", "not an integer", "a size with an exponent", bare, `"size":0`, `"size":0e0`),
		headerCase("H6", "negative", "negative", "a negative offset", bare, `"offset":0`, `"offset":-1`),
		headerCase("H6", "minus-zero", "not an integer", "an offset of -0", bare, `"offset":0`, `"offset":-0`),
		headerCase("H6", "leading-zero", "should stand", "a size with a leading zero", bare, `"size":0`, `"size":00`),
		headerCase("H6", "too-large", "not an integer", "a size of 2^63", bare, `"size":0`, `"size":9223372036854775808`),
		headerCase("H6", "string", "should stand", "a size in quotes", bare, `"size":0`, `"size":"0"`),
	}
}

func badHeaders() []badVector {
	list := []badVector{
		unsupported(headerCase("H9", "requires", `feature "time-travel"`, "an unknown feature is required; the tensors make no sense to version 1", bare,
			`"requires":[]`, `"requires":["time-travel"]`, `"tensors":[`, `"tensors":[{"name":1},`)),
		unsupported(headerCase("H9", "requires-shards", `feature "shards"`, "the reserved feature is required", bare, `"requires":[]`, `"requires":["shards"]`)),
		headerCase("H9", "requires-name", "feature", "a required feature with a space in its name", bare, `"requires":[]`, `"requires":["a b"]`),
		headerCase("H10", "model-array", "the model's object", "the model is an array", bare, `{"arch":"none"}`, `[]`),
		headerCase("H10", "model-null", "the model's object", "the model is null", bare, `{"arch":"none"}`, `null`),
		headerCase("H12", "hash-short", "64 lower-case", "a hash of 63 digits", bare, `"hash":"`, `"hash":"0","x":"`),
		headerCase("H12", "hash-upper", "64 lower-case", "a hash in upper case", bare, `"hash":"`, `"hash":"`+strings.Repeat("AB", 32)+`","x":"`),
		headerCase("H13", "provenance-escape", "control character in the provenance", "a tool that sets the terminal's title", bare, `"tool":"`, `"tool":"\u001b]0;x\u0007`),
		headerCase("H13", "provenance-flag-c1", "control character in the provenance", "a flag with a control character of C1", bare, `"flags":[`, `"flags":["a\u009b2J"`),
		headerCase("H13", "provenance-note-newline", "control character in the provenance", "a note of two lines", bare, `"sources":[]`, `"sources":[],"notes":["a\nb"]`),
		headerCase("H13", "provenance-created", "control character in the provenance", "a time with DEL", bare, `"sources":[]`, `"sources":[],"created":"2026\u007f"`),
		headerCase("H12", "hash-letters", "64 lower-case", "a hash with a letter beyond f", bare, `"hash":"`, `"hash":"`+strings.Repeat("g", 64)+`","x":"`),
	}
	for _, key := range []string{"requires", "provenance", "files", "model", "tensors"} {
		list = append(list, headerCase("H7", "no-"+key, fmt.Sprintf("key %q is missing", key), "no key "+key, bare, `"`+key+`":`, `"x-`+key+`":`))
	}
	for _, key := range []string{"name", "shape", "scheme", "form", "parts", "hash"} {
		list = append(list, headerCase("H7", "tensor-no-"+key, fmt.Sprintf("key %q is missing", key), "a tensor without "+key, bare,
			`{"name":"w"`, `{"name":"w"`, `"`+key+`":`, `"x-`+key+`":`))
	}
	for _, key := range []string{"dtype", "offset", "size"} {
		list = append(list, headerCase("H7", "part-no-"+key, fmt.Sprintf("key %q is missing", key), "a part without "+key, bare, `"`+key+`":`, `"x-`+key+`":`))
	}
	for _, key := range []string{"encoding", "decoded"} {
		list = append(list, headerCase("H7", "file-no-"+key, fmt.Sprintf("key %q is missing", key), "a file without "+key, hollow, `"`+key+`":`, `"x-`+key+`":`))
	}
	return append(list,
		headerCase("H7", "key-case", `key "tensors" is missing`, "a key in another case is another key", bare, `"tensors"`, `"Tensors"`),
		headerCase("H7", "provenance-no-tool", `key "tool" is missing`, "provenance without tool", bare, `"tool"`, `"x"`),
		headerCase("H7", "source-no-hash", `key "hash" is missing`, "a source without a hash", bare, `"sources":[]`, `"sources":[{"role":"model","name":"a","size":1}]`),
		headerCase("H7", "tensors-object", "'[' should stand", "tensors are an object", bare, `"tensors":[`, `"tensors":{},"x":[`))
}

func badTensors() []badVector {
	name := func(name, says, what, spelled string) badVector {
		return headerCase("T1", name, says, what, bare, `"name":"w"`, `"name":`+spelled)
	}
	params := `"scheme":"f32","params":{`
	for i := range MaxParams + 1 {
		params += fmt.Sprintf(`"p%d":%d,`, i, i)
	}
	part := `{"name":"data","dtype":"f32","shape":[1,2],"offset":0,"size":8}`
	low := func(t testing.TB) []byte { return pack(t, meta(), factored()[0]) }
	return []badVector{
		name("name-empty", "empty name", "an empty name", `""`),
		name("name-long", "longer than 512", "a name of 513 bytes", `"`+strings.Repeat("n", 513)+`"`),
		name("name-control", "control character", "a control character in a name", `"a\u0007"`),
		name("name-number", "should stand", "a number as a name", `7`),
		headerCase("T2", "name-twice", "two tensors of this name", "two tensors of one name", small, `"name":"b"`, `"name":"a"`),
		headerCase("H11", "nine-dimensions", "more than 8 dimensions", "nine dimensions", bare, `"shape":[0,2]`, `"shape":[1,1,1,1,1,1,1,1,2]`),
		headerCase("T3", "overflow", "elements", "2^64 elements", bare, `"shape":[0,2]`, `"shape":[4294967296,4294967296]`),
		headerCase("T3", "negative", "negative", "a negative dimension", bare, `"shape":[0,2]`, `"shape":[-1,-2]`),
		headerCase("T3", "overflow-behind-zero", "overflow", "rows overflow where a zero hides it", bare, `"shape":[0,2]`, `"shape":[4294967296,4294967296,0]`),
		unsupported(headerCase("T4", "scheme", `scheme "q99_x"`, "a scheme that does not exist", bare, `"scheme":"f32"`, `"scheme":"q99_x"`)),
		unsupported(headerCase("T4", "scheme-parts", `scheme "q99_x"`, "a scheme that does not exist, of four parts and parameters",
			func(t testing.TB) []byte { return pack(t, meta(), multiPart(), f32("after", 1)) }, `"scheme":"affine"`, `"scheme":"q99_x"`)),
		unsupported(headerCase("T4", "scheme-size", `scheme "q99_x"`, "a scheme that does not exist, and a part whose size its type denies", minimal,
			`"scheme":"f32"`, `"scheme":"q99_x"`, `"size":8`, `"size":7`)),
		unsupported(headerCase("T4", "scheme-apart", `scheme "q99_x"`, "a scheme that does not exist, and parts too far apart",
			func(t testing.TB) []byte { return pack(t, meta(), multiPart()) }, `"scheme":"affine"`, `"scheme":"q99_x"`, `"offset":128`, `"offset":192`)),
		unsupported(headerCase("T4", "scheme-damaged", `scheme "q99_x"`, "a scheme that does not exist, and another hash than that of the bytes", minimal,
			`"scheme":"f32"`, `"scheme":"q99_x"`, `"hash":"8`, `"hash":"9`)),
		unsupported(headerCase("T4", "scheme-case", `scheme "F32"`, "a scheme in upper case", bare, `"scheme":"f32"`, `"scheme":"F32"`)),
		headerCase("T5", "parameter-unknown", `no parameter "group"`, "a parameter that the scheme lacks", bare, `"scheme":"f32"`, `"scheme":"f32","params":{"group":1}`),
		headerCase("T5", "parameter-string", "should stand", "a parameter in quotes", bare, `"scheme":"f32"`, `"scheme":"f32","params":{"group":"1"}`),
		headerCase("H11", "parameters-33", "more than 32 parameters", "33 parameters", bare, `"scheme":"f32"`, strings.TrimSuffix(params, ",")+"}"),
		unsupported(headerCase("T6", "form", `form "liquid"`, "a form that does not exist", bare, `"form":"dense"`, `"form":"liquid"`)),
		headerCase("T7", "parts-none", "without parts", "no part", minimal, part, ``),
		headerCase("T7", "parts-none-of-none", "without parts", "no part of a tensor without elements", bare, `{"name":"data","dtype":"f32","shape":[0,2],"offset":0,"size":0}`, ``),
		headerCase("T7", "parts-two", "2 parts", "a part more than the scheme has", minimal, part, part+","+part),
		headerCase("H11", "parts-17", "more than 16 parts", "17 parts", minimal, part, strings.Repeat(part+",", 16)+part),
		headerCase("T7", "part-name", `part "dada"`, "a part of another name than the scheme's", bare, `"name":"data"`, `"name":"dada"`),
		headerCase("T7", "part-dtype", `part "data" is f16`, "a part of another type than the scheme's", bare, `"dtype":"f32"`, `"dtype":"f16"`),
		headerCase("T7", "part-shape", "shape [2 1]", "a part of another shape than the scheme's", minimal, `"dtype":"f32","shape":[1,2]`, `"dtype":"f32","shape":[2,1]`),
		headerCase("T7", "part-size", "4 bytes instead of 8", "a part of another size than its shape's", minimal, `"size":8`, `"size":4`),
		headerCase("T7", "block", "not a multiple", "rows that the scheme's block does not divide", minimal, `"scheme":"f32"`, `"scheme":"q4_0"`),
		unsupported(headerCase("T8", "dtype-size", `dtype "f7"`, "an element type that does not exist, of a size that nobody can check", minimal,
			`"scheme":"f32"`, `"scheme":"q99_x"`, `"dtype":"f32"`, `"dtype":"f7"`)),
		unsupported(headerCase("T8", "dtype", `dtype "f7"`, "an element type that does not exist", bare, `"dtype":"f32"`, `"dtype":"f7"`)),
		headerCase("T9", "passthrough", "true or false", "passthrough is a number", bare, `"form"`, `"passthrough":1,"form"`),
		headerCase("T10", "dense-factors", "1 factors in", "a dense tensor with a factor", bare, `"form":"dense"`, `"form":"dense","factors":[{"name":"a","shape":[0,2],"scheme":"f32"}]`),
		headerCase("T10", "no-factors", "0 factors in", "a form that has factors, without them", bare, `"form":"dense"`, `"form":"lowrank"`),
		headerCase("T10", "scheme", `scheme "f32" where`, "a tensor with factors under the name of a scheme", low, `"scheme":"factors"`, `"scheme":"f32"`),
		headerCase("T10", "factor-name", `factor "c" stands where "b"`, "a factor that its form does not have", low, `"name":"b"`, `"name":"c"`, `"name":"b.data"`, `"name":"c.data"`),
		headerCase("T10", "factor-shape", "instead of", "a factor that does not suit the tensor's shape", low, `"shape":[4,3]`, `"shape":[3,4]`),
		headerCase("T10", "parameter", `no parameter "rank"`, "a parameter that the form lacks", low, `"scheme":"factors"`, `"scheme":"factors","params":{"rank":2}`),
		headerCase("T11", "part-name", "where one of factor", "a part under the name of another factor", low, `"name":"b.data"`, `"name":"a.data"`),
		headerCase("T11", "part-more", "belongs to no factor", "a part that no factor has", low, `"name":"b.data"`, `"name":"b.data","dtype":"f32","shape":[2,3],"offset":64,"size":24},{"name":"d.data"`),
		headerCase("T11", "part-less", "too few parts", "a factor without its part", low, `,{"name":"b.data","dtype":"f32","shape":[2,3],"offset":64,"size":24}`, ``),
		unsupported(headerCase("T6", "form-factors", `form "liquid"`, "a form that does not exist, with factors", low, `"form":"lowrank"`, `"form":"liquid"`)),
		unsupported(headerCase("T11", "scheme", `scheme "q99_x"`, "a factor's scheme that does not exist", low, `"scheme":"f32"`, `"scheme":"q99_x"`)),
	}
}

func badFiles() []badVector {
	name := func(name, says, what, spelled string) badVector {
		return headerCase("F1", name, says, what, hollow, `"name":"a.txt"`, `"name":`+spelled)
	}
	list := []badVector{
		name("name-parent", `".."`, "a name that climbs", `"../a"`),
		name("name-absolute", "segment", "a name from the root", `"/a"`),
		name("name-dot", "segment", `a segment "."`, `"./a"`),
		name("name-folder", "segment", "a name that ends in a slash", `"a/"`),
		name("name-backslash", `'\'`, "a backslash", `"..\\a"`),
		name("name-drive", "':'", "a colon", `"C:a"`),
		name("name-empty", "empty name", "an empty name", `""`),
		headerCase("F2", "order", "does not sort after", "names not ascending", hollow, `"name":"b.txt"`, `"name":"Z"`),
		headerCase("F2", "name-twice", "does not sort after", "two files of one name", hollow, `"name":"b.txt"`, `"name":"a.txt"`),
		unsupported(headerCase("F3", "encoding-size", `encoding "brotli"`, "an encoding that does not exist, of another size decoded", filed,
			`"encoding":"none","decoded":5`, `"encoding":"brotli","decoded":50000`)),
		unsupported(headerCase("F3", "encoding-damaged", `encoding "brotli"`, "an encoding that does not exist, and another hash than that of the bytes", filed,
			`"encoding":"none","decoded":5`, `"encoding":"brotli","decoded":50000`, `"hash":"`, `"hash":"`+strings.Repeat("0", 64)+`","x":"`)),
		unsupported(headerCase("F3", "encoding", `encoding "brotli"`, "an encoding that does not exist", hollow, `"encoding":"none"`, `"encoding":"brotli"`)),
		headerCase("F4", "size", "cannot be 6 bytes", "stored as it is, yet of another size", filed, `"decoded":5`, `"decoded":6`),
		{"F5", "ratio", "header", "format", "more than 256 times", "257 times larger than stored, by its own account",
			func(testing.TB) []byte { return attached("zstd", make([]byte, 10), 2561) }},
		{"F5", "decoded-over-limit", "header", "format", "decoded are more than", "a byte more than 256 MiB, by its own account",
			func(testing.TB) []byte { return attached("zstd", make([]byte, 10), MaxDecoded+1) }},
	}
	lie := func(name, what string, build func() []byte) badVector {
		return badVector{"F6", name, "verify", "format", "zstd", what, func(testing.TB) []byte { return build() }}
	}
	text := bytes.Repeat([]byte("text "), 100)
	return append(list,
		lie("bomb", "decodes to 1 MiB instead of 1000 bytes", func() []byte { return compressed(make([]byte, 1<<20), 1000) }),
		lie("long", "decodes to a byte more than declared", func() []byte { return compressed(text, len(text)-1) }),
		lie("short", "decodes to a byte less than declared", func() []byte { return compressed(text, len(text)+1) }),
		lie("not-zstd", "no zstd stream", func() []byte { return attached("zstd", text, len(text)) }),
		lie("cut", "the stream ends early", func() []byte {
			enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
			if err != nil {
				panic(err)
			}
			frame := enc.EncodeAll(text, nil)
			return attached("zstd", frame[:len(frame)-5], len(text))
		}))
}

func badLayouts() []badVector {
	layout := func(must, name, says, what string, base func(testing.TB) []byte, pairs ...string) badVector {
		v := headerCase(must, name, says, what, base, pairs...)
		v.layer = "layout"
		return v
	}
	multi := func(t testing.TB) []byte { return pack(t, meta(), multiPart()) }
	large := func(t testing.TB) []byte { return pack(t, meta(), f32("a", 1), coded("z", "u8", 0, nil, 64<<10)) }
	return []badVector{
		headerCase("L1", "beyond", "lie beyond", "a part behind the end of the file", minimal, `"offset":0`, `"offset":4096`),
		headerCase("L1", "overflow", "lie beyond", "offset and size overflow", minimal, `"offset":0`, `"offset":9223372036854775807`),
		headerCase("L1", "file-beyond", "lie beyond", "a file behind the end of the file", filed, `"offset":0`, `"offset":4095`),
		layout("L2", "parts-apart", `part "scales"`, "64 bytes between two parts", multi, `"offset":128`, `"offset":192`),
		layout("L2", "parts-swapped", `part "scales"`, "the second part in front of the first", multi, `"offset":0`, `"offset":64`, `"offset":128`, `"offset":0`),
		layout("L2", "parts-overlap", `part "scales"`, "the second part inside the first", multi, `"offset":128`, `"offset":64`),
		layout("L3", "unaligned", "next multiple of 64", "a tensor at 8", minimal, `"offset":0`, `"offset":8`),
		layout("L3", "overlap", "next multiple of 64", "two tensors in one place", small, `"offset":64`, `"offset":0`),
		layout("L3", "overlap-tail", "next multiple of 64", "a tensor in the other's tail", func(t testing.TB) []byte {
			return pack(t, meta(), f32("a", 17), f32("b", 17))
		}, `"offset":128`, `"offset":64`),
		layout("L3", "gap", "next multiple of 64", "64 bytes without an owner", small, `"offset":64`, `"offset":128`),
		layout("L3", "gap-front", "next multiple of 64", "64 bytes without an owner in front", minimal, `"offset":0`, `"offset":64`),
		layout("L3", "file-overlap", "next multiple of 64", "two files in one place", filed, `"offset":64`, `"offset":0`),
		layout("L3", "page", "next multiple of 4096", "a tensor of 64 KiB off a page", large, `"offset":4096`, `"offset":64`),
		{"L4", "page-without-owner", "layout", "format", "4096 bytes of data", "a page of data without an owner",
			func(t testing.TB) []byte { return seal(headOf(pack(t, meta())), make([]byte, pageSize)) }},
	}
}

func damages() []badVector {
	damage := func(must, name, says, what string, base func(testing.TB) []byte, off int) badVector {
		return badVector{must, name, "verify", "format", says, what, func(t testing.TB) []byte {
			d := base(t)
			d[off] ^= 0x10
			return d
		}}
	}
	multi := func(t testing.TB) []byte { return pack(t, meta(), multiPart()) }
	return []badVector{
		damage("V1", "tensor", `"b": at byte 4160: damaged`, "a bit of the second tensor", small, 4096+64+67),
		damage("V1", "last-part", `"multi": at byte 4096: damaged`, "a bit of the last part", multi, 4096+192),
		damage("V2", "file", `"b.txt": at byte 4160: damaged`, "a bit of the second file", filed, 4096+64),
		damage("V3", "padding-end", "at byte 8191: padding byte 0x10", "the last byte of the file", minimal, 8191),
		damage("V3", "padding-between", "at byte 4108: padding byte 0x10", "a byte between two tensors", small, 4096+12),
		damage("V3", "padding-parts", "at byte 4192: padding byte 0x10", "a byte between two parts", multi, 4096+96),
	}
}
