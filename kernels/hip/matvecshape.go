package hip

// shape chooses how a launch divides its work: outputs rows of W in all. The
// choice for CUDA is what was fastest on an H200 (docs/perf/gpu.md); elsewhere
// it is what registers allow. Lanes and Split, which decide in what order a row's
// products are added, do not depend on the rows of activations.
func (o *Matvec) shape(t Target, w *Weight, integer bool, rows, outputs int) MatvecShape {
	if o.Shape != nil {
		return *o.Shape
	}
	units := w.K / w.Format.unit
	s := MatvecShape{Rows: 2, Lanes: w.lanes(t), Waves: 256 / t.Wave, Split: 1, Steps: 2, Blocks: 1}
	switch {
	case !integer:
		if rows > 2 || w.Format.unit > 16 {
			s.Steps = 1
		}
	case rows == 1 && t.API == CUDA && o.Experts == 0 && o.Rounded.Data == 0:
		return o.streamed(t, s, w.K, ceil(units, s.Lanes), outputs)
	case rows == 1 && t.API == CUDA:
		if slotted, fits := o.slotted(t, s, ceil(units, s.Lanes), outputs); fits {
			return slotted
		}
		s.Waves, s.Blocks = 16, 2
	case rows > 2 && t.API == CUDA:
		return o.shared(t, s, w, outputs)
	case rows > 2:
		s.Rows, s.Steps = 4, 1
		if rows > 4 {
			s.Rows = 2
		}
	}
	s.fill(t, outputs)
	if s.Blocks == 2 { // registers for 32 words of weights on their way
		s.Steps = max(4/(s.Rows*o.views()), 1)
	}
	if t.API == HIP { // what two matrices' weights and sums, or a norm, add to registers
		if o.Gated || o.Norm.Weight != 0 && rows > 1 {
			s.Steps = 1
		}
		if o.Gated && integer && rows > 2 {
			s.Rows = 1
		}
	}
	if !integer && o.Experts == 0 && !o.Gated { // few outputs: waves share rows
		if t.API == CUDA && outputs*s.Lanes < 64*t.Units {
			s.Waves = 16
		}
		for 2*s.Split <= s.Waves && 2*s.Split*s.Lanes <= units && outputs*s.Lanes*s.Split < 128*t.Units {
			s.Split *= 2
		}
	}
	if o.apart {
		s.Lanes = w.wholeLanes(t, outputs)
	}
	s.Steps = min(s.Steps, ceil(units, s.Lanes*s.Split))
	if o.Rounded.Data != 0 {
		s.wholeTiles(t, w.N)
	}
	return s
}

// shared divides a product with several rows, which a block brings to LDS once and
// keeps: one block of 16 waves for each unit, which takes tile after tile, two rows of
// weights sharing what is read of LDS, the next ones on their way meanwhile. Where there
// are fewer tiles than units, they are made smaller.
func (o *Matvec) shared(t Target, s MatvecShape, w *Weight, outputs int) MatvecShape {
	s.Rows, s.Waves, s.Steps, s.Grid, s.Pipe = 2/o.views(), 16, 1, 1, true
	idle := func() bool { return 10*ceil(outputs, s.Waves*(t.Wave/s.Lanes)*s.Rows) < 9*t.Units }
	if s.Rows > 1 && idle() {
		s.Rows = 1
	}
	if idle() {
		s.Waves = 8
	}
	if o.apart {
		s.Lanes = w.wholeLanes(t, outputs)
	}
	return s
}

// fill has enough waves fill the machine, which comes before rows that share
// activations.
func (s *MatvecShape) fill(t Target, outputs int) {
	for s.Rows > 1 && outputs*s.Lanes < 16*t.Units*t.Wave*s.Rows {
		s.Rows /= 2
	}
}

// wholeLanes is how many lanes share a row where a launch with one row of activations
// rounds its outputs.
func (w *Weight) wholeLanes(t Target, outputs int) int {
	s := MatvecShape{Rows: 2, Lanes: w.lanes(t), Waves: 256 / t.Wave, Split: 1}
	s.fill(t, outputs)
	s.wholeTiles(t, w.N)
	return s.Lanes
}

