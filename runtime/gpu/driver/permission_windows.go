package driver

import "io/fs"

// groupOf returns "": Windows has no such files.
func groupOf(fs.FileInfo) string { return "" }
