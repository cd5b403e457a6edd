package place

import (
	"fmt"
	"strconv"
	"strings"
)

// A Kind is a family of devices.
type Kind string

// The kinds. Auto is a GPU where one is found and the model fits, else the
// processor.
const (
	CPU  Kind = "cpu"
	Auto Kind = "auto"
	HIP  Kind = "hip"
	CUDA Kind = "cuda"
)

// A Request says which device a model shall run on. The zero value is the
// processor.
type Request struct {
	Kind    Kind
	Ordinal int // of several GPUs of a kind
}

// GPU reports whether the request may end on a GPU.
func (r Request) GPU() bool { return r.Kind != "" && r.Kind != CPU }

// String returns the spelling that ParseRequest reads.
func (r Request) String() string {
	switch {
	case r.Kind == "":
		return string(CPU)
	case r.Ordinal > 0:
		return fmt.Sprintf("%s:%d", r.Kind, r.Ordinal)
	}
	return string(r.Kind)
}

// maxOrdinal bounds the number of a GPU.
const maxOrdinal = 1 << 10

// ParseRequest reads auto, cpu, hip, hip:N, cuda or cuda:N.
func ParseRequest(s string) (Request, error) {
	name, ordinal, numbered := strings.Cut(s, ":")
	r := Request{Kind: Kind(name)}
	switch r.Kind {
	case HIP, CUDA:
	case CPU, Auto:
		if numbered {
			return Request{}, fmt.Errorf("device %q: only hip and cuda have a number", s)
		}
	default:
		return Request{}, fmt.Errorf("device %q is not one of auto, cpu, hip, hip:N, cuda, cuda:N", s)
	}
	if !numbered {
		return r, nil
	}
	n, err := strconv.Atoi(ordinal)
	if err != nil || n < 0 || n > maxOrdinal || strconv.Itoa(n) != ordinal {
		return Request{}, fmt.Errorf("device %q: %q is no number of a GPU", s, ordinal)
	}
	r.Ordinal = n
	return r, nil
}
