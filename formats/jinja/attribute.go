package jinja

import (
	"math"
	"math/big"
)

// A method is a method of a value's type.
type method func(m *machine, v Value, a *args) Value

// mutators are methods that Jinja's immutable sandbox hides.
var (
	listMutators = map[string]bool{"append": true, "clear": true, "pop": true, "reverse": true, "insert": true, "sort": true, "extend": true, "remove": true}
	dictMutators = map[string]bool{"clear": true, "pop": true, "popitem": true, "setdefault": true, "update": true}
)

// attribute is Python's attribute of a value, false where it has none. Names
// with an underscore before them are hidden by the sandbox.
func (m *machine) attribute(v Value, name string) (Value, bool) {
	var methods map[string]method
	switch v := v.(type) {
	case string, markup:
		do := strMethod(name)
		if do == nil {
			return nil, false
		}
		return bind(name, v, do), true
	case *Dict:
		if dictMutators[name] {
			return &undefined{msg: "the sandbox hides " + name + " of dict"}, true
		}
		methods = dictMethods
	case *list:
		if listMutators[name] {
			return &undefined{msg: "the sandbox hides " + name + " of list"}, true
		}
		methods = sequenceMethods
		if name == "copy" {
			return bind(name, v, func(m *machine, _ Value, a *args) Value {
				a.only(m, name, 0, 0)
				return m.newList(v.items)
			}), true
		}
	case *tuple:
		if v.group && name == "grouper" {
			return v.items[0], true
		}
		if v.group && name == "list" {
			return v.items[1], true
		}
		methods = sequenceMethods
	case *rng:
		switch name {
		case "start":
			return v.start, true
		case "stop":
			return v.stop, true
		case "step":
			return v.step, true
		}
		methods = sequenceMethods
	case *namespace:
		return v.attrs.text(name)
	case *loop:
		return v.attr(m, name)
	case *macro:
		return v.attr(m, name)
	case *cycler:
		return v.attr(name)
	case *function:
		if v != dictGlobal || name != "fromkeys" {
			return nil, false
		}
		return &function{name, fromKeys}, true
	case bool, int64, *big.Int, float64:
		return numberAttr(v, name)
	}
	do, ok := methods[name]
	if !ok {
		return nil, false
	}
	return bind(name, v, do), true
}

func bind(name string, v Value, do method) *function {
	return &function{name, func(m *machine, a *args) Value { return do(m, v, a) }}
}

func numberAttr(v Value, name string) (Value, bool) {
	plain := v
	if i, ok := isInt(v); ok {
		plain = norm(i)
	}
	f, isFloat := v.(float64)
	none := func(result func() Value) (Value, bool) {
		return &function{name, func(m *machine, a *args) Value {
			a.only(m, name, 0, 0)
			return result()
		}}, true
	}
	switch {
	case name == "real" || name == "numerator" && !isFloat:
		return plain, true
	case name == "imag" && isFloat:
		return 0.0, true
	case name == "imag":
		return int64(0), true
	case name == "denominator" && !isFloat:
		return int64(1), true
	case name == "conjugate":
		return none(func() Value { return plain })
	case name == "is_integer" && isFloat:
		return none(func() Value { return f == math.Trunc(f) && !math.IsInf(f, 0) })
	case name == "bit_length" && !isFloat:
		i, _ := isInt(v)
		return none(func() Value { return int64(i.BitLen()) })
	}
	return nil, false
}

func (c *cycler) attr(name string) (Value, bool) {
	switch name {
	case "current":
		return c.items[c.at], true
	case "pos":
		return int64(c.at), true
	case "items":
		return &tuple{items: c.items}, true
	case "next":
		return &function{name, func(m *machine, a *args) Value {
			a.only(m, name, 0, 0)
			v := c.items[c.at]
			c.at = (c.at + 1) % len(c.items)
			return v
		}}, true
	case "reset":
		return &function{name, func(m *machine, a *args) Value {
			a.only(m, name, 0, 0)
			c.at = 0
			return nil
		}}, true
	}
	return nil, false
}

var dictMethods = map[string]method{
	"items":  viewMethod("items"),
	"keys":   viewMethod("keys"),
	"values": viewMethod("values"),
	"get": func(m *machine, v Value, a *args) Value {
		b := a.only(m, "get", 1, 2)
		if x, ok := m.get(v.(*Dict), b.values[0]); ok {
			return x
		}
		return b.values[1]
	},
	"copy": func(m *machine, v Value, a *args) Value {
		a.only(m, "copy", 0, 0)
		return m.copyDict(v.(*Dict))
	},
	"fromkeys": func(m *machine, _ Value, a *args) Value { return fromKeys(m, a) },
}

func viewMethod(what string) method {
	return func(m *machine, v Value, a *args) Value {
		a.only(m, what, 0, 0)
		return &view{v.(*Dict), what}
	}
}

func (m *machine) copyDict(d *Dict) *Dict {
	out := NewDict()
	for i, k := range d.keys {
		m.put(out, k, d.values[i])
	}
	return out
}

func fromKeys(m *machine, a *args) Value {
	b := a.only(m, "fromkeys", 1, 2)
	d := NewDict()
	for _, k := range m.items(b.values[0]) {
		m.put(d, k, b.values[1])
	}
	return d
}

// sequenceMethods are those of lists, tuples and ranges.
var sequenceMethods = map[string]method{
	"count": func(m *machine, v Value, a *args) Value {
		b := a.only(m, "count", 1, 1)
		n := int64(0)
		for _, x := range m.items(v) {
			n += int64(btoi(m.same(x, b.values[0])))
		}
		return n
	},
	"index": func(m *machine, v Value, a *args) Value {
		b := a.only(m, "index", 1, 3)
		items := m.items(v)
		n := int64(len(items))
		limit := func(i, otherwise int64) int64 {
			if !b.set[i] {
				return otherwise
			}
			at := m.clamped("index", b.values[i])
			if at < 0 {
				at = max(at+n, 0)
			}
			return min(at, n)
		}
		for i := limit(1, 0); i < limit(2, n); i++ {
			if m.same(items[i], b.values[0]) {
				return i
			}
		}
		m.fail("the value is not in the %s", typeName(v))
		return nil
	},
}
