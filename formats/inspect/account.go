package inspect

import (
	"errors"
	"io/fs"
	"os"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/attention"
	"github.com/nstf/nstf/formats/ledger"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/stats"
)

// Ledger reads the accuracy ledger of a package. One without is a
// [formats.UnsupportedError]; other errors are those of [nstf.OpenStored] and
// [ledger.Parse].
func Ledger(path string) (*ledger.Ledger, error) {
	data, err := attached(path, nstf.LedgerFile, "an accuracy ledger")
	if err != nil {
		return nil, err
	}
	return ledger.Parse(path+": "+nstf.LedgerFile, data)
}

// Attention reads the policy of attention of a package, with errors like those of [Ledger].
func Attention(path string) (*attention.Policy, error) {
	data, err := attached(path, nstf.AttentionFile, "a policy of attention")
	if err != nil {
		return nil, err
	}
	return attention.Parse(path+": "+nstf.AttentionFile, data)
}

// Kept reads how a package has keys and values kept, with errors like those of [Ledger].
func Kept(path string) (*attention.Kept, error) {
	data, err := attached(path, nstf.KVFile, "a choice of bits for keys and values")
	if err != nil {
		return nil, err
	}
	return attention.ParseKept(path+": "+nstf.KVFile, data)
}

// Uses reads how often routers chose each expert in the text that a package was calibrated on, with errors like those of
// [Ledger].
func Uses(path string) (*stats.Uses, error) {
	data, err := attached(path, nstf.ExpertsFile, "counts of chosen experts")
	if err != nil {
		return nil, err
	}
	return stats.ParseUses(path+": "+nstf.ExpertsFile, data)
}

func attached(path, name, what string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, without(path, "a directory", what)
	}
	p, err := nstf.OpenStored(path)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	data, err := p.File(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, without(path, "the package", what)
	}
	return data, err
}

func without(path, kind, what string) error {
	e := formats.Unsupportedf(path, "", "%s does not have %s", kind, what)
	e.Hint = "nstf quantize with --calib writes one; convert and --scheme without text do not"
	return e
}
