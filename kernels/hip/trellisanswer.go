package hip

import "github.com/nstf/nstf/formats/scheme"

// A TrellisMatrix is rotated weights that are given trellis codes from the last tile
// of 16 columns to the first, on the way: see trellisanswer.hip. Rows go by strips of 16.
type TrellisMatrix struct {
	Bits     int
	Codebook scheme.TCQCodebook
	N, K     int
	W        Address // f32[N][K]: weights, and errors of the tiles that have codes
	Units    Address // f32[N/16]: the value of a codeword of 1
	Codes    Address // [N/16][K/16][32*Bits] bytes
	Z        Address // f32[N/16][256]: targets of a tile's search
	Owed     Address // f32[N][128]: what errors behind a panel owe to its columns
}

// A TrellisPanel is what errors owe to columns To-Width to To, 128 at most: see
// quantize/fit's Feedback. The zero value answers nothing.
type TrellisPanel struct {
	To, Width int
	Behind    Address // f32[Width][K-To]
	Within    Address // f32[Width][Width]
}

// OwedBytes returns the size of Owed.
func (m *TrellisMatrix) OwedBytes() int64 { return int64(m.N) * 128 * 4 }

// Stride returns the bytes of a strip's codes.
func (m *TrellisMatrix) Stride() int64 { return int64(m.K/scheme.TCQTile) * m.tileBytes() }

func (m *TrellisMatrix) tileBytes() int64 { return int64(32 * m.Bits) }

// Owe sums up what errors owe to a panel, before its first tile.
func (m *TrellisMatrix) Owe(p TrellisPanel) Call {
	return m.call("nstf_trellis_owed", [3]uint32{uint32((m.N + 63) / 64), uint32((p.Width + 63) / 64), 1},
		Ptr(m.Owed), Ptr(m.W), Ptr(p.Behind), I32(m.N), I32(m.K), I32(p.To), I32(p.Width))
}

// Aim makes the targets of a tile.
func (m *TrellisMatrix) Aim(p TrellisPanel, tile int) Call {
	return m.call("nstf_trellis_target", m.strips(), Ptr(m.Z), Ptr(m.W), Ptr(m.Units), Ptr(m.Owed), Ptr(p.Within), I32(m.K), I32(tile), I32(p.To), I32(p.Width))
}

// Search returns the search of a tile's codes; the caller sets what it needs beside.
func (m *TrellisMatrix) Search(tile int) TrellisSearch {
	return TrellisSearch{Bits: m.Bits, Codebook: m.Codebook, Tiles: m.N / scheme.TCQTile, Z: m.Z,
		Codes: m.Codes + Address(int64(tile)*m.tileBytes()), Stride: m.Stride()}
}

// Miss turns the weights of a tile that has codes into errors.
func (m *TrellisMatrix) Miss(tile int) Call {
	return m.call("nstf_trellis_error", m.strips(), Ptr(m.W), Ptr(m.Codes+Address(int64(tile)*m.tileBytes())), I64(m.Stride()), Ptr(m.Units), I32(m.K), I32(tile))
}

func (m *TrellisMatrix) strips() [3]uint32 { return [3]uint32{uint32(m.N / scheme.TCQTile), 1, 1} }

func (m *TrellisMatrix) call(symbol string, grid [3]uint32, args ...Arg) Call {
	return Call{Unit: trellisUnitOf("trellisanswer.hip", m.Bits, m.Codebook), Symbol: symbol, Grid: grid, Block: [3]uint32{256, 1, 1}, Args: args}
}
