package jinja

// An expr is an expression. eval is called through machine.eval only, which
// counts steps and depth.
type expr interface {
	eval(m *machine, f *frame) Value
	at() int
}

// A stmt is a statement. exec is called through machine.exec only.
type stmt interface {
	exec(m *machine, f *frame) signal
	at() int
}

// A signal says how a statement ended.
type signal int

const (
	normally signal = iota
	breaking
	continuing
)

// pos is a node's line.
type pos int

func (p pos) at() int { return int(p) }

type (
	constExpr struct {
		pos
		value Value
	}
	nameExpr struct {
		pos
		name string
	}
	listExpr struct {
		pos
		items []expr
	}
	tupleExpr struct {
		pos
		items []expr
	}
	dictExpr struct {
		pos
		keys, values []expr
	}
	attrExpr struct {
		pos
		of   expr
		name string
	}
	itemExpr struct {
		pos
		of, key expr
	}
	sliceExpr struct { // nil parts are absent
		pos
		start, stop, step expr
	}
	// callExpr, filterExpr and testExpr: of is what is called or piped; nil
	// within a filter block, whose text takes its place.
	callExpr struct {
		pos
		of   expr
		args callArgs
	}
	filterExpr struct {
		pos
		of   expr
		name string
		args callArgs
	}
	testExpr struct {
		pos
		of   expr
		name string
		args callArgs
	}
	notExpr struct {
		pos
		of expr
	}
	signExpr struct {
		pos
		op byte // '+' or '-'
		of expr
	}
	logicExpr struct {
		pos
		or          bool
		left, right expr
	}
	binaryExpr struct {
		pos
		op          string
		left, right expr
	}
	concatExpr struct {
		pos
		parts []expr
	}
	compareExpr struct {
		pos
		first expr
		ops   []string // "==" ... "in", "notin"
		rest  []expr
	}
	condExpr struct { // no is nil where there is no else
		pos
		test, yes, no expr
	}
	// nsExpr is the target ns.attr of a set statement.
	nsExpr struct {
		pos
		name, attr string
	}
)

// callArgs are the arguments of a call as they are written.
type callArgs struct {
	pos      []expr
	names    []string
	values   []expr // of names
	star     expr   // *args, or nil
	starstar expr   // **kwargs, or nil
}

type (
	dataStmt struct {
		pos
		text string
	}
	outputStmt struct {
		pos
		of expr
	}
	ifStmt struct {
		pos
		tests  []expr
		bodies [][]stmt // one more than tests where there is an else
	}
	forStmt struct {
		pos
		target    expr
		iter      expr
		test      expr // or nil
		body, els []stmt
		recursive bool
		extended  bool // the body uses "loop"
	}
	setStmt struct {
		pos
		target, value expr
	}
	setBlockStmt struct {
		pos
		target expr
		filter expr // a filterExpr with a nil of at its root, or nil
		body   []stmt
	}
	withStmt struct {
		pos
		targets, values []expr
		body            []stmt
	}
	macroStmt struct {
		pos
		def *macroDef
	}
	callStmt struct { // call and generation blocks; of is nil for the latter
		pos
		of  *callExpr
		def *macroDef
	}
	filterStmt struct {
		pos
		filter expr
		body   []stmt
	}
	scopeStmt struct { // block: a scope that sees top-level names only
		pos
		body []stmt
	}
	breakStmt struct {
		pos
		signal signal
	}
	refusedStmt struct { // a statement that can only fail when it is reached
		pos
		reason string
	}
)

// A macroDef is a macro's signature and body.
type macroDef struct {
	name     string
	params   []string
	defaults []expr // of the last parameters
	body     []stmt
	// caller, varargs and kwargs say that the body uses these names without
	// declaring them; only then they are accepted.
	caller, varargs, kwargs bool
}
