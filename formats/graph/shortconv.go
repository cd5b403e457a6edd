package graph

// A ShortConv is a gated short convolution over every channel, causal. At each
// position, with b, c and x the three runs of C numbers of In h:
//
//	m[i] = b[i] * x[i]
//	y    = Out(c[i] * (ConvBias[i] + sum over j < Kernel of Conv[i][j] * m[i] of the position Kernel-1-j before))
//
// Positions before the first have m = 0.
//
// Source: transformers 5.23, Lfm2ShortConv.
type ShortConv struct {
	Kernel   int64  `json:"kernel"`              // positions that the convolution sees, the own included
	Conv     string `json:"conv"`                // tensor [C][Kernel]
	ConvBias string `json:"conv_bias,omitempty"` // tensor [C]
	In       Linear `json:"in"`                  // [3*C][D]
	Out      Linear `json:"out"`                 // [D][C]
}

// Channels returns C.
func (n *ShortConv) Channels() int64 { return n.Out.In }

// Memory returns the numbers that a sequence remembers, [Kernel-1][C], the oldest
// position first.
func (n *ShortConv) Memory() int64 { return (n.Kernel - 1) * n.Channels() }

func (n *ShortConv) parts(l *lister) {
	c := n.Channels()
	l.linear("shortconv.in", &n.In, l.width, 3*c)
	l.table("shortconv.conv", n.Conv, c, n.Kernel)
	l.vector("shortconv.conv_bias", n.ConvBias, c)
	l.linear("shortconv.out", &n.Out, c, l.width)
}

func (n *ShortConv) check(c *checker) {
	c.within("shortconv.kernel", n.Kernel, maxKernel)
	c.within("shortconv.out", n.Channels(), 1<<24)
	c.name("shortconv.conv", n.Conv)
}
