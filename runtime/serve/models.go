package serve

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nstf/nstf/formats/answer"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/tokenizer"
	"github.com/nstf/nstf/runtime/grammar"
	"github.com/nstf/nstf/runtime/sample"
	"github.com/nstf/nstf/runtime/schedule"
)

// ErrNoModel says that there is no model of a name.
var ErrNoModel = errors.New("no such model")

// An Info is what a list of models tells.
type Info struct {
	Name       string
	Aliases    []string
	Created    time.Time
	Arch       string
	Bytes      int64 // of the file
	Parameters int64
	Bits       float64 // per weight
	Context    int64
	// Digest tells files apart: 64 hexadecimal digits.
	Digest string
	// Parallel is how many conversations of full length there is memory for.
	Parallel int
	// Path is where the model was loaded from.
	Path    string
	Loaded  bool
	Expires time.Time // when it is unloaded unless somebody asks; zero: nobody knows
	// Ledger is what the package says of its accuracy, in words; nil where it says nothing.
	Ledger []Fact
}

// A Fact is a figure with its name.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// A Model is a loaded model.
type Model struct {
	Info
	Tokenizer *tokenizer.Tokenizer
	Scheduler *schedule.Scheduler
	// Sampling is what the model's makers recommend, for requests that do not say.
	Sampling sample.Options
	// Pooling is how its embeddings are made; "": [model.PoolLast].
	Pooling model.Pooling

	learned sync.Once
	chat    *tokenizer.Template
	format  *answer.Format
	err     error

	grammars   sync.Once
	compiled   *grammar.Cache
	specials   *strings.Replacer
	grammarErr error
}

// conversation returns the model's chat template and how it writes answers.
func (m *Model) conversation(ctx context.Context) (*tokenizer.Template, *answer.Format, error) {
	m.learned.Do(func() {
		if m.chat, m.err = m.Tokenizer.ChatTemplate(""); m.err != nil {
			return
		}
		sources := m.Tokenizer.ChatTemplates()
		var all string
		for _, name := range []string{"default", "tool_use"} {
			all += sources[name]
		}
		var err error
		if m.format, err = answer.Learn(context.WithoutCancel(ctx), m.chat, all); err != nil {
			// The template wants other conversations than the usual ones.
			m.format = &answer.Format{Order: answer.Order{System: true, Systems: true, Runs: true, Interrupts: true, AnyID: true}}
		}
	})
	return m.chat, m.format, m.err
}

// Models are what a server has.
type Models interface {
	// List tells of all of them, loaded or not.
	List() []Info
	// Get returns the model of a name or alias, ErrNoModel where there is none. It may
	// have to be loaded. The caller calls release when it needs it no more.
	Get(ctx context.Context, name string) (m *Model, release func(), err error)
	// Err returns why no request can be answered any more, nil where they can.
	Err() error
}
