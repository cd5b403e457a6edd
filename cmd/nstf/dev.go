package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats/model/random"
	"github.com/nstf/nstf/formats/tensor"
)

// devCommand holds what only the makers of this program need.
func (a *app) devCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "dev", Short: "Tools for developing nstf itself", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.generateCommand(), a.decodeCommand(), a.kernelsCommand(), a.replaceCommand())
	return c
}

// A generateFlags is what dev generate makes.
type generateFlags struct {
	random.Shape
	out         outputFlag
	name, dtype string
	scheme      string // of blocks
	seed        uint64
	blocks      bool
	shard       int64
}

func (a *app) generateCommand() *cobra.Command {
	var f generateFlags
	c := &cobra.Command{
		Use: "generate -o DIR", Short: "Write a llama of any size with random weights as a Hugging Face directory", Args: cobra.NoArgs,
		Long: `Write a llama, or with --experts a mixtral, of any size with random weights as a sharded Hugging Face directory
(shape 2b-delta: a qwen3_5 of delta nets): to measure readers and kernels on, not to talk to. The same flags give the same bytes.
--shape sets all sizes; the other flags change one. --blocks writes a GGUF file instead
whose matrices are random blocks of --scheme, which takes seconds: to measure kernels on. Shapes that
bear a model's name are that model's, with all that its architecture has, of blocks alone.`,
		Example: "  nstf dev generate --shape 7b -o random-7b/\n  nstf dev generate --shape 1.1b --layers 4 --dtype f16 -o random/\n  nstf dev generate --shape 8b --blocks -o random-8b.gguf",
		RunE: func(c *cobra.Command, _ []string) error {
			a.started = true // as root does for its own commands
			return a.generate(c, &f)
		},
	}
	s := c.Flags()
	f.out.add(s, "directory or file to write")
	s.StringVar(&f.name, "shape", "1.1b", "sizes: "+strings.Join(random.ShapeNames(), ", "))
	s.StringVar(&f.dtype, "dtype", "bf16", "element type: f32, f16 or bf16")
	s.Uint64Var(&f.seed, "seed", 0, "another seed makes other weights")
	s.Int64Var(&f.shard, "shard-size", 5000, "MiB of tensors per file")
	s.Int64Var(&f.Layers, "layers", 0, "blocks")
	s.Int64Var(&f.Width, "width", 0, "width of the model")
	s.Int64Var(&f.Inner, "inner", 0, "width of the feed-forward network")
	s.Int64Var(&f.Heads, "heads", 0, "heads of attention")
	s.Int64Var(&f.KVHeads, "kv-heads", 0, "heads of keys and values")
	s.Int64Var(&f.HeadDim, "head-dim", 0, "numbers of a head; 0: width / heads")
	s.Int64Var(&f.Experts, "experts", 0, "experts of a mixture in each block, in place of one layer")
	s.Int64Var(&f.Used, "used", 0, "experts that a token uses")
	s.Int64Var(&f.Vocab, "vocab", 0, "tokens of the vocabulary")
	s.Int64Var(&f.Context, "ctx", 0, "positions of the context")
	s.Float64Var(&f.RopeTheta, "rope-theta", 0, "base of the rotary frequencies")
	s.BoolVar(&f.blocks, "blocks", false, "write a GGUF file of random coded blocks")
	s.StringVar(&f.scheme, "scheme", "q4_k", "with --blocks: "+strings.Join(random.BlockSchemes(), ", ")+"; of gpt-oss-20b\nmxfp4 for experts and q8_0, unless it is given")
	s.BoolVar(&f.Tied, "tied", false, "use the embedding as the head")
	c.MarkFlagRequired("output")
	return c
}

func (a *app) generate(c *cobra.Command, f *generateFlags) error {
	shape, ok := random.ShapeByName(f.name)
	if !ok {
		return usagef("--shape %q is not one of %s", f.name, strings.Join(random.ShapeNames(), ", "))
	}
	if c.Flags().Changed("scheme") && !f.blocks {
		return usagef("--scheme goes with --blocks")
	}
	if f.shard < 1 {
		return usagef("--shard-size %d MiB is not positive", f.shard)
	}
	for _, o := range []struct {
		flag     string
		to, from *int64
	}{
		{"layers", &shape.Layers, &f.Layers}, {"width", &shape.Width, &f.Width}, {"inner", &shape.Inner, &f.Inner},
		{"heads", &shape.Heads, &f.Heads}, {"kv-heads", &shape.KVHeads, &f.KVHeads},
		{"head-dim", &shape.HeadDim, &f.HeadDim}, {"experts", &shape.Experts, &f.Experts}, {"used", &shape.Used, &f.Used},
		{"vocab", &shape.Vocab, &f.Vocab}, {"ctx", &shape.Context, &f.Context},
	} {
		if c.Flags().Changed(o.flag) {
			*o.to = *o.from
		}
	}
	if c.Flags().Changed("rope-theta") {
		shape.RopeTheta = f.RopeTheta
	}
	if c.Flags().Changed("tied") {
		shape.Tied = f.Tied
	}
	if f.blocks {
		return a.generateBlocks(c, f, shape)
	}
	x, err := random.Checkpoint(shape, tensor.ParseDType(f.dtype), f.seed)
	if err != nil {
		return &usageError{err: err}
	}
	step, end := a.progress("generating", "bytes")
	out, err := a.folder(f.out.path)
	if err != nil {
		return err
	}
	err = x.WriteDir(c.Context(), out, f.shard<<20, step)
	end()
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "%s: %d tensors\n", f.out.path, len(x.Tensors))
	return nil
}

func (a *app) generateBlocks(c *cobra.Command, f *generateFlags, shape random.Shape) error {
	if !c.Flags().Changed("scheme") {
		f.scheme = ""
	}
	x, err := random.Blocks(shape, f.scheme, f.seed)
	if err != nil {
		return &usageError{err: err}
	}
	step, end := a.progress("generating", "bytes")
	out, err := a.output(f.out.path, ggufKind, f.out.force, nil)
	if err != nil {
		return err
	}
	err = x.WriteGGUF(c.Context(), out, step)
	end()
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "%s: %d tensors\n", f.out.path, len(x.Tensors))
	return nil
}
