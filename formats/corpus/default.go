package corpus

import (
	_ "embed"

	"github.com/klauspost/compress/zstd"
)

// DefaultName is what the text of [Default] is called in messages and reports.
const DefaultName = "default.jsonl"

//go:embed default/default.jsonl.zst
var defaultText []byte

// Default returns a small mixed text to calibrate on where none is given: prose,
// documentation, code, data and a dozen languages. Sources and licences stand in
// default/README.md.
func Default() ([]Sample, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(16<<20))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	p, err := d.DecodeAll(defaultText, nil)
	if err != nil {
		return nil, err
	}
	return ParseSamples(DefaultName, p)
}
