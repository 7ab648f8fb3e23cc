// Rows kept in a slice. Go samples every block: the program asks for it, since GODEBUG=memprofilerate has no effect in 1.19.
package main

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
)

type row struct{ cells [64]uint64 }

var kept []*row

//go:noinline
func planted(n int) {
	kept = append(kept, &row{cells: [64]uint64{uint64(n)}})
}

func main() {
	runtime.MemProfileRate = 1
	kept = make([]*row, 0, 40000)
	for n := 0; n < 40000; n++ {
		planted(n)
	}
	fmt.Fprintln(os.Stdout, "planted main.planted 17", 40000*512)
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
}
