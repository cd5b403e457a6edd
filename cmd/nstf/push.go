package main

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/hub"
	"github.com/nstf/nstf/formats/inspect"
	drawn "github.com/nstf/nstf/quantize/report"
)

func (a *app) pushCommand() *cobra.Command {
	var private, dry, asJSON bool
	var revision, base string
	c := &cobra.Command{
		Use: "push PACKAGE ORG/NAME", Short: "Upload a package to Hugging Face's hub, with a model card", Args: cobra.ExactArgs(2),
		Long: `Upload a package to a repository of Hugging Face's hub, which is made where it is not
there, with a model card (README.md): what lies in the package, how it was made, and what
its accuracy ledger says was measured. A card that somebody else wrote stays.

The package is verified first. All of it becomes visible by one commit at the end: what is
interrupted leaves the repository as it was, and the same command does not send again what
the hub has taken. The token is HF_TOKEN, or that of "hf auth login", and must have the
right to write; HF_ENDPOINT names another hub.`,
		Example: "  nstf push small.nstf org/small-nstf --base-model org/model\n  nstf push small.nstf org/small-nstf --private --revision v2\n  nstf push small.nstf org/small-nstf --dry-run     # the card alone",
		RunE: func(c *cobra.Command, args []string) error {
			h := a.hub()
			r, err := hub.Parse(args[1], h.Endpoint)
			switch {
			case err != nil || r.File != "" || r.Variant != "":
				return &usageError{err: fmt.Errorf("%s is not the name of a repository", quoted(args[1])), hint: "nstf push PACKAGE ORG/NAME"}
			case revision != "" && r.Revision != hub.MainRevision:
				return usagef("--revision %s, and another revision behind the name", quoted(revision))
			case revision != "":
				if r, err = hub.Parse(r.Repo+"@"+revision, h.Endpoint); err != nil {
					return &usageError{err: err}
				}
			}
			if hub.IsCommit(r.Revision) || strings.HasPrefix(r.Revision, "refs/") {
				return usagef("%s is no branch, and only branches can be written to", quoted(r.Revision))
			}
			if b, err := hub.Parse(base, h.Endpoint); base != "" && (err != nil || b.Repo != base) {
				return usagef("--base-model is ORG/NAME, not %s", quoted(base))
			}
			card, err := cardOf(args[0], r.Repo, base)
			if err != nil {
				return err
			}
			if dry {
				_, err := a.out.Write(card)
				return err
			}
			p, err := a.verified(c.Context(), args[0])
			if err != nil {
				return err
			}
			defer p.Close()
			f, err := formats.OpenFile(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			step, end := a.progress("uploading", "bytes")
			h.Progress = step
			out, err := h.Push(c.Context(), hub.Upload{Repo: r.Repo, Revision: r.Revision, Private: private, Message: "Upload " + filepath.Base(args[0]) + " by nstf",
				Files: []hub.UploadFile{{Path: filepath.Base(args[0]), Data: f}, {Path: "README.md", Data: bytes.NewReader(card), Keep: func(old []byte) bool { return !drawn.IsCard(old) }}}})
			end()
			if err != nil {
				return err
			}
			if len(out.Kept) > 0 {
				fmt.Fprintln(a.err, "the repository's own README.md stays: nstf push --dry-run prints the card")
			}
			at := h.Endpoint + "/" + r.Repo
			if r.Revision != hub.MainRevision {
				at += "/tree/" + strings.ReplaceAll(r.Revision, "/", "%2F")
			}
			if asJSON {
				return printJSON(a.out, struct {
					URL    string `json:"url"`
					Commit string `json:"commit"` // "" where everything was there
					Sent   int64  `json:"sent_bytes"`
				}{at, out.Commit, out.Sent})
			}
			if out.Commit == "" {
				fmt.Fprintln(a.err, "everything was there already")
			}
			fmt.Fprintln(a.out, formats.Printable(at))
			return nil
		},
	}
	s := c.Flags()
	s.BoolVar(&private, "private", false, "make the repository a private one, where it is made")
	s.StringVar(&revision, "revision", "", "branch to write to, made where it is not there; default: main")
	s.StringVar(&base, "base-model", "", "ORG/NAME of the model that the package was made from, for the card")
	s.BoolVar(&dry, "dry-run", false, "print the card, and upload nothing")
	s.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// cardOf writes the model card of a package.
func cardOf(path, repo, base string) ([]byte, error) {
	r, err := inspect.Open(path)
	if err != nil {
		return nil, err
	}
	if r.Kind != "nstf" {
		e := formats.Unsupportedf(path, "", "uploading a %s file", r.Kind)
		e.Hint = "nstf convert makes a package of it"
		return nil, e
	}
	l, err := inspect.Ledger(path)
	var none *formats.UnsupportedError
	if err != nil && !errors.As(err, &none) {
		return nil, err
	}
	return drawn.WriteCard(drawn.Card{Repo: repo, File: filepath.Base(path), BaseModel: base, Package: r, Ledger: l}), nil
}
