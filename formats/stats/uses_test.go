package stats_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/stats"
)

func TestUses(t *testing.T) {
	u := &stats.Uses{Version: 1, Text: "a.txt", TextHash: "00", Blocks: []stats.Use{{Block: 1, Chosen: []int64{3, 0, 5}}, {Block: 7, Chosen: []int64{1}}}}
	again, err := stats.ParseUses("x", u.Encode())
	if err != nil || !reflect.DeepEqual(again, u) {
		t.Fatalf("%+v, %v, want %+v", again, err, u)
	}
	if u.Of(1, 3)[2] != 5 || u.Of(1, 4) != nil || u.Of(2, 3) != nil || (*stats.Uses)(nil).Of(1, 3) != nil {
		t.Error("counts of a block that has others")
	}
	for _, text := range []string{
		``, `{}`, `{"version":2,"text":"","text_hash":"","blocks":[]}`, `{"version":1,"text":"","text_hash":"","blocks":[],"more":1}`,
		`{"version":1,"text":"","text_hash":"","blocks":[{"block":-1,"chosen":[1]}]}`,
		`{"version":1,"text":"","text_hash":"","blocks":[{"block":0,"chosen":[]}]}`,
		`{"version":1,"text":"","text_hash":"","blocks":[{"block":0,"chosen":[-1]}]}`,
		`{"version":1,"text":"","text_hash":"","blocks":[{"block":0,"chosen":[9223372036854775807]}]}`,
		`{"version":1,"text":"","text_hash":"","blocks":[{"block":3,"chosen":[1]},{"block":3,"chosen":[1]}]}`,
		`{"version":1,"text":"","text_hash":"","blocks":[{"block":0,"chosen":[1]}]} x`,
	} {
		var wrong *formats.FormatError
		var newer *formats.UnsupportedError
		if u, err := stats.ParseUses("x", []byte(text)); u != nil || !errors.As(err, &wrong) && !errors.As(err, &newer) {
			t.Errorf("%q: %+v, %v", text, u, err)
		}
	}
}

// What is read can be written, and read again.
func FuzzParseUses(f *testing.F) {
	f.Add((&stats.Uses{Version: 1, Blocks: []stats.Use{{Block: 1, Chosen: []int64{3, 0, 5}}}}).Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		u, err := stats.ParseUses("x", data)
		if err != nil {
			return
		}
		if again, err := stats.ParseUses("x", u.Encode()); err != nil || len(again.Blocks) != len(u.Blocks) {
			t.Errorf("%+v becomes %+v, %v", u, again, err)
		}
	})
}
