package main

import "golang.org/x/sys/unix"

// widenTerminal gives a terminal that says it has no columns, such as script's without one
// of its own, those that are usual: nothing can be edited in none. undo takes it back.
func widenTerminal(fd int) (undo func()) {
	was, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil || was.Col != 0 {
		return func() {}
	}
	usual := &unix.Winsize{Row: max(was.Row, 24), Col: 80}
	if unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, usual) != nil {
		return func() {}
	}
	return func() { unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, was) }
}
