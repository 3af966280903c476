package step

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// terminal returns a function for the width, in columns, of the terminal that out is; nil if out is none.
func terminal(out io.Writer) func() int {
	file, ok := out.(*os.File)
	if !ok {
		return nil
	}
	columns := func() int {
		size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
		if err != nil {
			return 0
		}
		return int(size.Col)
	}
	if columns() == 0 {
		return nil
	}
	return columns
}
