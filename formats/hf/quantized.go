package hf

import "github.com/nstf/nstf/formats"

// joinQuantized puts the tensors of quantized matrices together.
func (d *Dir) joinQuantized() error {
	if q, ok := d.config.Sub("quantization_config"); ok {
		method, err := q.String("quant_method")
		if err != nil {
			return err
		}
		return formats.Unsupportedf(q.file, "quantization_config", "quantized by %q", method)
	}
	return nil
}
