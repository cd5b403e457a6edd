package gpu

// Plan returns what lies on the device.
func (e *Engine) Plan() Plan { return e.plan }

// PlaneBytes returns what the keys and values of a page take in all layers.
func (e *Engine) PlaneBytes() int64 { return planeBytes(e.pool.layers) }
