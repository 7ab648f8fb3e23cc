// Rows kept in a slice; with GODEBUG=memprofilerate=1 Go samples every block.
package main

import (
	"fmt"
	"os"
	"syscall"
)

type row struct{ cells [64]uint64 }

var kept []*row

//go:noinline
func planted(n int) {
	kept = append(kept, &row{cells: [64]uint64{uint64(n)}})
}

func main() {
	kept = make([]*row, 0, 40000)
	for n := 0; n < 40000; n++ {
		planted(n)
	}
	fmt.Fprintln(os.Stdout, "planted main.planted 16", 40000*512)
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
}
