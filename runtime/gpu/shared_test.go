package gpu_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/cpu"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu"
)

// TestShared: a model that has no room in the memory of a processor's graphics runs
// in the host's memory that they map, as it does on the processor. The emulator plays
// such a device: AMDEMU_INTEGRATED=1 AMDEMU_VRAM=1048576.
func TestShared(t *testing.T) {
	if *deviceFlag == "" {
		t.Skip("no -device")
	}
	m, err := checkpoint.Open("../../testdata/micro/llama-3")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	o := gpu.Options{API: hip.API(*deviceFlag), Exact: true, Context: 64, Kernels: *kernelsFlag, Root: t.TempDir()}
	e, err := gpu.New(m.Graph, device.Whole(m.Graph), m.Tensor, o)
	if err == nil {
		e.Close()
		t.Skip("the device has room")
	}
	var large *gpu.TooLargeError
	if !errors.As(err, &large) || large.Plan.Shared != 0 {
		t.Fatalf("without the host's memory: %v", err)
	}
	for name, text := range map[string]string{
		"sys/bus/pci/devices/0000:03:00.0/mem_info_vram_total": "1048576", "sys/bus/pci/devices/0000:03:00.0/mem_info_gtt_total": "8589934592",
		"sys/bus/pci/devices/0000:03:00.0/mem_info_gtt_used": "0", "proc/meminfo": "MemAvailable: 4194304 kB",
	} {
		path := filepath.Join(o.Root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(text+"\n"), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	if e, err = gpu.New(m.Graph, device.Whole(m.Graph), m.Tensor, o); err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	p := e.Plan()
	if p.Shared != 4<<30/8*7 || !strings.Contains(p.String(), "3.50 GiB of them the processor's") {
		t.Errorf("%v", &p)
	}
	reference, err := cpu.New(m.Graph, device.Whole(m.Graph), m.Tensor, cpu.Options{Exact: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reference.Close()
	for _, prompt := range []int{13, 1} {
		if off := difference(logits(t, e, m.Graph.Vocab, prompt), logits(t, reference, m.Graph.Vocab, prompt)); !(off <= 2e-5) {
			t.Errorf("prompt of %d: off by %.2g of the logits' size", prompt, off)
		}
	}
	if got, want := greedy(t, e, m.Graph.Vocab), greedy(t, reference, m.Graph.Vocab); !slices.Equal(got, want) {
		t.Errorf("goes on with %d, the processor with %d", got, want)
	}
}
