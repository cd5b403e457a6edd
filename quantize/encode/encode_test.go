package encode_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/quantize/encode"
)

const micro = "../../testdata/micro"

func Example() {
	m, err := checkpoint.Open(micro + "/llama-k256")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	policy, err := encode.NewPolicy("q4_k", "", "")
	if err != nil {
		log.Fatal(err)
	}
	r, err := encode.Run(context.Background(), m, atomicfile.Scratch(filepath.Join(dir, "small.nstf")), encode.Options{Policy: policy})
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range r.Tensors[:3] {
		fmt.Println(t.Name, t.Shape, t.From, t.To)
	}
	// Output:
	// embed.weight [264 256] bf16 q6_k
	// blocks.0.attn_norm.weight [256] bf16 bf16
	// blocks.0.attn.q.weight [64 256] bf16 q4_k
}

func TestPolicyNames(t *testing.T) {
	for _, c := range []struct{ scheme, embed, head, wantEmbed, wantHead string }{
		{"q4_k", "", "", "q4_k", "q6_k"},
		{"q5_k", "", "", "q5_k", "q6_k"},
		{"q6_k", "", "", "q6_k", "q6_k"},
		{"q8_0", "", "", "q8_0", "q8_0"},
		{"f16", "", "", "f16", "f16"},
		{"q4_0", "q8_0", "q4_0", "q8_0", "q4_0"},
	} {
		p, err := encode.NewPolicy(c.scheme, c.embed, c.head)
		if err != nil || p.Scheme.Name != c.scheme || p.Embed.Name != c.wantEmbed || p.Head.Name != c.wantHead {
			t.Errorf("%+v: %+v, %v", c, p, err)
		}
	}
	for _, bad := range [][3]string{{"nosuch", "", ""}, {"q4_k", "iq1_s", ""}, {"q4_k", "", "nosuch"}} {
		var u *formats.UnsupportedError
		if _, err := encode.NewPolicy(bad[0], bad[1], bad[2]); !errors.As(err, &u) || u.Hint == "" {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// The bytes do not depend on the number of threads.
func TestThreads(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	policy, err := encode.NewPolicy("q4_k", "", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []encode.Options{{Policy: policy}, {DType: "bf16"}, {}} {
		var first []byte
		for _, threads := range []int{1, 3} {
			runtime.GOMAXPROCS(threads)
			m, err := checkpoint.Open(filepath.Join(micro, "llama-k256"))
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "out.nstf")
			if _, err := encode.Run(context.Background(), m, atomicfile.Scratch(path), o); err != nil {
				t.Fatal(err)
			}
			m.Close()
			p, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = p
			} else if !bytes.Equal(first, p) {
				t.Errorf("%+v: %d threads give other bytes than one", o, threads)
			}
		}
	}
}

func TestUnknownDType(t *testing.T) {
	m, err := checkpoint.Open(filepath.Join(micro, "llama-2"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var u *formats.UnsupportedError
	if _, err := encode.Run(context.Background(), m, atomicfile.Scratch(filepath.Join(t.TempDir(), "x")), encode.Options{DType: "i8"}); !errors.As(err, &u) {
		t.Errorf("%v", err)
	}
}

// What was asked for of a table that is embedding and head at once.
func TestTiedTable(t *testing.T) {
	for names, want := range map[[2]string]string{{"", ""}: "q6_k", {"q8_0", ""}: "q8_0", {"", "q5_k"}: "q5_k", {"q8_0", "q5_k"}: "q5_k"} {
		m, err := checkpoint.Open(filepath.Join(micro, "llama-k256"))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if !m.Graph.Tied() {
			t.Fatal("the model is not tied")
		}
		p, err := encode.NewPolicy("q4_k", names[0], names[1])
		if err != nil {
			t.Fatal(err)
		}
		r, err := encode.Run(t.Context(), m, atomicfile.Scratch(filepath.Join(t.TempDir(), "x.nstf")), encode.Options{Policy: p})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Tensors[0]; got.Name != "embed.weight" || got.To != want {
			t.Errorf("%q: %s is %s, not %s", names, got.Name, got.To, want)
		}
	}
}
