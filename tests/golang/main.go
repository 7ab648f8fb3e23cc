// Holders of known sizes, kept to the end, and what the program's own profile says of them. Of which mode it is, the test asks:
// faces/cli/tests/whole/golang.rs.
//
//	holders FILE    its own heap profile goes to FILE
//	holders wait    its process id, then it waits for its input to end
//	holders kill    it ends by a signal
package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"syscall"
)

type row struct {
	id   int
	tags [6]uint64
}

type node struct{ left, right *node }

type cache struct{ entries map[string]string }

var kept []any

//go:noinline
func rows(n int) []*row {
	all := make([]*row, 0, n)
	for i := 0; i < n; i++ {
		all = append(all, &row{id: i})
	}
	return all
}

//go:noinline
func tree(depth int) *node {
	if depth == 0 {
		return nil
	}
	return &node{tree(depth - 1), tree(depth - 1)}
}

// Inlined into its caller.
func buffer(n int) []byte { return make([]byte, n) }

//go:noinline
func buffers(n int) {
	for i := 0; i < n; i++ {
		b := buffer(40 << 10)
		for at := 0; at < len(b); at += 4096 {
			b[at] = 1
		}
		kept = append(kept, b)
	}
}

func (c *cache) put(key, value string) { c.entries[key] = value }

//go:noinline
func fill(c *cache, n int) {
	for i := 0; i < n; i++ {
		c.put(fmt.Sprintf("key %08d", i), strings.Repeat("v", 100))
	}
}

//go:noinline
func churn(n int) int {
	sum := 0
	for i := 0; i < n; i++ {
		sum += len(strings.Repeat("x", 1000+i%7))
	}
	return sum
}

func main() {
	kept = append(kept, rows(400_000), tree(17))
	buffers(800)
	c := &cache{map[string]string{}}
	fill(c, 100_000)
	fmt.Println("churned", churn(100_000))
	runtime.GC()
	runtime.GC()
	switch os.Args[1] {
	case "wait":
		fmt.Println("ready", os.Getpid())
		io.Copy(io.Discard, os.Stdin)
	case "kill":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	default:
		file, err := os.Create(os.Args[1])
		if err == nil {
			err = pprof.Lookup("heap").WriteTo(file, 0)
		}
		if err != nil {
			panic(err)
		}
		file.Close()
	}
	fmt.Println("kept", len(kept), len(c.entries))
	runtime.KeepAlive(c)
	os.Exit(7)
}
