package hip

import "github.com/nstf/nstf/formats/scheme"

// An arrangement is the order in which kernels read a scheme's blocks: planes,
// each with a field of every block, in place of block after block. It moves
// bits and changes none (weights.hip says what planes of codes look like).
type arrangement struct {
	weights int // of a block
	planes  []bitPlane
}

// A bitPlane is a block's part in a plane: for each of its bits, in order, the
// bit of the stored block that goes there.
type bitPlane []uint16

// bytes returns the size of a block.
func (a *arrangement) bytes() int {
	n := 0
	for _, p := range a.planes {
		n += len(p) / 8
	}
	return n
}

// planesOf lists the planes of each scheme of blocks.
func planesOf() map[string][]bitPlane {
	return map[string][]bitPlane{
		"q4_0":    {field(2, 16), field(0, 2)},
		"q4_1":    {field(4, 16), field(0, 4)},
		"q5_0":    {field(6, 16), bitPlane1(32, func(i int) int { return 8*2 + i }), field(0, 2)},
		"q5_1":    {field(8, 16), bitPlane1(32, func(i int) int { return 8*4 + i }), field(0, 4)},
		"q8_0":    {field(2, 32), field(0, 2)},
		"q2_k":    {bitPlane2(256, pairsOf(16)), field(0, 16), field(80, 4)},
		"q3_k":    {bitPlane2(256, pairsOf(32)), bitPlane1(256, highOfQ3K), lowScalesQ3K(), highScalesQ3K(), field(108, 2)},
		"q4_k":    {bitPlane4(256, nibblesOf(16)), headK4()},
		"q5_k":    {bitPlane4(256, nibblesOf(48)), bitPlane1(256, highOfQ5K), headK4()},
		"q6_k":    {bitPlane4(256, nibblesOfQ6K), bitPlane2(256, pairsOf(128)), field(192, 16), field(208, 2)},
		"iq4_nl":  {field(2, 16), field(0, 2)},
		"iq4_xs":  {field(8, 128), field(0, 8)},
		"mxfp4":   {field(1, 16), field(0, 1)},
		"nvfp4":   {bitPlane4(64, nibblesOfNVFP4), field(0, 4)},
		"q1_0":    {bitPlane1(128, func(i int) int { return 8*2 + i }), field(0, 2)},
		"q2_0":    {bitPlane2(64, func(i int) int { return 8*2 + 2*i }), field(0, 2)},
		"tq1_0":   {field(0, 48), field(48, 4), field(52, 2)},
		"tq2_0":   {bitPlane2(256, pairsOf(0)), field(64, 2)},
		"iq1_s":   {field(2, 32), field(34, 16), field(0, 2)},
		"iq1_m":   {field(0, 32), field(32, 16), field(48, 8)},
		"iq2_xxs": {field(2, 64), field(0, 2)},
		"iq2_xs":  {field(2, 64), field(66, 8), field(0, 2)},
		"iq2_s":   {field(2, 32), field(34, 32), field(66, 8), field(74, 8), field(0, 2)},
		"iq3_xxs": {field(2, 64), field(66, 32), field(0, 2)},
		"iq3_s":   {field(2, 64), field(74, 32), field(66, 8), field(106, 4), field(0, 2)},
	}
}

// arranged is the arrangement of a scheme of blocks, nil for others.
func arranged(name string) *arrangement {
	planes, ok := planesOf()[name]
	if !ok {
		return nil
	}
	s, _ := scheme.ByName(name)
	return &arrangement{s.Block, planes}
}

// arrangedCodes is the arrangement of rows of 4-bit codes, two to a byte, the
// first one low: 32 weights are a block.
func arrangedCodes() *arrangement {
	return &arrangement{32, []bitPlane{bitPlane4(32, func(i int) int { return 4 * i })}}
}

// arrangedTiles is the arrangement of trellis codes: a tile of 256 weights is a
// block, and each 16 bytes of it a plane.
func arrangedTiles(bits int) *arrangement {
	a := &arrangement{weights: 256}
	for i := range 2 * bits {
		a.planes = append(a.planes, field(16*i, 16))
	}
	return a
}

