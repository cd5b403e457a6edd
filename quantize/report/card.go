package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/inspect"
	"github.com/nstf/nstf/formats/ledger"
)

// A Card is what a model's page on a hub is written from.
type Card struct {
	Repo      string // "org/name", where it will be
	File      string // name of the package there
	BaseModel string // "org/name" that it was made from; "" is not told
	Package   *inspect.Report
	Ledger    *ledger.Ledger // nil where nothing was measured
}

// cardMark is in the cards that [WriteCard] wrote, so that a card that somebody else wrote
// is known.
const cardMark = "<!-- written from the package by nstf push -->"

// IsCard reports whether a card was written by [WriteCard].
func IsCard(card []byte) bool { return bytes.Contains(card, []byte(cardMark)) }

// tag is what may be a tag of a model as it stands.
var tag = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// WriteCard writes a model card: metadata in YAML as Hugging Face's hub reads it
// (https://huggingface.co/docs/hub/model-cards), what lies in the package, and what its
// ledger says was measured. What comes from files cannot act as markup. The same input
// gives the same bytes.
func WriteCard(c Card) []byte {
	var b bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("---\nlibrary_name: nstf\npipeline_tag: text-generation")
	if c.BaseModel != "" {
		base, _ := json.Marshal(c.BaseModel) // a string of JSON is one of YAML
		line("base_model: %s\nbase_model_relation: quantized", base)
	}
	line("tags:\n- nstf")
	if tag.MatchString(c.Package.Architecture) {
		line("- %q", c.Package.Architecture)
	}
	line("---\n%s\n\n# %s\n", cardMark, plain(c.Repo[strings.IndexByte(c.Repo, '/')+1:]))
	p := c.Package
	line("A model of %d parameters as a package of [NSTF](https://github.com/nstf/nstf): one verified file with its tokenizer.\n", p.Params)
	line("%s\n", block("nstf run "+c.Repo+" --chat"))
	line("| | |\n|---|---|")
	row := func(name, format string, args ...any) { line("| %s | %s |", name, plain(fmt.Sprintf(format, args...))) }
	row("file", "%s, %s", c.File, formats.Size(p.FileBytes))
	row("architecture", "%s", p.Architecture)
	row("bits per weight", "%.3f", p.BPW)
	for _, s := range p.Schemes {
		row("in "+plain(s.Name), "%d tensors, %s, %.3f bits per weight", s.Tensors, formats.Size(s.Bytes), s.BPW)
	}
	if v := p.Provenance; v != nil {
		row("made by", "%s", strings.TrimSpace(v.Tool+" "+strings.Join(v.Flags, " ")))
		for _, s := range v.Sources {
			row("from "+plain(s.Role), "%s, %s, BLAKE3 %s", s.Name, formats.Size(s.Bytes), s.Hash)
		}
		row("content", "BLAKE3 %s", v.Root)
	}
	line("\n## Accuracy\n")
	if c.Ledger == nil {
		line("Nothing was measured when the package was made.")
	} else {
		c.accuracy(line, row)
	}
	if v := p.Provenance; v != nil {
		for _, n := range v.Notes {
			line("\n%s", plain(n))
		}
	}
	return b.Bytes()
}

// accuracy writes what the ledger says of the package as a whole.
func (c *Card) accuracy(line func(string, ...any), row func(string, string, ...any)) {
	s, m := &c.Ledger.Source, &c.Ledger.Model
	if m.KLD == nil {
		line("The package was fitted to %s and not measured on other text.", plain(s.Text))
		return
	}
	line("Against the model that it was made from, on text that nothing was fitted to (%s), each with its standard error:\n", plain(measuredOn(s)))
	line("| | |\n|---|---|")
	row("KL divergence, nats", "%s", measured(m.KLD, 1))
	if m.Floor != nil {
		row("of the model itself, computed as packages are", "%s", measured(m.Floor, 1))
	}
	row("perplexity", "%s", measured(m.Perplexity, 1))
	row("perplexity of the original", "%s", measured(m.Original, 1))
	row("same best token, %", "%s", measured(m.Top1, 100))
	line("\nThis lists every tensor:\n\n%s", block("nstf inspect "+c.File+" --ledger"))
	for _, n := range c.Ledger.Notes {
		line("\n%s", plain(n))
	}
}

// block writes a line of a shell, where nothing acts as markup, in a fence that it cannot
// end (CommonMark 0.31, section 4.5).
func block(s string) string {
	s = formats.Printable(formats.Brief(s, 1000))
	fence := "```"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	return fence + "\n" + s + "\n" + fence
}

// markup are the characters that act in Markdown, in tables of it and in HTML.
var markup = strings.NewReplacer("\\", "\\\\", "|", "\\|", "<", "&lt;", ">", "&gt;", "&", "&amp;", "`", "\\`", "*", "\\*", "_", "\\_", "[", "\\[", "]", "\\]", "#", "\\#", "!", "\\!", "~", "\\~", "$", "\\$", "\n", " ")

// plain writes text from a file so that it is read as it is.
func plain(s string) string { return markup.Replace(formats.Printable(formats.Brief(s, 1000))) }
