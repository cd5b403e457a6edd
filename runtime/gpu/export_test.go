package gpu

// Plan returns what lies on the device.
func (e *Engine) Plan() Plan { return e.plan }