// lanes is how many of a wave's lanes share a row of a matrix: as many as there
// are units in it, a power of two.
func (w *Weight) lanes(t Target) int {
	n := t.Wave
	for n > 1 && n > w.K/w.Format.unit {
		n /= 2
	}
	return n
}

// views is how many matrices a lane reads at once: a gate goes with its partner.
func (o *Matvec) views() int {
	if o.Gated {
		return 2
	}
	return 1
}

// wholeTiles changes a shape so that a tile is whole blocks of 32 outputs: first by
// more waves, as far as 512 threads have registers, then on CUDA by more rows, on AMD's
// targets by fewer lanes for a row.
func (s *MatvecShape) wholeTiles(t Target, n int) {
	if n < 4 {
		s.Rows, s.Lanes, s.Waves = 1, min(s.Lanes, 8), 256/t.Wave
	}
	for s.Waves*(t.Wave/s.Lanes)*s.Rows%32 != 0 {
		switch {
		case s.Waves*t.Wave < 512:
			s.Waves *= 2
		case t.API == HIP && s.Lanes > 8:
			s.Lanes /= 2
		case t.API == CUDA && s.Rows < 4, t.API == HIP:
			s.Rows *= 2
		default:
			s.Waves *= 2
		}
	}
}

// held is how much of an input a thread keeps while it is rounded, in fours: see
// matvecinput.hip.
const held = 8

// slotted divides products of slots with the matrices of their experts as streamed does one
// row's: a block of 16 waves for each unit, those of a slot taking its tiles in turn. It
// does not fit where slots and tiles would leave a fifth of the units idle.
func (o *Matvec) slotted(t Target, s MatvecShape, perLane, outputs int) (MatvecShape, bool) {
	if o.Experts == 0 || o.Rounded.Data != 0 {
		return s, false
	}
	views, most := o.views(), 6 // units of weights that a lane has on their way in each of two stages
	if o.Products[0].W.Format.fine {
		most = 4
	}
	s.Steps = min(4, most/views)
	for perLane%s.Steps != 0 {
		s.Steps--
	}
	s.Rows = min(max(most/(s.Steps*views), 1), 2)
	s.Waves, s.Blocks, s.Grid, s.Pipe = 16, 1, 1, true
	blocks := max(t.Units/o.T, 1) // of a slot
	turns := ceil(outputs/o.T, s.Waves*(t.Wave/s.Lanes)*s.Rows)
	return s, 5*turns*o.T >= 4*ceil(turns, blocks)*ceil(blocks*o.T, t.Units)*t.Units
}

// streamed divides a product with one row among as many waves as a GPU holds at
// once, which take tile after tile: 16 rows of W at a time, so that no unit has
// much less to do than another, and four units of weights for each lane in each
// of two stages. A batch that is not whole would leave the memory idle, so the
// steps divide what a lane has of a row.
func (o *Matvec) streamed(t Target, s MatvecShape, k, perLane, outputs int) MatvecShape {
	views := o.views()
	s.Steps = max(4/views, 1)
	for perLane%s.Steps != 0 {
		s.Steps /= 2
	}
	s.Rows = min(max(4/(s.Steps*views), 1), 2)
	s.Waves, s.Blocks, s.Grid, s.Pipe = 16/s.Rows, s.Rows, s.Rows, true
	f := o.Products[0].W.Format
	tiles := ceil(outputs, 32)
	if f.fine && f.unit == 32 && views == 1 && s.Steps == 4 && tiles*10 >= ceil(tiles, t.Units)*t.Units*9 {
		// Two scales of activations for each unit take registers: two rows share them.
		// A tile is then 32 rows, and the units have to be busy with those.
		s.Steps, s.Rows, s.Waves, s.Blocks, s.Grid = 2, 2, 16, 1, 1
	}
	longest := 4 * s.Waves * s.Lanes * held
	if s.Steps == 1 { // a lane's share is odd, and little on its way: half of a layer of 14336
		longest = longest / 4 * 3
	}
	if o.rounded(f).Data == 0 && longest < k { // a block rounds the input
		s.Waves, s.Blocks, s.Grid = 16, 1, 1
	}
	return s
}
