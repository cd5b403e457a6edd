package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/klauspost/cpuid/v2"
	"github.com/spf13/cobra"

	kernels "github.com/nstf/nstf/kernels/cpu"
)

// A versionReport is what `nstf version --json` prints.
type versionReport struct {
	Version  string   `json:"version"`
	Commit   string   `json:"commit"`
	Modified bool     `json:"modified"`
	Go       string   `json:"go"`
	Platform string   `json:"platform"`
	Settings []string `json:"settings"` // of the build
	CPU      string   `json:"cpu"`
	Cores    int      `json:"cores"`
	Threads  int      `json:"threads"`
	SIMD     string   `json:"simd"` // level that the kernels use
	Features []string `json:"features"`
}

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "version", Short: "Print version, build settings and CPU features", Args: cobra.NoArgs,
		Example: "  nstf version\n  nstf version --json",
		RunE: func(*cobra.Command, []string) error {
			r := newVersionReport()
			if asJSON {
				return printJSON(a.out, r)
			}
			t := newTable(2)
			t.AppendRow([]any{"nstf", r.Version})
			t.AppendRow([]any{"commit", r.commit()})
			t.AppendRow([]any{"build", fmt.Sprintf("%s %s", r.Go, r.Platform)})
			t.AppendRow([]any{"settings", wrap(r.Settings)})
			t.AppendRow([]any{"cpu", fmt.Sprintf("%s, %d cores, %d threads", r.CPU, r.Cores, r.Threads)})
			t.AppendRow([]any{"kernels", r.SIMD})
			t.AppendRow([]any{"features", wrap(r.Features)})
			printTable(a.out, t)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// What a build says that was not stamped: go build of a copy of the repository does so
// by itself, but not with -buildvcs=false or without git.
const unversioned, unknownCommit = "(devel)", "unknown"

func newVersionReport() versionReport {
	r := versionReport{Version: unversioned, Commit: unknownCommit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Settings: []string{}, CPU: cpuid.CPU.BrandName, Cores: cpuid.CPU.PhysicalCores, Threads: runtime.NumCPU(),
		SIMD: kernels.Best().Level().String(), Features: cpuid.CPU.FeatureSet()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return r
	}
	r.read(info)
	return r
}

// read takes what the build noted of its source.
func (r *versionReport) read(info *debug.BuildInfo) {
	if info.Main.Version != "" {
		r.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			r.Commit = s.Value
		case s.Key == "vcs.modified":
			r.Modified = s.Value == "true"
		case s.Value != "" && !strings.HasPrefix(s.Key, "vcs"):
			r.Settings = append(r.Settings, s.Key+"="+s.Value)
		}
	}
}

// short is what --version prints: a build without a version is named by its commit.
func (r *versionReport) short() string {
	switch {
	case r.Version != unversioned:
		return r.Version
	case r.Commit == unknownCommit:
		return r.Version + ", of a commit that its build did not note"
	}
	return r.Version + ", commit " + r.commit()
}

func (r *versionReport) commit() string {
	if r.Modified {
		return r.Commit + ", with changes"
	}
	return r.Commit
}

// toolName is what packages record as their maker.
func toolName() string { return "nstf " + newVersionReport().Version }

// wrap joins words into lines that fit the second column.
func wrap(words []string) folded {
	var b strings.Builder
	line := 0
	for _, w := range words {
		if line > 0 && line+1+len(w) > tableWidth-14 {
			b.WriteByte('\n')
			line = 0
		} else if line > 0 {
			b.WriteByte(' ')
			line++
		}
		b.WriteString(w)
		line += len(w)
	}
	return folded(b.String())
}
