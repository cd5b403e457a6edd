package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats/corpus"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/tokenizer"
)

func (a *app) tokenizeCommand() *cobra.Command {
	var ids, noSpecial, noParse, decode bool
	c := &cobra.Command{
		Use: "tokenize MODEL", Short: "Turn standard input into token ids, or ids into text", Args: cobra.ExactArgs(1),
		Long: `Read the whole of standard input as one text and print its tokens, one per line:
id, then the token as it is spelled in the vocabulary. MODEL may also be a GGUF file
that holds a vocabulary and no tensors, or a folder with tokenizer files alone.`,
		Example: `  echo -n "Hello world" | nstf tokenize model.nstf
  nstf tokenize vocab.gguf --ids < book.txt
  echo "[15496, 995]" | nstf tokenize model.nstf --decode`,
		RunE: func(c *cobra.Command, args []string) error {
			if decode && (ids || noParse) {
				return usagef("--decode does not go with --ids or --no-parse-special")
			}
			t, err := model.OpenTokenizer(args[0])
			if err != nil {
				return err
			}
			input, err := a.readInput(c.Context())
			if err != nil {
				return err
			}
			if decode {
				return a.decodeIDs(t, input, noSpecial)
			}
			list, err := t.Encode(string(input), tokenizer.EncodeOptions{NoSpecial: noSpecial, NoParseSpecial: noParse})
			if err != nil {
				return err
			}
			return a.printTokens(t, list, ids)
		},
	}
	f := c.Flags()
	f.BoolVar(&ids, "ids", false, "print one JSON array of ids")
	f.BoolVar(&noSpecial, "no-special", false, "add no BOS or EOS; with --decode: leave special tokens out")
	f.BoolVar(&noParse, "no-parse-special", false, "read the spelling of special tokens as plain text")
	f.BoolVar(&decode, "decode", false, "standard input is a JSON array of ids: print their text")
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

// decodeIDs prints the text of ids and nothing else.
func (a *app) decodeIDs(t *tokenizer.Tokenizer, input []byte, skipSpecial bool) error {
	ids, err := corpus.ParseIDs("standard input", input)
	if err != nil {
		return err
	}
	text, err := t.Decode(ids, skipSpecial)
	if err != nil {
		return err
	}
	_, err = io.WriteString(a.out, text)
	return err
}
