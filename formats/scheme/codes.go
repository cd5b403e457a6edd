package scheme

import "fmt"

// UnpackCodes reads len(dst) codes of 1 to 8 bits, a row, as whole numbers of any
// type: a stream of bits from the low end of each byte on, padded with zeros to a
// whole byte. With 4 bits the first code is the low nibble, with 8 each is a byte.
// It panics where src is not (len(dst)*bits+7)/8 long.
func UnpackCodes[T uint8 | float32](dst []T, src []byte, bits int) {
	checkCodes(len(dst), len(src), bits)
	switch bits {
	case 8:
		for i, c := range src[:len(dst)] {
			dst[i] = T(c)
		}
		return
	case 4:
		for i := 0; i+1 < len(dst); i += 2 {
			c := src[i/2]
			dst[i], dst[i+1] = T(c&15), T(c>>4)
		}
		if len(dst)%2 != 0 {
			dst[len(dst)-1] = T(src[len(src)-1] & 15)
		}
		return
	}
	mask := uint16(1)<<bits - 1
	for i := range dst {
		at, shift := i*bits/8, i*bits%8
		v := uint16(src[at])
		if shift+bits > 8 {
			v |= uint16(src[at+1]) << 8
		}
		dst[i] = T(v >> shift & mask)
	}
}

func checkCodes(n, size, bits int) {
	if bits < 1 || bits > 8 || int64(size) != affineRow(int64(n), int64(bits)) {
		panic(fmt.Sprintf("scheme: %d codes of %d bits in %d bytes", n, bits, size))
	}
}
