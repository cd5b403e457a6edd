package generate_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/runtime/generate"
)

// library is what docs/library.md shows.
func library(path, prompt string) (string, error) {
	m, err := checkpoint.Open(path)
	if err != nil {
		return "", err
	}
	defer m.Close()
	g, err := generate.New(m, generate.Config{})
	if err != nil {
		return "", err
	}
	defer g.Close()
	ids, err := g.Prompt(prompt, true)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	_, err = g.Run(context.Background(), ids, generate.Options{MaxTokens: 8}, func(piece string) error {
		text.WriteString(piece)
		return nil
	})
	return text.String(), err
}

func ExampleGenerator_Run() {
	text, err := library(demo, "He opened the door and")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.TrimSpace(text))
	// Output: opened it. The door opened, and
}

// The page for programs shows what is compiled here.
func TestLibraryPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/library.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("library_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, found := strings.Cut(string(page), "```go\n")
	code, _, closed := strings.Cut(code, "```")
	if !found || !closed || !strings.Contains(string(source), code) {
		t.Errorf("docs/library.md shows other code:\n%s", code)
	}
}
