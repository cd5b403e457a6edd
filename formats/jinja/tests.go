package jinja

import "math/big"

// A test asks something about a value.
type test func(m *machine, v Value, a *args) bool

var comparisons = map[string]string{
	"==": "==", "eq": "==", "equalto": "==", "!=": "!=", "ne": "!=",
	">": ">", "gt": ">", "greaterthan": ">", ">=": ">=", "ge": ">=",
	"<": "<", "lt": "<", "lessthan": "<", "<=": "<=", "le": "<=", "in": "in",
}

// testNamed returns the test of a name, nil for none.
func testNamed(name string) test {
	if op, ok := comparisons[name]; ok {
		return func(m *machine, v Value, a *args) bool {
			return m.compare(op, v, a.only(m, name, 1, 1).values[0])
		}
	}
	switch name {
	case "divisibleby":
		return func(m *machine, v Value, a *args) bool {
			b := a.bind(m, name, 1, "num")
			return m.equal(m.binary("%", v, b.values[0]), int64(0))
		}
	case "sameas":
		return func(m *machine, v Value, a *args) bool {
			return identical(v, a.bind(m, name, 1, "other").values[0])
		}
	}
	is := plainTest(name)
	if is == nil {
		return nil
	}
	return func(m *machine, v Value, a *args) bool {
		a.only(m, name, 0, 0)
		return is(m, v)
	}
}

// identical is Python's "is", for numbers and texts as far as CPython shares
// them: small integers and equal constants.
func identical(a, b Value) bool {
	switch x := a.(type) {
	case string, markup, float64, *big.Int:
		return a == b
	case bool:
		y, ok := b.(bool)
		return ok && x == y
	}
	return a == b
}

func plainTest(name string) func(m *machine, v Value) bool {
	switch name {
	case "defined":
		return func(_ *machine, v Value) bool { return !isUndefined(v) }
	case "undefined":
		return func(_ *machine, v Value) bool { return isUndefined(v) }
	case "none":
		return func(_ *machine, v Value) bool { return v == nil }
	case "true":
		return func(_ *machine, v Value) bool { return v == true }
	case "false":
		return func(_ *machine, v Value) bool { return v == false }
	case "odd":
		return func(m *machine, v Value) bool { return m.equal(m.binary("%", v, int64(2)), int64(1)) }
	case "even":
		return func(m *machine, v Value) bool { return m.equal(m.binary("%", v, int64(2)), int64(0)) }
	case "number":
		return func(_ *machine, v Value) bool { return isNumber(v) }
	case "filter":
		return func(m *machine, v Value) bool {
			return m.exists(v, func(s string) bool { return filterNamed(s) != nil })
		}
	case "test":
		return func(m *machine, v Value) bool { return m.exists(v, func(s string) bool { return testNamed(s) != nil }) }
	case "lower":
		return func(m *machine, v Value) bool { return strPredicates["islower"](m.str(v)) }
	case "upper":
		return func(m *machine, v Value) bool { return strPredicates["isupper"](m.str(v)) }
	case "sequence":
		return isSequence
	case "iterable":
		return func(m *machine, v Value) bool { return m.iter(v) != nil }
	}
	return kindTest(name)
}

func isUndefined(v Value) bool {
	_, ok := v.(*undefined)
	return ok
}

func (m *machine) exists(v Value, named func(string) bool) bool {
	if s, ok := isText(v); ok {
		return named(s)
	}
	if !m.hashable(v) {
		m.fail("unhashable type: %s", typeName(v))
	}
	return false
}

func isSequence(_ *machine, v Value) bool {
	switch v.(type) {
	case string, markup, *list, *tuple, *Dict, *rng, *undefined:
		return true
	}
	return false
}

// kindTest asks for a type.
func kindTest(name string) func(m *machine, v Value) bool {
	of := map[string]func(v Value) bool{
		"boolean":  func(v Value) bool { _, ok := v.(bool); return ok },
		"float":    func(v Value) bool { _, ok := v.(float64); return ok },
		"mapping":  func(v Value) bool { _, ok := v.(*Dict); return ok },
		"escaped":  func(v Value) bool { _, ok := v.(markup); return ok },
		"string":   func(v Value) bool { _, ok := isText(v); return ok },
		"callable": isCallable,
		"integer": func(v Value) bool {
			_, isBool := v.(bool)
			_, ok := isInt(v)
			return ok && !isBool
		},
	}[name]
	if of == nil {
		return nil
	}
	return func(_ *machine, v Value) bool { return of(v) }
}

// isCallable: an undefined value has a method for calls, which fails.
func isCallable(v Value) bool {
	switch v.(type) {
	case *function, *macro, *loop, *undefined:
		return true
	}
	return false
}
