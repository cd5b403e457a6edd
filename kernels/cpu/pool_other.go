//go:build !linux

package cpu

import (
	"runtime"

	"github.com/nstf/nstf/formats"
)

func pin(int) error {
	return formats.Unsupportedf("", "", "pinning threads to processors on %s", runtime.GOOS)
}
