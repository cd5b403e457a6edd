package graph

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
)

// Parse reads a graph from a package's JSON and checks it. Keys that are not
// known are refused by name: what this program would leave out is not the same
// model. Keys that docs/graph.md requires must be there. Errors are those of
// [Graph.Check], or of JSON, and name the place.
func Parse(data []byte) (*Graph, error) {
	k := keys{}
	k.value("", data, reflect.TypeFor[Graph]())
	if k.unknown != nil {
		return nil, k.unknown
	}
	if k.wrong != nil {
		return nil, k.wrong
	}
	g := &Graph{}
	if err := json.Unmarshal(data, g); err != nil {
		return nil, formats.Errorf("", "graph", "%v", err)
	}
	if err := g.Check(); err != nil {
		return nil, err
	}
	return g, nil
}

// keys holds the keys of a graph's JSON to the fields of its types, which
// encoding/json does not: it takes keys of another case, null for anything,
// and what is missing for zero. It remembers the first key that is not known,
// and the first other fault.
type keys struct {
	unknown, wrong error
}

func (k *keys) fail(at, format string, args ...any) {
	if k.wrong == nil {
		k.wrong = formats.Errorf("", strings.TrimSuffix("graph."+at, "."), format, args...)
	}
}

// value walks what stands at a place where t belongs. Wrong types are left to
// encoding/json, which names them as well.
func (k *keys) value(at string, data json.RawMessage, t reflect.Type) {
	data = bytes.TrimSpace(data)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case bytes.Equal(data, []byte("null")):
		k.fail(at, "null is no value")
	case t.Kind() == reflect.Struct:
		k.object(at, data, t)
	case t.Kind() == reflect.Slice:
		var items []json.RawMessage
		if err := json.Unmarshal(data, &items); err != nil {
			k.fail(at, "%v", err)
		}
		for i, item := range items {
			k.value(fmt.Sprintf("%s[%d]", at, i), item, t.Elem())
		}
	case t.Kind() == reflect.Int64 || t.Kind() == reflect.Int:
		if bytes.Equal(data, []byte("-0")) {
			k.fail(at, "-0 is not an integer")
		}
	}
}

func (k *keys) object(at string, data json.RawMessage, t reflect.Type) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil {
		k.fail(at, "%v", err)
		return
	}
	if at != "" {
		at += "."
	}
	known := map[string]bool{}
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		known[name] = true
		if item, ok := object[name]; ok {
			k.value(at+name, item, f.Type)
		} else if options != "omitempty" {
			k.fail(at+name, "is missing")
		}
	}
	var strange []string
	for name := range object {
		if !known[name] {
			strange = append(strange, name)
		}
	}
	if len(strange) > 0 && k.unknown == nil {
		u := formats.Unsupportedf("", strings.TrimSuffix("graph."+at, "."), "operation %q, which this program does not know", slices.Min(strange))
		u.Hint = "a newer version of nstf may know it"
		k.unknown = u
	}
}
