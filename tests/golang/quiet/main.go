// A program that cannot ask for its own profile, so that Go's linker leaves it out.
package main

import "os"

var kept [][]byte

//go:noinline
func hold(n int) {
	for i := 0; i < n; i++ {
		kept = append(kept, make([]byte, 100_000))
	}
}

func main() {
	hold(400)
	os.Stdout.WriteString("held\n")
	os.Exit(len(kept) - 400)
}
