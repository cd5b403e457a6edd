package jinja

import (
	"iter"
	"math/big"
	"strconv"
)

// A Value is a Python value: nil is None; bool; int64 and *big.Int are int,
// the latter only beyond 64 bits; float64; string; markup is a string that
// needs no escaping; *list, *tuple, *Dict; and the kinds below.
type Value = any

type (
	markup string
	list   struct{ items []Value }
	tuple  struct {
		items []Value
		group bool // of groupby: its items are also called grouper and list
	}
	// undefined is what a name or attribute that does not exist gives: it
	// prints as nothing, is false and empty, and fails when it is used.
	undefined struct{ msg string }
	namespace struct{ attrs *Dict }
	// rng is a range of n numbers.
	rng struct{ start, stop, step, n int64 }
	// view is a dictionary's keys, values or items.
	view struct {
		of   *Dict
		what string
	}
	// iterator gives each of its values once, like a generator.
	iterator struct {
		what string
		next func() (Value, bool)
	}
	// function is a callable. Its name is Python's.
	function struct {
		name string
		call func(m *machine, a *args) Value
	}
	// kind of cycler() and its position.
	cycler struct {
		items []Value
		at    int
	}
)

// A Dict is a dictionary in the order in which its keys came. It must not be
// changed while a template that was given it is rendered.
type Dict struct {
	keys, values []Value
	at           map[any]int // by hash key
}

// NewDict returns an empty dictionary.
func NewDict() *Dict { return &Dict{at: map[any]int{}} }

// Set sets the value of a key.
func (d *Dict) Set(key string, v any) { d.put(key, key, v) }

// Get returns the value of a key, and whether it is there.
func (d *Dict) Get(key string) (any, bool) { return d.text(key) }

// All are the keys and values in order. It is for dictionaries whose keys
// were given to Set.
func (d *Dict) All() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for i, k := range d.keys {
			if !yield(k.(string), d.values[i]) {
				return
			}
		}
	}
}

// put sets the value of a key with a hash key.
func (d *Dict) put(hash any, key, v Value) {
	if i, ok := d.at[hash]; ok {
		d.values[i] = v
		return
	}
	d.at[hash] = len(d.keys)
	d.keys = append(d.keys, key)
	d.values = append(d.values, v)
}

// text returns the value of a string as key.
func (d *Dict) text(key string) (Value, bool) {
	if i, ok := d.at[key]; ok {
		return d.values[i], true
	}
	return nil, false
}

// get returns the value of a key, which must be hashable.
func (m *machine) get(d *Dict, key Value) (Value, bool) {
	if i, ok := d.at[m.hash(key)]; ok {
		return d.values[i], true
	}
	return nil, false
}

// put sets the value of a key, which must be hashable.
func (m *machine) put(d *Dict, key, v Value) {
	m.alloc(96)
	d.put(m.hash(key), key, v)
}

// convert makes values of what a caller gave.
func (m *machine) convert(v any) Value {
	m.enter()
	defer m.leave()
	m.given += 8
	switch v := v.(type) {
	case int:
		return int64(v)
	case *big.Int:
		return norm(v)
	case []any:
		out := make([]Value, len(v))
		for i, x := range v {
			out[i] = m.convert(x)
		}
		return &list{out}
	case *Dict:
		out := &Dict{keys: v.keys, values: make([]Value, len(v.values)), at: v.at}
		for i, x := range v.values {
			m.convert(v.keys[i])
			out.values[i] = m.convert(x)
		}
		return out
	case string:
		m.given = min(m.given+int64(len(v)), 1<<40)
		return v
	case nil, bool, int64, float64:
		return v
	}
	panic("jinja: a variable of a type that is not documented")
}

// newList makes a list, newTuple a tuple; both own items.
func (m *machine) newList(items []Value) *list {
	m.allocs(int64(len(items)+3), 16)
	return &list{items}
}

func (m *machine) newTuple(items ...Value) *tuple {
	m.allocs(int64(len(items)+3), 16)
	return &tuple{items: items}
}

// typeName is Python's name of a value's type.
func typeName(v Value) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case markup:
		return "Markup"
	case *list:
		return "list"
	case *tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case *undefined:
		return "Undefined"
	case *namespace:
		return "Namespace"
	case *rng:
		return "range"
	case *view:
		return "dict_" + v.what
	case *iterator:
		return v.what
	case *function:
		return "function " + strconv.Quote(v.name)
	case *macro:
		return "Macro"
	case *loop:
		return "LoopContext"
	case *cycler:
		return "Cycler"
	}
	panic("jinja: not a value")
}

// truth is Python's bool(v).
func truth(m *machine, v Value) bool {
	switch v := v.(type) {
	case nil, *undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case markup:
		return v != ""
	case *list:
		return len(v.items) > 0
	case *tuple:
		return len(v.items) > 0
	case *Dict:
		return len(v.keys) > 0
	case *rng:
		return v.n > 0
	case *view:
		return len(v.of.keys) > 0
	case *loop:
		return v.length(m) > 0
	}
	return true
}

// isText returns the text of a string.
func isText(v Value) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case markup:
		return string(v), true
	}
	return "", false
}

// like gives s the type of a string it came from.
func like(v Value, s string) Value {
	if _, ok := v.(markup); ok {
		return markup(s)
	}
	return s
}

// length is Python's len(v), false where v has none.
func (m *machine) length(v Value) (int64, bool) {
	switch v := v.(type) {
	case string:
		return m.runes(v), true
	case markup:
		return m.runes(string(v)), true
	case *list:
		return int64(len(v.items)), true
	case *tuple:
		return int64(len(v.items)), true
	case *Dict:
		return int64(len(v.keys)), true
	case *rng:
		return v.n, true
	case *view:
		return int64(len(v.of.keys)), true
	case *undefined:
		return 0, true
	case *loop:
		return v.length(m), true
	}
	return 0, false
}
