package checkpoint

import (
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
)

func openNSTF(remote formats.Remote, path string) (*model.Model, error) {
	p, err := nstf.OpenFrom(remote, path)
	if err != nil {
		return nil, err
	}
	m, err := fromPackage(p)
	if err != nil {
		p.Close()
		return nil, err
	}
	return m, nil
}

func fromPackage(p *nstf.Package) (*model.Model, error) {
	g, err := graph.Parse(p.Model())
	if err != nil {
		return nil, formats.In(p.Path(), err)
	}
	tensors := map[string]formats.Tensor{}
	for _, w := range g.Weights() {
		item, ok := p.Tensor(w.Name)
		if !ok {
			return nil, formats.Errorf(p.Path(), w.Name, "tensor is missing")
		}
		if !slices.Equal(item.Shape, w.Shape) {
			return nil, formats.Errorf(p.Path(), w.Name, "shape is %v, the graph asks for %v", item.Shape, w.Shape)
		}
		tensors[w.Name] = item.Tensor
	}
	m := model.New(g, tensors, p)
	m.Path, m.Kind = p.Path(), model.KindNSTF
	var inGraph []formats.Tensor
	for _, item := range p.Tensors() {
		if _, ok := tensors[item.Name]; !ok {
			m.Passthrough = append(m.Passthrough, item.Tensor)
			continue
		}
		inGraph = append(inGraph, item.Tensor)
	}
	m.Quantized = quantizedAs(inGraph)
	for _, f := range p.Files() {
		data, err := p.File(f.Name)
		if err != nil {
			return nil, err
		}
		m.Files = append(m.Files, model.File{Name: f.Name, Data: data})
	}
	return m, nil
}
