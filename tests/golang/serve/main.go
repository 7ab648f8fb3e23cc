// A server of its own heap profile: faces/cli/tests/whole/golang_served.rs.
//
//	serve PORT     it holds memory, says so, and waits for its input to end; a line on it is answered with more memory
package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"runtime"
)

var held [][]byte

//go:noinline
func first(n int) {
	for i := 0; i < n; i++ {
		held = append(held, filled(40<<10))
	}
}

//go:noinline
func later(n int) {
	for i := 0; i < n; i++ {
		held = append(held, filled(64<<10))
	}
}

func filled(bytes int) []byte {
	block := make([]byte, bytes)
	for at := 0; at < len(block); at += 4096 {
		block[at] = 1
	}
	return block
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		panic(err)
	}
	go http.Serve(listener, nil)
	first(800)
	runtime.GC()
	runtime.GC()
	fmt.Println("ready", os.Getpid())
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		later(400)
		runtime.GC()
		runtime.GC()
		fmt.Println("more")
	}
	os.Exit(5)
}
