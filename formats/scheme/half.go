package scheme

import (
	"encoding/binary"

	"github.com/nstf/nstf/formats/tensor"
)

var le = binary.LittleEndian

// half reads the little-endian f16 at the start of p.
func half(p []byte) float32 {
	return tensor.F16ToF32(uint16(p[0]) | uint16(p[1])<<8)
}
