package graph

import (
	"reflect"
	"testing"
)

// TestOperations: each operation that a block may have is in one list, and is what
// Mixes or Feeds report.
func TestOperations(t *testing.T) {
	of := reflect.TypeFor[operation]()
	for i := range reflect.TypeFor[Block]().NumField() {
		var b Block
		f := reflect.ValueOf(&b).Elem().Field(i)
		if name := reflect.TypeFor[Block]().Field(i).Name; f.Type().Implements(of) && name != "PerLayer" {
			f.Set(reflect.New(f.Type().Elem()))
			if mixers, ffns := len(b.mixers()), len(b.ffns()); mixers+ffns != 1 || b.Mixes() != (mixers == 1) || b.Feeds() != (ffns == 1) {
				t.Errorf("%s is %d mixers and %d feed-forward layers; mixes %v, feeds %v", name, mixers, ffns, b.Mixes(), b.Feeds())
			}
		}
	}
}
