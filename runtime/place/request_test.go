package place

import "testing"

func TestParseRequest(t *testing.T) {
	for s, want := range map[string]Request{
		"cpu": {Kind: CPU}, "auto": {Kind: Auto}, "hip": {Kind: HIP}, "cuda:3": {Kind: CUDA, Ordinal: 3}, "hip:0": {Kind: HIP},
	} {
		got, err := ParseRequest(s)
		if err != nil || got != want {
			t.Errorf("%q is read as %+v, %v", s, got, err)
		}
		if again, err := ParseRequest(got.String()); err != nil || again != want {
			t.Errorf("%q is written as %q", s, got)
		}
	}
	for _, s := range []string{"", "gpu", "cpu:0", "auto:1", "hip:", "hip:-1", "hip:01", "cuda:x", "cuda:1:2", "hip:99999"} {
		if got, err := ParseRequest(s); err == nil {
			t.Errorf("%q is read as %+v", s, got)
		}
	}
	if (Request{}).String() != "cpu" || (Request{}).GPU() || !(Request{Kind: Auto}).GPU() {
		t.Error("the zero request is not the processor")
	}
}
