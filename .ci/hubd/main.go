// Command hubd serves folders as models of a hub, for what is tried against one from
// outside: hubd [-slow 1ms] [-token T] [-part N] [ORG/NAME=]FOLDER..., each as test/NAME where
// no name is said. It prints its address and ends with standard input. -slow is the wait between pieces of 64 KiB of each
// connection; who has the token may upload, in parts of N bytes.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/nstf/nstf/formats/hub/hubtest"
)

func main() {
	repos := map[string]*hubtest.Repo{}
	slow := flag.Duration("slow", 0, "wait between pieces of 64 KiB")
	token := flag.String("token", "", "whose owner may upload")
	part := flag.Int("part", 0, "bytes that the storage takes at once; 0: anything")
	flag.Parse()
	for _, arg := range flag.Args() {
		name, dir, ok := strings.Cut(arg, "=")
		if !ok {
			name, dir = "test/"+filepath.Base(arg), arg
		}
		r, err := hubtest.Folder(os.DirFS(dir))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		repos[name] = r
	}
	s := hubtest.New(repos)
	s.Token, s.PartSize = *token, *part
	s.Fault = func(r hubtest.Request, _ int) hubtest.Fault {
		if !r.Storage {
			return hubtest.Fault{}
		}
		return hubtest.Fault{Slow: *slow}
	}
	fmt.Println(s.Hub.URL)
	io.Copy(io.Discard, os.Stdin)
	s.Close()
}
