//go:build !nodemo

// Package demo carries a small language model inside the program, for `nstf
// demo` and for tests: a llama of 5.8 million parameters (model/, trained for
// this project on novels from Standard Ebooks, CC0, and on Microsoft's public
// documentation, CC BY 4.0), and a text that it was not trained on (text.txt,
// the beginning of Arthur Conan Doyle's "A Case of Identity" as published by
// Standard Ebooks, CC0).
//
// Build with -tags nodemo to leave 12 MB out.
package demo

import (
	"embed"
	"io/fs"
)

// Available says that the model was built in.
const Available = true

//go:embed model text.txt
var files embed.FS

// Files returns the model's directory "model" and the text "text.txt".
func Files() fs.FS { return files }
