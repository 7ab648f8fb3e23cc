// Holders of C's memory and of Go's, each of a number known to the test: faces/cli/tests/whole/golang_c.rs.
//
//	calls      it ends by itself
package main

/*
#include <stdlib.h>
#include <string.h>

static void *deep(size_t bytes, int depth) {
	if (depth == 0)
		return memset(malloc(bytes), 1, bytes);
	char *block = deep(bytes, depth - 1);
	block[depth] = depth;
	return block;
}

extern void goBack(int);
static void through(int count) { goBack(count); }

// C calls Go, whose stack grows and moves meanwhile; then C allocates.
extern int goGrow(int);
static void *after(size_t bytes) {
	int grown = goGrow(2000);
	char *block = malloc(bytes);
	block[0] = grown;
	return block;
}
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"
)

var (
	lock sync.Mutex
	kept []unsafe.Pointer
	held [][]byte
)

func keep(block unsafe.Pointer) {
	lock.Lock()
	kept = append(kept, block)
	lock.Unlock()
}

//go:noinline
func direct(n int) {
	for i := 0; i < n; i++ {
		keep(C.malloc(1000))
	}
}

//go:noinline
func nested(n int) {
	for i := 0; i < n; i++ {
		keep(C.deep(2000, 7))
	}
}

//go:noinline
func texts(n int) {
	for i := 0; i < n; i++ {
		keep(unsafe.Pointer(C.CString("a text of forty-four bytes and its end, kept")))
	}
}

//export goBack
func goBack(n C.int) {
	for i := 0; i < int(n); i++ {
		keep(C.malloc(3000))
	}
}

//go:noinline
func back(n int) { C.through(C.int(n)) }

//export goGrow
func goGrow(depth C.int) C.int {
	var large [256]byte
	large[depth%256] = byte(depth)
	if depth == 0 {
		return C.int(large[7])
	}
	return goGrow(depth-1) + C.int(large[0])
}

//go:noinline
func moved(n int) {
	for i := 0; i < n; i++ {
		keep(C.after(5000))
	}
}

//go:noinline
func even() { keep(C.malloc(700)) }

//go:noinline
func odd() { keep(C.malloc(700)) }

// Two kinds of goroutines take turns on the same threads: their stacks in C are alike.
func turns(which, n int, done *sync.WaitGroup) {
	for i := 0; i < n; i++ {
		if which%2 == 0 {
			even()
		} else {
			odd()
		}
		runtime.Gosched()
	}
	done.Done()
}

//go:noinline
func goHeap(n int) {
	for i := 0; i < n; i++ {
		block := make([]byte, 100<<10)
		for at := 0; at < len(block); at += 4096 {
			block[at] = 1
		}
		held = append(held, block)
	}
}

func main() {
	direct(2000)
	nested(500)
	texts(3000)
	back(400)
	goHeap(300)
	for i := 0; i < 20; i++ {
		var done sync.WaitGroup
		done.Add(1)
		// A goroutine of its own: its stack is small when C calls Go.
		go func() { moved(10); done.Done() }()
		done.Wait()
	}
	var done sync.WaitGroup
	for i := 0; i < 8; i++ {
		done.Add(1)
		go turns(i, 100, &done)
	}
	done.Wait()
	runtime.GC()
	runtime.GC()
	fmt.Println("kept", len(kept), len(held))
	os.Exit(3)
}
