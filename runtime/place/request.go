package place

import (
	"fmt"
	"slices"
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
	case r.Kind == HIP || r.Kind == CUDA:
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

// ParseRequests reads one request, or several with commas between: no device twice, and
// auto by itself.
func ParseRequests(s string) ([]Request, error) {
	var all []Request
	for name := range strings.SplitSeq(s, ",") {
		r, err := ParseRequest(name)
		switch {
		case err != nil:
			return nil, err
		case slices.Contains(all, r):
			return nil, fmt.Errorf("device %q names %v twice", s, r)
		case r.Kind == Auto && name != s:
			return nil, fmt.Errorf("device %q: auto stands by itself", s)
		}
		all = append(all, r)
	}
	return all, nil
}

// MarshalText writes what [Request.String] does.
func (r Request) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what [ParseRequest] does.
func (r *Request) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRequest(string(text))
	return err
}
