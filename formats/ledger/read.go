package ledger

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/pyjson"
)

// maxFile is the most that a ledger's file holds.
const maxFile = 64 << 20

// Read reads a ledger's file.
func Read(path string) (*Ledger, error) {
	data, err := formats.ReadFile(path, maxFile, "a ledger")
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// Parse reads a ledger's bytes; file names them in errors.
func Parse(file string, data []byte) (*Ledger, error) {
	r := reader{pyjson.NewScanner(file, 0, data), &Ledger{}}
	if err := r.ledger(); err != nil {
		return nil, err
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	return r.l, nil
}

type reader struct {
	*pyjson.Scanner
	l *Ledger
}

func (r *reader) ledger() error {
	l := r.l
	return r.Record("", []pyjson.Member{
		{Name: "version", Read: r.Version(&l.Version, Version, "ledger", "package")},
		{Name: "source", Read: r.source},
		{Name: "model", Read: r.model},
		{Name: "notes", Read: r.Texts(&l.Notes)},
		{Name: "experts", Read: func() error { return r.Array(r.expert) }},
		{Name: "blocks", Read: func() error { return r.Array(r.block) }},
		{Name: "layers", Optional: true, Read: func() error { return r.Array(r.layer) }},
		{Name: "tensors", Read: func() error { return r.Array(r.tensor) }},
	})
}

func (r *reader) source() error {
	s := &r.l.Source
	return r.Record("source", []pyjson.Member{
		{Name: "model", Read: r.Text(&s.Model)},
		{Name: "hash", Read: r.Text(&s.Hash)},
		{Name: "text", Read: r.Text(&s.Text)},
		{Name: "text_hash", Read: r.Text(&s.TextHash)},
		{Name: "context", Read: r.Integer("context", &s.Context)},
		{Name: "windows", Read: r.Integer("windows", &s.Windows)},
		{Name: "held", Read: r.Text(&s.Held)},
		{Name: "held_windows", Read: r.Integer("held_windows", &s.HeldCount)},
		{Name: "seed", Read: r.Integer("seed", &s.Seed)},
	})
}

func (r *reader) model() error {
	m := &r.l.Model
	return r.Record("model", []pyjson.Member{
		{Name: "bytes", Read: r.Integer("model.bytes", &m.Bytes)},
		{Name: "bpw", Read: r.Float("model.bpw", &m.BPW)},
		{Name: "predicted_kld", Read: r.Float("model.predicted_kld", &m.PredictedKLD)},
		{Name: "kld", Optional: true, Read: r.figure("model.kld", &m.KLD)},
		{Name: "noise_floor", Optional: true, Read: r.figure("model.noise_floor", &m.Floor)},
		{Name: "perplexity", Optional: true, Read: r.figure("model.perplexity", &m.Perplexity)},
		{Name: "original_perplexity", Optional: true, Read: r.figure("model.original_perplexity", &m.Original)},
		{Name: "top1", Optional: true, Read: r.figure("model.top1", &m.Top1)},
	})
}

func (r *reader) figure(what string, dst **Figure) func() error {
	return func() error {
		f := &Figure{}
		*dst = f
		return r.Record(what, []pyjson.Member{
			{Name: "mean", Read: r.Float(what+".mean", &f.Mean)},
			{Name: "se", Read: r.Float(what+".se", &f.SE)},
		})
	}
}

func (r *reader) expert() error {
	var e Expert
	err := r.Record("experts", []pyjson.Member{
		{Name: "input", Read: r.Text(&e.Input)},
		{Name: "expert", Read: r.Integer("expert", &e.Expert)},
		{Name: "tokens", Read: r.Integer("tokens", &e.Tokens)},
		{Name: "used", Read: r.Text(&e.Used)},
	})
	r.l.Experts = append(r.l.Experts, e)
	return err
}

func (r *reader) block() error {
	var b Block
	err := r.Record("blocks", []pyjson.Member{
		{Name: "block", Read: r.Integer("block", &b.Index)},
		{Name: "drift", Read: r.Float("drift", &b.Drift)},
	})
	r.l.Blocks = append(r.l.Blocks, b)
	return err
}

func (r *reader) layer() error {
	var l Layer
	err := r.Record("layers", []pyjson.Member{
		{Name: "block", Read: r.index(&l.Block)},
		{Name: "bytes", Read: r.Integer("bytes", &l.Bytes)},
		{Name: "loss", Read: r.Float("loss", &l.Loss)},
		{Name: "bits", Optional: true, Read: r.saving("bits", &l.Bits)},
		{Name: "factors", Optional: true, Read: r.saving("factors", &l.Factors)},
		{Name: "kv", Optional: true, Read: func() error {
			l.KV = &KeptKV{}
			return r.Record("kv", []pyjson.Member{
				{Name: "format", Read: r.Text(&l.KV.Format)},
				{Name: "bytes_per_position", Read: r.Float("kv.bytes_per_position", &l.KV.Bytes)},
				{Name: "kld", Read: r.Float("kv.kld", &l.KV.KLD)},
			})
		}},
		{Name: "pages", Optional: true, Read: func() error {
			l.Pages = &PagesOf{}
			return r.Record("pages", []pyjson.Member{
				{Name: "read", Read: r.Float("pages.read", &l.Pages.Read)},
				{Name: "kld", Read: r.Float("pages.kld", &l.Pages.KLD)},
			})
		}},
	})
	r.l.Layers = append(r.l.Layers, l)
	return err
}

func (r *reader) saving(what string, dst **Saving) func() error {
	return func() error {
		s := &Saving{}
		*dst = s
		return r.Record(what, []pyjson.Member{
			{Name: "tensors", Read: r.Integer(what+".tensors", &s.Tensors)},
			{Name: "bytes", Read: r.Integer(what+".bytes", &s.Bytes)},
			{Name: "loss", Read: r.Float(what+".loss", &s.Loss)},
		})
	}
}

func (r *reader) tensor() error {
	var t Tensor
	err := r.Record("tensors", []pyjson.Member{
		{Name: "name", Read: r.Text(&t.Name)},
		{Name: "role", Read: r.Text(&t.Role)},
		{Name: "block", Read: r.index(&t.Block)},
		{Name: "recipe", Read: r.Text(&t.Recipe)},
		{Name: "method", Read: r.Text(&t.Method)},
		{Name: "bits", Read: r.Float("bits", &t.Bits)},
		{Name: "bytes", Read: r.Integer("bytes", &t.Bytes)},
		{Name: "predicted_error", Read: r.Float("predicted_error", &t.Predicted)},
		{Name: "obtained_error", Read: r.Float("obtained_error", &t.Obtained)},
		{Name: "loss", Read: r.Float("loss", &t.Loss)},
		{Name: "seconds", Optional: true, Read: r.Float("seconds", &t.Seconds)},
		{Name: "runner_up", Optional: true, Read: func() error { return r.runnerUp(&t) }},
	})
	r.l.Tensors = append(r.l.Tensors, t)
	return err
}

// index reads a block's number, -1 for none.
func (r *reader) index(dst *int64) func() error {
	return func() error {
		n, err := r.Number()
		if err != nil {
			return err
		}
		v, ok := n.Int64()
		if !ok || v < -1 {
			return r.Errorf("block", "%s is no block", n)
		}
		*dst = v
		return nil
	}
}

func (r *reader) runnerUp(t *Tensor) error {
	a := &Alternative{}
	t.RunnerUp = a
	return r.Record("runner_up", []pyjson.Member{
		{Name: "recipe", Read: r.Text(&a.Recipe)},
		{Name: "bytes", Read: r.Integer("runner_up.bytes", &a.Bytes)},
		{Name: "loss", Read: r.Float("runner_up.loss", &a.Loss)},
	})
}
