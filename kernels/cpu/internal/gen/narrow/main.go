// Command narrow takes out the spaces that avo aligns operands with, an eighth of the bytes of what it
// wrote:
//
//	go run ./narrow '../../*_amd64.s'
package main

import (
	"bytes"
	"log"
	"os"
	"path/filepath"
	"regexp"
)

func main() {
	spaces := regexp.MustCompile(` {2,}`)
	files, err := filepath.Glob(os.Args[1])
	if err != nil || len(files) == 0 {
		log.Fatalf("narrow: %d files match %s: %v", len(files), os.Args[1], err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			log.Fatal(err)
		}
		if !bytes.Contains(text, []byte("DO NOT EDIT")) {
			continue
		}
		if err := os.WriteFile(file, spaces.ReplaceAll(text, []byte(" ")), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
