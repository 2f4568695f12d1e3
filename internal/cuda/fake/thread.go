package fake

import (
	"sync"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"
)

func getpid() int { return syscall.Getpid() }
func gettid() int { return syscall.Gettid() }

// foreign is the work of the thread that onThread makes, one at a time.
var foreign struct {
	sync.Mutex
	work func()
}

var foreignStart = sync.OnceValue(func() (f struct{ create, join, start uintptr }) {
	f.create, _ = purego.Dlsym(purego.RTLD_DEFAULT, "pthread_create")
	f.join, _ = purego.Dlsym(purego.RTLD_DEFAULT, "pthread_join")
	f.start = purego.NewCallback(func(uintptr) uintptr { foreign.work(); return 0 })
	return f
})

// onThread runs f on a new thread that C made, and waits: as libraries call
// back. It panics where there is no C library to make one.
func onThread(f func()) {
	foreign.Lock()
	defer foreign.Unlock()
	s := foreignStart()
	if s.create == 0 || s.join == 0 {
		panic("fake driver: the C library has no threads")
	}
	foreign.work = f
	var thread uintptr
	if r, _, _ := purego.SyscallN(s.create, uintptr(unsafe.Pointer(&thread)), 0, s.start, 0); r != 0 {
		panic("fake driver: pthread_create failed")
	}
	purego.SyscallN(s.join, thread, 0)
	foreign.work = nil
}
