package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/corpus"
	"github.com/nstf/nstf/formats/tokenizer"
)

func (a *app) tokenizeCommand() *cobra.Command {
	var ids, noSpecial, noParse, decode, raw bool
	var prompt, file string
	c := &cobra.Command{
		Use: "tokenize MODEL [-p TEXT | -f FILE]", Short: "Turn a text into token ids, or ids into text", Args: cobra.ExactArgs(1),
		Long: `Read the whole of standard input, or of -p or -f, as one text and print its tokens, one
per line: id, then the token as it is spelled in the vocabulary. MODEL may also be a GGUF
file that holds a vocabulary and no tensors, or a folder with tokenizer files alone.`,
		Example: `  nstf tokenize model.nstf -p "Hello world"
  nstf tokenize vocab.gguf --ids < book.txt
  echo "[15496, 995]" | nstf tokenize model.nstf --decode`,
		RunE: func(c *cobra.Command, args []string) error {
			if decode && (ids || noParse) {
				return usagef("--decode does not go with --ids or --no-parse-special")
			}
			if raw && !decode {
				return usagef("--raw goes with --decode")
			}
			given := c.Flags().Changed("prompt")
			if given && file != "" {
				return usagef("give the text by one of -p and -f")
			}
			t, err := checkpoint.OpenTokenizer(args[0])
			if err != nil {
				return err
			}
			input, from := []byte(prompt), "-p"
			switch {
			case file != "":
				input, err = corpus.ReadPlain(file, maxInput)
				from = file
			case !given:
				input, err = a.readInput(c.Context())
				from = "standard input"
			}
			if err != nil {
				return err
			}
			if decode {
				return a.decodeIDs(t, from, input, noSpecial, raw)
			}
			if n := corpus.Invalid(string(input)); n > 0 {
				a.warn(fmt.Sprintf("%d sequences of bytes are not UTF-8, and are read as U+FFFD", n))
			}
			list, err := t.Encode(string(input), tokenizer.EncodeOptions{NoSpecial: noSpecial, NoParseSpecial: noParse})
			if err != nil {
				return err
			}
			return a.printTokens(t, list, ids)
		},
	}
	f := c.Flags()
	f.StringVarP(&prompt, "prompt", "p", "", "text to tokenize; default: standard input")
	f.StringVarP(&file, "file", "f", "", "file with the text to tokenize")
	f.BoolVar(&ids, "ids", false, "print one JSON array of ids")
	f.BoolVar(&noSpecial, "no-special", false, "add no BOS or EOS; with --decode: leave special tokens out")
	f.BoolVar(&noParse, "no-parse-special", false, "read the spelling of special tokens as plain text")
	f.BoolVar(&decode, "decode", false, "the text is a JSON array of ids: print what they spell")
	f.BoolVar(&raw, "raw", false, "with --decode: "+rawUsage)
	return c
}

func (a *app) printTokens(t *tokenizer.Tokenizer, ids []int32, asJSON bool) error {
	if asJSON {
		if ids == nil {
			ids = []int32{}
		}
		return json.NewEncoder(a.out).Encode(ids)
	}
	var b strings.Builder
	for _, id := range ids {
		piece, _ := t.Piece(id)
		fmt.Fprintf(&b, "%d\t%s\n", id, strings.Trim(fmt.Sprintf("%q", piece), `"`))
	}
	_, err := io.WriteString(a.out, b.String())
	return err
}

// decodeIDs prints the text of ids, which came from there, and nothing else.
func (a *app) decodeIDs(t *tokenizer.Tokenizer, from string, input []byte, skipSpecial, raw bool) error {
	ids, err := corpus.ParseIDs(from, input)
	if err != nil {
		return err
	}
	for i, id := range ids {
		if int(id) >= t.VocabSize() {
			return formats.Errorf(from, "", "id %d at position %d is outside the vocabulary, whose last is %d", id, i, t.VocabSize()-1)
		}
	}
	text, err := t.Decode(ids, skipSpecial)
	if err != nil {
		return err
	}
	return a.emit(raw)(text)
}
