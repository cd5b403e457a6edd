package driver_test

import (
	"testing"

	"github.com/nstf/nstf/kernels/hip"
)

// BenchmarkOverhead times the driver's own part of a call: on the fake device
// the call itself costs nothing.
func BenchmarkOverhead(b *testing.B) {
	d := newBench(b, newFake(b, hip.HIP).open)
	f := must(d.module.Function("step"))(b)
	buf := must(d.Alloc(64))(b)
	call := hip.Call{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Args: []hip.Arg{hip.Ptr(buf.Address)}}
	g := must(d.Capture(func() error { return d.Launch(f, call) }))(b)
	token := make([]byte, 4)
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"launch", func() error { return d.Launch(f, call) }},
		{"replay", func() error { return d.Replay(g) }},
		{"replay, wait", func() error { check(b, d.Replay(g)); return d.Wait() }},
		{"replay, download", func() error { check(b, d.Replay(g)); return d.Download(token, buf) }},
		{"upload, replay, download", func() error { check(b, d.Upload(buf, token)); check(b, d.Replay(g)); return d.Download(token, buf) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.do(); err != nil {
					b.Fatal(err)
				}
			}
			check(b, d.Wait())
		})
	}
}
