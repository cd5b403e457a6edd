package hip

// shape chooses how a launch divides its work: outputs rows of W in all.
func (o *Matvec) shape(t Target, w *Weight, integer bool, rows, outputs int) MatvecShape {
	if o.Shape != nil {
		return *o.Shape
	}
	units := w.K / w.Format.unit
	s := MatvecShape{Rows: 4, Lanes: t.Wave, Waves: 8, Split: 1, Steps: 2, Blocks: 1}
	for s.Lanes > 1 && s.Lanes > units {
		s.Lanes /= 2
	}
	if rows > 2 || !integer && w.Format.unit > 16 {
		s.Steps = 1
	}
	if !integer {
		s.Rows = 2
	}
	// Enough waves to fill the machine come before rows that share activations.
	for s.Rows > 1 && outputs*s.Lanes < 16*t.Units*t.Wave*s.Rows {
		s.Rows /= 2
	}
	if o.Rounded.Data != 0 {
		// A tile is whole blocks of 32 outputs.
		for s.Waves*(t.Wave/s.Lanes)*s.Rows%32 != 0 {
			s.Waves *= 2
		}
	}
	return s
}
