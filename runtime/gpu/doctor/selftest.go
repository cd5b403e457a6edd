package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// probe is the smallest kernel that shows compiler, loader, launch, LDS, a
// barrier and copies at work.
const probe = `extern "C" __global__ void nstf_probe(unsigned* out, unsigned factor) {
	__shared__ unsigned lds[64];
	lds[threadIdx.x] = (blockIdx.x * 64 + threadIdx.x) * factor;
	__syncthreads();
	out[blockIdx.x * 64 + threadIdx.x] = lds[63 - threadIdx.x];
}
`

// examineDevice opens a device and has it run the probe.
func examineDevice(l *driver.Library, ordinal int) Device {
	r := Device{Properties: driver.Properties{Ordinal: ordinal}}
	d, err := l.Open(ordinal)
	if err != nil {
		r.Test, r.Hint = err.Error(), hintOf(err)
		return r
	}
	defer d.Close()
	r.Properties = d.Properties()
	r.Expect = expectation(r.Target)
	r.Shared, _ = d.Shared()
	if r.Free, _, err = d.Memory(); err == nil {
		err = r.run(d)
	}
	if err != nil {
		r.Test, r.Hint = err.Error(), hintOf(err)
		r.Missing = errors.Is(err, driver.ErrMissing)
		return r
	}
	r.Test = "ok"
	return r
}

// run compiles and runs the probe.
func (r *Device) run(d *driver.Device) error {
	const n, factor = 128 * 64, 2654435761
	began := time.Now()
	code, log, err := d.CompileSource("probe.hip", probe, nil)
	r.Compile, r.Log = time.Since(began).Seconds(), log
	if err != nil {
		return err
	}
	m, err := d.Load(code)
	if err != nil {
		return err
	}
	f, err := m.Function("nstf_probe")
	if err != nil {
		return err
	}
	s, err := d.Stream()
	if err != nil {
		return err
	}
	b, err := d.Alloc(4 * n)
	if err != nil {
		return err
	}
	call := hip.Call{Grid: [3]uint32{n / 64, 1, 1}, Block: [3]uint32{64, 1, 1}, Args: []hip.Arg{hip.Ptr(b.Address), {Bits: factor, Size: 4}}}
	if err := errors.Join(s.Fill(b, 0xff), s.Launch(f, call)); err != nil {
		return err
	}
	got := make([]byte, 4*n)
	if err := s.Download(got, b); err != nil {
		return err
	}
	for i := range uint32(n) {
		want := (i/64*64 + 63 - i%64) * factor
		if v := binary.LittleEndian.Uint32(got[4*i:]); v != want {
			return fmt.Errorf("the kernel ran and was wrong: element %d is %#x, not %#x", i, v, want)
		}
	}
	return nil
}
