//go:build nodemo

package demo

import (
	"embed"
	"io/fs"
)

// Available says that the model was not built in.
const Available = false

// Files returns no files.
func Files() fs.FS { return embed.FS{} }
