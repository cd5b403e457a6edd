package hip

// Arrange moves blocks of a part from the order of the scheme's page into the
// order that kernels read.
type Arrange struct {
	Format Format
	Rows   int64 // of the whole matrix, all experts included
	K      int64
	// First and Count are the blocks that lie in From, a multiple of the blocks
	// of the matrix counted through its rows (BlockBytes each).
	First, Count int64
	From         Address
	Table        Address // what Table returned, at a multiple of 16 bytes
	To           Address // the part's place in the matrix's buffer
}

// arrangeBlocks is ARRANGE_BLOCKS of arrange.hip.
const arrangeBlocks = 16

// BlockBytes returns the bytes of a block that Arrange moves, 0 where parts lie
// as stored.
func (f Format) BlockBytes() int64 {
	if a := f.arrangement(); a != nil {
		return int64(a.bytes())
	}
	return 0
}

// Table returns what Arrange reads to arrange blocks, nil where parts lie as
// stored.
func (f Format) Table() []byte {
	a := f.arrangement()
	if a == nil {
		return nil
	}
	var t []byte
	for _, p := range a.planes {
		for _, bit := range p {
			t = append(t, byte(bit), byte(bit>>8))
		}
	}
	return t
}

// Calls returns the launch.
func (o *Arrange) Calls(Target) []Call {
	a := o.Format.arrangement()
	args := []Arg{Ptr(o.To), Ptr(o.From), Ptr(o.Table), I64(o.Rows * o.K / int64(a.weights)), I64(o.First), I64(o.Count), I32(a.bytes())}
	even := 0 // the size of all planes where they are many
	if len(a.planes) > 5 {
		even = len(a.planes[0]) / 8
	}
	args = append(args, I32(even))
	for i := range 4 {
		size := 0
		if i < len(a.planes) {
			size = len(a.planes[i]) / 8
		}
		args = append(args, I32(size))
	}
	return []Call{{
		Unit: Unit{File: "arrange.hip"}, Symbol: "nstf_arrange",
		Grid:  [3]uint32{uint32((o.Count + arrangeBlocks - 1) / arrangeBlocks), 1, 1},
		Block: [3]uint32{256, 1, 1}, LDS: uint32(arrangeBlocks * a.bytes()), Args: args,
	}}
}
