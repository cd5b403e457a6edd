package main

import (
	"bytes"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommand writes manual pages: for whoever packages this program.
func (a *app) manCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use: "man -o DIR", Short: "Write a manual page for every command", Args: cobra.NoArgs,
		Long: `Write manual pages of section 1 into a new folder, one for every command. The same
program writes the same bytes.`,
		Example: "  nstf man -o man1/\n  sudo cp man1/*.1 /usr/local/share/man/man1/",
		RunE: func(c *cobra.Command, _ []string) error {
			to, err := a.folder(dir)
			if err != nil {
				return err
			}
			out, err := to.CreateDir()
			if err != nil {
				return err
			}
			if err := manPages(c.Root(), out.WriteFile); err != nil {
				out.Abort()
				return err
			}
			return out.Commit()
		},
	}
	c.Flags().StringVarP(&dir, "output", "o", "", "folder to write")
	c.MarkFlagRequired("output")
	return c
}

// manPages gives the page of a command and of all below it.
func manPages(c *cobra.Command, write func(name string, data []byte) error) error {
	made := buildTime()
	header := &doc.GenManHeader{Section: "1", Date: &made, Source: toolName(), Manual: "NSTF"}
	c.DisableAutoGenTag = true
	var page bytes.Buffer
	if err := doc.GenMan(c, header, &page); err != nil {
		return err
	}
	if err := write(strings.ReplaceAll(c.CommandPath(), " ", "-")+".1", page.Bytes()); err != nil {
		return err
	}
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := manPages(sub, write); err != nil {
			return err
		}
	}
	return nil
}

// buildTime is the time of the commit that this program was built from, else of the
// program's file.
func buildTime() time.Time {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if t, err := time.Parse(time.RFC3339, s.Value); s.Key == "vcs.time" && err == nil {
				return t
			}
		}
	}
	if path, err := os.Executable(); err == nil {
		if info, err := os.Stat(path); err == nil {
			return info.ModTime()
		}
	}
	return time.Unix(0, 0)
}
