package cpu

// Tiles are sizes of the pieces that products are cut into. They change how long a
// product takes and none of its bits. A field of 0 stands for what [TilesFor] says of an
// unknown cache.
type Tiles struct {
	// BlockTokens is how many tokens of a prompt pass by unpacked weights before those
	// behind: their activations of 256 inputs and their sums stay in L2.
	BlockTokens int `json:"block_tokens"`
	// PartRows is the outputs that a thread takes at once of a product with many
	// tokens, a multiple of 64.
	PartRows int `json:"part_rows"`
	// PartBytes is the weights that a thread takes at once where tokens are few.
	PartBytes int `json:"part_bytes"`
}

// TilesFor returns the tiles for an L2 cache of so many bytes, 0 where that is unknown:
// a block of tokens takes up to half of it, between 64 and 2048 tokens.
func TilesFor(l2 int64) Tiles {
	const token = recordBytes + 4*panelGroup*panelRows
	t := Tiles{BlockTokens: 512, PartRows: panelGroup * panelRows, PartBytes: 128 << 10}
	if l2 > 0 {
		t.BlockTokens = 64
		for t.BlockTokens < 2048 && int64(2*t.BlockTokens*token) <= l2/2 {
			t.BlockTokens *= 2
		}
	}
	return t
}

// Or returns t with the fields of other where t has none.
func (t Tiles) Or(other Tiles) Tiles {
	if t.BlockTokens == 0 {
		t.BlockTokens = other.BlockTokens
	}
	if t.PartRows == 0 {
		t.PartRows = other.PartRows
	}
	if t.PartBytes == 0 {
		t.PartBytes = other.PartBytes
	}
	return t
}

// Sound reports whether the sizes are such as products can be cut into.
func (t Tiles) Sound() bool {
	return 0 < t.BlockTokens && t.BlockTokens <= 1<<16 && 0 < t.PartRows && t.PartRows <= 1<<16 && t.PartRows%(panelGroup*panelRows) == 0 &&
		1<<10 <= t.PartBytes && t.PartBytes <= 1<<30
}
