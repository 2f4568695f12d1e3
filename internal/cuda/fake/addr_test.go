package fake_test

import "unsafe"

func heapAddr(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }
