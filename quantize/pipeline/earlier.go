package pipeline

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/ledger"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/stats"
)

// Earlier returns the tensors of an earlier package of m whose recipe, seed and
// effort the plan leaves as they were. It fails where the package carries no
// plan and ledger, or was made from another model.
func Earlier(m, pkg *model.Model, p *plan.Plan) (map[string]Reused, error) {
	was, l, err := carried(pkg)
	if err != nil {
		return nil, err
	}
	source, err := stats.Fingerprint(m)
	if err != nil {
		return nil, err
	}
	if l.Source.Hash != source {
		return nil, formats.Errorf(pkg.Path, "", "made from another model than %s: %.12s there, %.12s here", m.Path, l.Source.Hash, source)
	}
	out := map[string]Reused{}
	if was.Seed != p.Seed || was.Effort != p.Effort {
		return out, nil // all are fitted anew
	}
	for i := range p.Tensors {
		t := &p.Tensors[i]
		old, ok := was.Tensor(t.Name)
		row, listed := l.Tensor(t.Name)
		if ok && listed && old.Recipe == t.Recipe && !t.Recipe.Kept() && row.Recipe == t.Recipe.String() {
			out[t.Name] = Reused{Tensor: pkg.Tensor(t.Name), Fit: Fit{Recipe: t.Recipe, Method: row.Method, Error: row.Obtained, Reference: 1}}
		}
	}
	return out, nil
}

// EditOf reports whether a plan is an edit of the one that a package carries, and so
// one for the model that the package was made from, by its name: what it changes
// cannot be had from weights that are coded already.
func EditOf(pkg *model.Model, p *plan.Plan) (name string, ok bool) {
	was, l, err := carried(pkg)
	if err != nil {
		return "", false
	}
	if own, err := stats.Fingerprint(pkg); err != nil || p.Source.Hash == own {
		return "", false // the plan was made for the package itself
	}
	for i := range p.Tensors {
		t := &p.Tensors[i]
		if old, ok := was.Tensor(t.Name); ok && !t.Recipe.Kept() && old.Recipe == t.Recipe {
			return l.Source.Model, true
		}
	}
	return "", false
}

// carried reads the plan and the ledger that a package carries.
func carried(pkg *model.Model) (*plan.Plan, *ledger.Ledger, error) {
	var data [2][]byte
	for i, name := range []string{nstf.PlanFile, nstf.LedgerFile} {
		var ok bool
		if data[i], ok = pkg.File(name); !ok {
			e := formats.Unsupportedf(pkg.Path, name, "going on from a package without this file")
			e.Hint = "quantize the model itself by --plan"
			return nil, nil, e
		}
	}
	p, err := plan.Parse(pkg.Path+": "+nstf.PlanFile, data[0])
	if err != nil {
		return nil, nil, err
	}
	l, err := ledger.Parse(pkg.Path+": "+nstf.LedgerFile, data[1])
	return p, l, err
}
