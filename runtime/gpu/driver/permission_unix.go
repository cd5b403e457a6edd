//go:build !windows

package driver

import (
	"io/fs"
	"os/user"
	"strconv"
	"syscall"
)

// groupOf returns the name of a file's group, or its number.
func groupOf(s fs.FileInfo) string {
	st, ok := s.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	id := strconv.Itoa(int(st.Gid))
	g, err := user.LookupGroupId(id)
	if err != nil {
		return id
	}
	return g.Name
}