// field takes bytes as they are.
func field(at, bytes int) bitPlane {
	p := make(bitPlane, 8*bytes)
	for i := range p {
		p[i] = uint16(8*at + i)
	}
	return p
}

// bitPlane4 places 4 bits of each weight: of 32 weights, byte j has weight j
// below and weight j+16 above. at gives the lowest bit of a weight.
func bitPlane4(weights int, at func(i int) int) bitPlane {
	p := make(bitPlane, 4*weights)
	for i := range weights {
		place := i/32*128 + i%16*8 + i/16%2*4
		for b := range 4 {
			p[place+b] = uint16(at(i) + b)
		}
	}
	return p
}

// bitPlane2 places 2 bits of each weight: of 16 weights, bits 2i of byte b
// belong to weight 4i+b.
func bitPlane2(weights int, at func(i int) int) bitPlane {
	p := make(bitPlane, 2*weights)
	for i := range weights {
		place := i/16*32 + i%4*8 + i/4%4*2
		p[place], p[place+1] = uint16(at(i)), uint16(at(i)+1)
	}
	return p
}

// bitPlane1 places a bit of each weight: of 32 weights, bit i of byte b belongs
// to weight 4i+b.
func bitPlane1(weights int, at func(i int) int) bitPlane {
	p := make(bitPlane, weights)
	for i := range weights {
		p[i/32*32+i%4*8+i/4%8] = uint16(at(i))
	}
	return p
}

// nibblesOf is where q4_k and q5_k have nibbles: 32 bytes for each pair of
// groups of 32, the first group below.
func nibblesOf(start int) func(i int) int {
	return func(i int) int { return 8*(start+i/64*32+i%32) + i/32%2*4 }
}

// pairsOf is where 2-bit codes lie: 32 bytes for each half of 128 weights,
// weight 32s+j in bits 2s of byte j.
func pairsOf(start int) func(i int) int {
	return func(i int) int { return 8*(start+i/128*32+i%32) + i/32%4*2 }
}

// nibblesOfNVFP4: 8 bytes for 16 weights, the first 8 below.
func nibblesOfNVFP4(i int) int { return 8*(4+i/16*8+i%8) + i/8%2*4 }

func nibblesOfQ6K(i int) int { return 8*(i/128*64+i/32%2*32+i%32) + i/64%2*4 }

func highOfQ5K(i int) int { return 8*(16+i%32) + i/32 }

func highOfQ3K(i int) int { return 8*(i%32) + i/32 }

// lowScalesQ3K and highScalesQ3K split the 6-bit scales of q3_k: a byte with two
// low nibbles for each 32 weights, then a nibble with two high pairs.
func lowScalesQ3K() bitPlane {
	var p bitPlane
	for j := range 16 {
		for b := range 4 {
			p = append(p, uint16(8*(96+j&7)+j>>3*4+b))
		}
	}
	return p
}

func highScalesQ3K() bitPlane {
	var p bitPlane
	for j := range 16 {
		for b := range 2 {
			p = append(p, uint16(8*(104+j&3)+j>>2*2+b))
		}
	}
	return p
}

// headK4 is the head of q4_k and q5_k as headk4.hip reads it.
func headK4() bitPlane {
	scale, min, high := field(0, 4), bitPlane{}, bitPlane{}
	for g := range 8 {
		// Where the low nibble and the high pair of scale and minimum g lie.
		low, top := [2]int{8 * (4 + g), 8 * (8 + g)}, [2]int{8*(4+g) + 4, 8*(8+g) + 4}
		if g >= 4 {
			low = [2]int{8 * (8 + g), 8*(8+g) + 4}
			top = [2]int{8*g + 6, 8*(4+g) + 6}
		}
		for b := range 4 {
			scale, min = append(scale, uint16(low[0]+b)), append(min, uint16(low[1]+b))
		}
		high = append(high, uint16(top[0]), uint16(top[0]+1), uint16(top[1]), uint16(top[1]+1))
	}
	return append(append(scale, min...), high...)
}
