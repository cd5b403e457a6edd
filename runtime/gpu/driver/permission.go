package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
)

// A Node is a file through which Linux gives a process an AMD GPU.
type Node struct {
	Path  string `json:"path"`
	Mode  string `json:"mode,omitempty"`  // crw-rw----
	Group string `json:"group,omitempty"` // who may open it beside root
	Error string `json:"error,omitempty"` // why this process cannot
	kind  error
}

// OpenNode tries to open a device file as ROCm does.
func OpenNode(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// Nodes returns the device files of AMD GPUs below a root ("/"), each tried by
// open; none on systems that have no such files.
func Nodes(root string, open func(path string) error) []Node {
	if goruntime.GOOS != "linux" {
		return nil
	}
	if exists(filepath.Join(root, "dev/dxg")) && !exists(filepath.Join(root, "dev/kfd")) {
		return nil // WSL: the GPU comes through Windows' driver
	}
	paths, _ := filepath.Glob(filepath.Join(root, "dev/dri/renderD*"))
	nodes := make([]Node, 0, len(paths)+1)
	for _, path := range slices.Insert(paths, 0, filepath.Join(root, "dev/kfd")) {
		n := Node{Path: path}
		if s, err := os.Stat(path); err != nil {
			n.kind = err
		} else {
			n.Mode, n.Group = s.Mode().String(), groupOf(s)
			n.kind = open(path)
		}
		if n.kind != nil {
			n.Error = n.kind.Error()
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// Advice says what to do about nodes that cannot be opened, "" where all can.
func Advice(nodes []Node) string {
	var refused, groups []string
	for _, n := range nodes {
		switch {
		case n.kind == nil:
		case errors.Is(n.kind, fs.ErrNotExist):
			return fmt.Sprintf("%s does not exist: the kernel's amdgpu driver is not loaded or does not know the card, or a container was started without --device /dev/kfd --device /dev/dri", n.Path)
		case errors.Is(n.kind, fs.ErrPermission):
			refused = append(refused, n.Path)
			if n.Group != "" && n.Group != "root" && !slices.Contains(groups, n.Group) {
				groups = append(groups, n.Group)
			}
		default:
			return n.Error
		}
	}
	if len(refused) == 0 {
		return ""
	}
	if len(groups) == 0 {
		groups = []string{"render", "video"}
	}
	return fmt.Sprintf("no permission for %s: run `sudo usermod -a -G %s $USER` and log in again", strings.Join(refused, ", "), strings.Join(groups, ","))
}
