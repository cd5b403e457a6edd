package atomicfile

import "io/fs"

// private reports whether a folder is one: temporary folders are each user's own.
func private(is fs.FileInfo) bool { return is.IsDir() }
